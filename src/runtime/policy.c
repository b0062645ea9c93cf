/* SPDX-License-Identifier: Apache-2.0 */
/* The choice between transports: see policy.h. Runs on submitters' threads; holds no state. */
#include "runtime/policy.h"

#include "runtime/runtime.h"

/* Lower is better; the weights keep the rules in their order. */
static uint32_t demerits(const struct ferry_policy_candidate *candidate, uint64_t length)
{
    uint32_t sum = candidate->same_host ? 0 : 1;

    sum += 2 * (uint32_t)candidate->reach;
    if (length > candidate->length_max)
        sum += 8;
    return sum;
}

uint32_t ferry_policy_choose(const struct ferry_policy_candidate *candidates, uint32_t count,
                             uint64_t length)
{
    uint32_t best = FERRY_POLICY_NONE;
    uint32_t best_demerits = UINT32_MAX;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t own;

        if (!candidates[i].offered)
            continue;
        own = demerits(&candidates[i], length);
        if (own < best_demerits) {
            best = i;
            best_demerits = own;
        }
    }
    return best;
}

/* The worst of all pieces. */
static enum ferry_reach reach_of(struct ferry_target *target,
                                 const struct ferry_policy_request *request)
{
    enum ferry_reach worst = FERRY_REACH_YES;

    if (request->pieces == NULL)
        return ferry_transport_target_reach(target, request->remote_addr, request->length, NULL);
    for (uint32_t i = 0; i < request->piece_count; i++) {
        enum ferry_reach reach = ferry_transport_target_reach(
            target, request->pieces[i].remote_addr, request->pieces[i].length, NULL);

        if (reach > worst)
            worst = reach;
    }
    return worst;
}

uint32_t ferry_policy_choose_in(const struct ferry_view *view,
                                const struct ferry_policy_request *request)
{
    struct ferry_policy_candidate candidates[FERRY_TRANSPORTS_MAX];
    uint32_t count = view->engine->transport_count;

    if (FERRY_LIKELY(view->target_count == 1))
        return view->first_target;
    for (uint32_t i = 0; i < count; i++) {
        struct ferry_target *target = view->targets[i];

        candidates[i].offered = target != NULL;
        if (target == NULL)
            continue;
        candidates[i].same_host = (target->transport->ops->caps & FERRY_CAP_SHARED) != 0;
        candidates[i].reach = reach_of(target, request);
        candidates[i].length_max = target->max_transfer_bytes;
    }
    return ferry_policy_choose(candidates, count, request->length);
}
