/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rule of the fault decorator fires for a request, and how often each did. Any thread, under
 * the decorator's mutex.
 */
#include "base/assert.h"
#include "transport/fault/private.h"

/* Under the mutex: does this match fire? */
static bool fires(struct fault_transport *fault, struct ferry_fault_rule *rule)
{
    uint64_t number = rule->matched++;

    if (number < rule->skip || (number - rule->skip) % rule->every != 0)
        return false;
    if (rule->count != 0 && rule->fired >= rule->count)
        return false;
    if (rule->chance < 100 && ferry_random_u64(fault->random) % 100 >= rule->chance)
        return false;
    rule->fired++;
    return true;
}

/* The rule for a request; refusals are asked for apart, since they concern the whole call. */
struct ferry_fault_rule ferry_fault_decide(struct fault_transport *fault, enum ferry_opcode opcode,
                                           bool refuse)
{
    struct ferry_fault_rule found = {.action = FERRY_FAULT_NONE};

    pthread_mutex_lock(&fault->mutex);
    for (uint32_t i = 0; i < fault->rule_count; i++) {
        struct ferry_fault_rule *rule = &fault->rules[i];

        if ((rule->action == FERRY_FAULT_REFUSE) != refuse)
            continue;
        if (opcode == FERRY_READ ? !rule->read : !rule->write)
            continue;
        if (fires(fault, rule)) {
            found = *rule;
            break;
        }
    }
    pthread_mutex_unlock(&fault->mutex);
    return found;
}

uint32_t ferry_fault_add(struct ferry_transport *transport, const struct ferry_fault_rule *rule)
{
    struct fault_transport *fault = fault_of(transport);
    uint32_t number;

    pthread_mutex_lock(&fault->mutex);
    FERRY_ASSERT(fault->rule_count < FERRY_FAULT_RULES_MAX);
    number = fault->rule_count++;
    fault->rules[number] = *rule;
    fault->rules[number].matched = 0;
    fault->rules[number].fired = 0;
    pthread_mutex_unlock(&fault->mutex);
    return number;
}

void ferry_fault_clear(struct ferry_transport *transport)
{
    struct fault_transport *fault = fault_of(transport);

    pthread_mutex_lock(&fault->mutex);
    fault->rule_count = 0;
    pthread_mutex_unlock(&fault->mutex);
}

uint64_t ferry_fault_fired(struct ferry_transport *transport, uint32_t rule)
{
    struct fault_transport *fault = fault_of(transport);
    uint64_t fired;

    pthread_mutex_lock(&fault->mutex);
    fired = rule < fault->rule_count ? fault->rules[rule].fired : 0;
    pthread_mutex_unlock(&fault->mutex);
    return fired;
}

uint32_t ferry_fault_kept(struct ferry_transport *transport)
{
    return atomic_load(&fault_of(transport)->kept);
}

void ferry_fault_release(struct ferry_transport *transport, enum ferry_status status)
{
    struct fault_transport *fault = fault_of(transport);

    pthread_mutex_lock(&fault->mutex);
    fault->release_asked = true;
    fault->release_status = status;
    pthread_mutex_unlock(&fault->mutex);
    ferry_fault_kick(fault);
}
