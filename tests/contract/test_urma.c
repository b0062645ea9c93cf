/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of the table of native UB calls (src/foreign/urma.h), over the simulated fabric:
 * "table" runs it directly, "native" by way of urma_native.c and the URMA interface. Both ends of
 * each pair are contexts of one host; what crosses processes is in test_urma_processes.c.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "foreign/urma.h"
#include "sim/urma/urma_sim.h"
#include "support/pattern.h"
#include "support/test.h"

#define DEPTH  16u
#define LENGTH 65536u

static bool native_way;

struct end {
    struct ferry_urma_ctx *ctx;
    struct ferry_urma_cq *cq;
    struct ferry_urma_jetty *jetty;
    struct ferry_urma_mem *mem;
    struct ferry_urma_rmem *rmem;
    uint32_t token;
    struct fenced memory;
};

struct rig {
    struct usim *sim;
    struct usim_host host;
    struct ferry_urma urma;
    uint32_t device[2];
    struct end ends[2];
    uint64_t next_token;
};

static void assert_class(struct ferry_urma_status status, enum ferry_urma_class wanted)
{
    if (status.class != wanted)
        fail_msg("class %s (native %d), wanted %s", ferry_urma_class_name(status.class),
                 status.native, ferry_urma_class_name(wanted));
}

#define assert_fine(status) assert_class((status), FERRY_URMA_OK)

static void fabric_open(struct rig *rig)
{
    struct usim_options options = {.seed = 7};
    struct usim_device_spec spec = {.name = "udma0", .ports = 2, .first_eid = 2};

    memset(rig, 0, sizeof(*rig));
    rig->next_token = 1;
    rig->sim = usim_open(&options);
    assert_non_null(rig->sim);
    rig->host.sim = rig->sim;
    rig->host.node = usim_node_add(rig->sim);
    rig->device[0] = usim_device_add(rig->sim, rig->host.node, &spec);
    spec.name = "udma1";
    spec.first_eid = 0;
    rig->device[1] = usim_device_add(rig->sim, rig->host.node, &spec);
    usim_shim_host(&rig->host);
}

static void urma_start(struct rig *rig)
{
    struct ferry_urma_open_options options = {.self = &rig->host};

    assert_fine(
        ferry_urma_open(native_way ? usim_native_table() : usim_table(), &options, &rig->urma));
}

static void end_open(struct rig *rig, struct end *end, const struct ferry_urma_device *row)
{
    struct ferry_urma_ctx_options options = {.name = row->name, .eid_index = row->eid_index};
    struct ferry_urma_cq_options cq = {.depth = 2 * DEPTH, .events = true, .cookie = 99};
    struct ferry_urma_jetty_options jetty = {
        .depth = DEPTH, .priority = 15, .rnr_retry = 7, .error_timeout = 10, .path_type = 1};
    struct ferry_urma_mem_spec mem = {.length = LENGTH,
                                      .access = FERRY_URMA_ACCESS_READ | FERRY_URMA_ACCESS_WRITE,
                                      .token = (uint32_t)usim_random(rig->sim) | 1};

    memcpy(options.eid, row->eid, sizeof(options.eid));
    assert_true(fenced_alloc(&end->memory, LENGTH, 40));
    mem.addr = end->memory.data;
    assert_fine(ferry_urma_ctx_open(&rig->urma, &options, &end->ctx));
    assert_fine(ferry_urma_cq_create(&rig->urma, end->ctx, &cq, &end->cq));
    assert_fine(ferry_urma_jetty_create(&rig->urma, end->ctx, end->cq, &jetty, &end->jetty));
    assert_fine(ferry_urma_mem_register(&rig->urma, end->ctx, &mem, &end->mem));
    end->token = mem.token;
}

static void connect_to(struct rig *rig, struct end *end, const struct end *other)
{
    struct ferry_urma_jetty_info info;
    struct ferry_urma_ctx_info ctx;
    struct ferry_urma_peer peer = {.path_type = FERRY_URMA_PATH_CTP};

    ferry_urma_jetty_info(&rig->urma, other->jetty, &info);
    ferry_urma_ctx_info(&rig->urma, other->ctx, &ctx);
    memcpy(peer.eid, ctx.eid, sizeof(peer.eid));
    peer.uasid = info.uasid;
    peer.id = info.id;
    assert_fine(ferry_urma_jetty_connect(&rig->urma, end->jetty, &peer));
}

static void import_from(struct rig *rig, struct end *end, struct ferry_urma_mem *mem,
                        uint32_t token)
{
    struct ferry_urma_descriptor descriptor;
    struct ferry_urma_import import = {.descriptor = &descriptor,
                                       .token = token,
                                       .access = FERRY_URMA_ACCESS_READ | FERRY_URMA_ACCESS_WRITE};

    ferry_urma_mem_export(&rig->urma, mem, &descriptor);
    assert_int_equal(descriptor.length, LENGTH);
    assert_fine(ferry_urma_rmem_import(&rig->urma, end->ctx, &import, &end->rmem));
}

static void rig_open(struct rig *rig)
{
    struct ferry_urma_device rows[8];
    uint32_t count;

    fabric_open(rig);
    urma_start(rig);
    assert_fine(ferry_urma_list_devices(&rig->urma, rows, 8, &count));
    assert_int_equal(count, 2);
    for (uint32_t i = 0; i < 2; i++)
        end_open(rig, &rig->ends[i], &rows[i]);
    for (uint32_t i = 0; i < 2; i++) {
        import_from(rig, &rig->ends[i], rig->ends[1 - i].mem, rig->ends[1 - i].token);
        connect_to(rig, &rig->ends[i], &rig->ends[1 - i]);
    }
}

/* At most once each, and only those: counts by kind; results by token in @seen. */
static uint32_t poll_until_marker(struct rig *rig, struct end *end, uint64_t *tokens, uint32_t max)
{
    struct ferry_urma_completion out[8];
    struct ferry_urma_jetty_info info;
    bool marker = false;
    uint32_t results = 0;
    uint64_t until_ns = test_now_ns() + 10000000000u;

    ferry_urma_jetty_info(&rig->urma, end->jetty, &info);
    while (!marker) {
        uint32_t count;

        assert_true(test_now_ns() < until_ns);
        assert_fine(ferry_urma_cq_poll(&rig->urma, end->cq, out, 8, &count));
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(out[i].jetty_id, info.id);
            if (out[i].kind == FERRY_URMA_DRAINED)
                marker = true;
            else if (results < max)
                tokens[results++] = out[i].token;
        }
    }
    return results;
}

static uint32_t flush_all(struct rig *rig, struct end *end, uint64_t *tokens, uint32_t at,
                          uint32_t max)
{
    struct ferry_urma_completion out[8];
    uint32_t count;

    do {
        assert_fine(ferry_urma_jetty_flush(&rig->urma, end->jetty, out, 8, &count));
        for (uint32_t i = 0; i < count && at < max; i++) {
            assert_int_equal(out[i].status.class, FERRY_URMA_FLUSHED);
            tokens[at++] = out[i].token;
        }
    } while (count > 0);
    return at;
}

static void fence(struct rig *rig, struct end *end)
{
    uint64_t tokens[64];

    assert_fine(ferry_urma_jetty_set_error(&rig->urma, end->jetty));
    poll_until_marker(rig, end, tokens, 64);
    flush_all(rig, end, tokens, 0, 64);
}

#define destroy_at_last(call)                                                                      \
    do {                                                                                           \
        struct ferry_urma_status status_;                                                          \
        uint32_t tries_ = 0;                                                                       \
        while ((status_ = (call)).class == FERRY_URMA_BUSY)                                        \
            assert_true(++tries_ < 50);                                                            \
        assert_fine(status_);                                                                      \
    } while (0)

static void end_close(struct rig *rig, struct end *end)
{
    destroy_at_last(ferry_urma_jetty_disconnect(&rig->urma, end->jetty));
    destroy_at_last(ferry_urma_jetty_destroy(&rig->urma, &end->jetty));
    destroy_at_last(ferry_urma_rmem_release(&rig->urma, &end->rmem));
    destroy_at_last(ferry_urma_mem_unregister(&rig->urma, &end->mem));
    destroy_at_last(ferry_urma_cq_destroy(&rig->urma, &end->cq));
    destroy_at_last(ferry_urma_ctx_close(&rig->urma, &end->ctx));
    assert_true(fenced_intact(&end->memory));
    fenced_free(&end->memory);
}

static void rig_close(struct rig *rig)
{
    struct usim_audit audit;

    for (uint32_t i = 0; i < 2 && rig->ends[0].ctx != NULL; i++)
        fence(rig, &rig->ends[i]);
    for (uint32_t i = 0; i < 2; i++) {
        if (rig->ends[i].ctx != NULL)
            end_close(rig, &rig->ends[i]);
    }
    assert_fine(ferry_urma_close(&rig->urma));
    usim_audit(rig->sim, rig->host.node, &audit);
    if (audit.violations > 0)
        fail_msg("%s", audit.violation);
    assert_int_equal(audit.made, audit.gone);
    assert_int_equal(audit.contexts + audit.queues + audit.jetties + audit.segments + audit.imports,
                     0);
    assert_int_equal(audit.events_unacked, 0);
    usim_close(rig->sim);
}

static struct ferry_urma_request request(struct rig *rig, enum ferry_urma_opcode opcode,
                                         uint32_t local, uint32_t remote, uint32_t length)
{
    return (struct ferry_urma_request){
        .opcode = opcode,
        .token = rig->next_token++,
        .mem = rig->ends[0].mem,
        .local = rig->ends[0].memory.data + local,
        .rmem = rig->ends[0].rmem,
        .remote = (uintptr_t)rig->ends[1].memory.data + remote,
        .length = length,
    };
}

static struct ferry_urma_completion wait_one(struct rig *rig)
{
    struct ferry_urma_completion out = {0};
    uint32_t count = 0;
    uint64_t until_ns = test_now_ns() + 10000000000u;

    while (count == 0) {
        assert_true(test_now_ns() < until_ns);
        assert_fine(ferry_urma_cq_poll(&rig->urma, rig->ends[0].cq, &out, 1, &count));
    }
    return out;
}

static void test_urma_lists_sparse_eids_and_ports_in_every_state(void **state)
{
    struct ferry_urma_device rows[8];
    struct rig rig;
    uint32_t count;

    (void)state;
    fabric_open(&rig);
    urma_start(&rig);
    for (uint32_t port_state = 0; port_state <= 5; port_state++) {
        usim_port_state(rig.sim, rig.device[0], 0, port_state);
        assert_fine(ferry_urma_list_devices(&rig.urma, rows, 8, &count));
        assert_int_equal(count, 2);
        assert_int_equal(rows[0].eid_index, 2);
        assert_int_equal(rows[1].eid_index, 0);
        assert_int_equal(rows[0].port_count, 2);
        assert_int_equal(rows[0].ports_active, port_state >= 4 ? 2 : 1);
    }
    usim_device_present(rig.sim, rig.device[0], false);
    assert_fine(ferry_urma_list_devices(&rig.urma, rows, 8, &count));
    assert_int_equal(count, 1);
    assert_string_equal(rows[0].name, "udma1");
    usim_device_present(rig.sim, rig.device[1], false);
    assert_fine(ferry_urma_list_devices(&rig.urma, rows, 8, &count));
    assert_int_equal(count, 0);
    rig_close(&rig);
}

static void test_urma_opens_a_context_only_where_the_eid_still_is(void **state)
{
    struct ferry_urma_ctx_options options = {.eid_index = 2};
    struct ferry_urma_ctx_state now;
    struct ferry_urma_device rows[8];
    struct ferry_urma_event event;
    struct ferry_urma_ctx *ctx;
    struct rig rig;
    uint32_t count;

    (void)state;
    fabric_open(&rig);
    urma_start(&rig);
    assert_fine(ferry_urma_list_devices(&rig.urma, rows, 8, &count));
    options.name = rows[0].name;
    memcpy(options.eid, rows[0].eid, sizeof(options.eid));
    assert_fine(ferry_urma_ctx_open(&rig.urma, &options, &ctx));
    usim_eid_change(rig.sim, rig.device[0]);
    assert_fine(ferry_urma_event_next(&rig.urma, ctx, &event));
    assert_int_equal(event.kind, FERRY_URMA_EVENT_EID);
    assert_int_equal(event.index, 2);
    assert_fine(ferry_urma_event_next(&rig.urma, ctx, &event));
    assert_int_equal(event.kind, FERRY_URMA_EVENT_NONE);
    assert_fine(ferry_urma_ctx_refresh(&rig.urma, ctx, &now));
    assert_false(now.eid_valid);
    assert_class(ferry_urma_close(&rig.urma), FERRY_URMA_BUSY);
    assert_fine(ferry_urma_ctx_close(&rig.urma, &ctx));
    assert_null(ctx);
    assert_fine(ferry_urma_ctx_close(&rig.urma, &ctx));
    assert_class(ferry_urma_ctx_open(&rig.urma, &options, &ctx), FERRY_URMA_DEVICE);
    options.name = "no_such";
    assert_class(ferry_urma_ctx_open(&rig.urma, &options, &ctx), FERRY_URMA_DEVICE);
    rig_close(&rig);
}

static void test_urma_moves_exactly_what_a_request_names(void **state)
{
    struct ferry_urma_post_result result;
    struct ferry_urma_completion done;
    struct ferry_urma_request one;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t length = 1 + (uint32_t)(usim_random(rig.sim) % 3000);
        uint32_t local = (uint32_t)(usim_random(rig.sim) % (LENGTH - length));
        uint32_t remote = (uint32_t)(usim_random(rig.sim) % (LENGTH - length));
        bool write = i % 2 == 0;
        unsigned char *to = (write ? rig.ends[1] : rig.ends[0]).memory.data;
        uint32_t at = write ? remote : local;

        pattern_fill(rig.ends[0].memory.data, LENGTH, 2 * i, 0);
        pattern_fill(rig.ends[1].memory.data, LENGTH, 2 * i + 1, 0);
        one = request(&rig, write ? FERRY_URMA_WRITE : FERRY_URMA_READ, local, remote, length);
        assert_fine(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, &one, 1, &result));
        assert_int_equal(result.accepted, 1);
        done = wait_one(&rig);
        assert_int_equal(done.kind, FERRY_URMA_RESULT);
        assert_fine(done.status);
        assert_int_equal(done.executed, FERRY_URMA_EXECUTED_YES);
        assert_int_equal(done.token, one.token);
        assert_int_equal(done.bytes, length);
        assert_int_equal(
            pattern_differs(to + at, length, write ? 2 * i : 2 * i + 1, write ? local : remote),
            PATTERN_SAME);
        assert_int_equal(pattern_differs(to, at, write ? 2 * i + 1 : 2 * i, 0), PATTERN_SAME);
        assert_int_equal(pattern_differs(to + at + length, LENGTH - at - length,
                                         write ? 2 * i + 1 : 2 * i, at + length),
                         PATTERN_SAME);
    }
    rig_close(&rig);
}

static void test_urma_refuses_a_token_or_a_range_that_is_not_registered(void **state)
{
    struct ferry_urma_post_result result;
    struct ferry_urma_request one;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    destroy_at_last(ferry_urma_rmem_release(&rig.urma, &rig.ends[0].rmem));
    import_from(&rig, &rig.ends[0], rig.ends[1].mem, 0);
    one = request(&rig, FERRY_URMA_READ, 0, 0, 64);
    assert_fine(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, &one, 1, &result));
    assert_class(wait_one(&rig).status, FERRY_URMA_MEMORY);
    rig_close(&rig);
}

/* Its fence ends in every token reported once, whatever the hardware had of them. */
static void test_urma_reports_each_request_once_through_a_fence(void **state)
{
    struct ferry_urma_request list[12];
    struct ferry_urma_post_result result;
    uint64_t tokens[32] = {0};
    struct rig rig;
    uint32_t count;
    uint64_t sum = 0;
    uint64_t wanted = 0;

    (void)state;
    rig_open(&rig);
    usim_chance(rig.sim, USIM_ELSEWHERE_DELAY, 1000000);
    for (uint32_t i = 0; i < 12; i++) {
        list[i] = request(&rig, FERRY_URMA_WRITE, i * 64, i * 64, 64);
        wanted += list[i].token;
    }
    assert_fine(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, list, 12, &result));
    assert_fine(ferry_urma_jetty_set_error(&rig.urma, rig.ends[0].jetty));
    count = poll_until_marker(&rig, &rig.ends[0], tokens, 32);
    count = flush_all(&rig, &rig.ends[0], tokens, count, 32);
    assert_int_equal(count, 12);
    for (uint32_t i = 0; i < count; i++)
        sum += tokens[i];
    assert_int_equal(sum, wanted);
    /* A jetty in error takes more, and gives it back unhandled. */
    list[0].token = rig.next_token++;
    assert_fine(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, list, 1, &result));
    assert_int_equal(flush_all(&rig, &rig.ends[0], tokens, 0, 32), 1);
    assert_int_equal(tokens[0], list[0].token);
    /* Its marker came once only. */
    end_close(&rig, &rig.ends[0]);
    rig.ends[0].ctx = NULL;
    fence(&rig, &rig.ends[1]);
    end_close(&rig, &rig.ends[1]);
    rig.ends[1].ctx = NULL;
    rig_close(&rig);
}

static void test_urma_says_how_much_of_a_list_was_accepted(void **state)
{
    struct ferry_urma_request list[20];
    struct ferry_urma_post_result result;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    usim_chance(rig.sim, USIM_ELSEWHERE_DELAY, 1000000);
    for (uint32_t i = 0; i < 20; i++)
        list[i] = request(&rig, FERRY_URMA_READ, i * 64, i * 64, 64);
    /* The queue is 16 deep. */
    assert_class(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, list, 20, &result),
                 FERRY_URMA_BUSY);
    assert_int_equal(result.accepted, DEPTH);
    assert_true(result.known);
    assert_class(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, list, 1, &result),
                 FERRY_URMA_BUSY);
    assert_int_equal(result.accepted, 0);
    usim_script(rig.sim, USIM_POST_UNKNOWN, 0, 1);
    assert_class(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, list, 2, &result),
                 FERRY_URMA_UNKNOWN);
    assert_false(result.known);
    rig_close(&rig);
}

static void test_urma_saves_what_a_failed_poll_took_off_the_queue(void **state)
{
    struct ferry_urma_completion out[8];
    struct ferry_urma_request list[4];
    struct ferry_urma_post_result result;
    struct rig rig;
    uint32_t count;

    (void)state;
    rig_open(&rig);
    for (uint32_t i = 0; i < 4; i++)
        list[i] = request(&rig, FERRY_URMA_READ, i * 64, i * 64, 64);
    assert_fine(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, list, 4, &result));
    usim_script(rig.sim, USIM_POLL_NEGATIVE, 0, 1);
    assert_class(ferry_urma_cq_poll(&rig.urma, rig.ends[0].cq, out, 8, &count), FERRY_URMA_UNKNOWN);
    assert_true(count <= 4);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(out[i].token, list[i].token);
    rig_close(&rig);
}

static void test_urma_wakes_a_sleeper_and_survives_busy_destroys(void **state)
{
    struct ferry_urma_request one;
    struct ferry_urma_post_result result;
    struct pollfd waiting = {.events = POLLIN};
    struct rig rig;
    uint32_t count;

    (void)state;
    rig_open(&rig);
    waiting.fd = ferry_urma_cq_fd(&rig.urma, rig.ends[0].cq);
    assert_true(waiting.fd >= 0);
    assert_fine(ferry_urma_cq_arm(&rig.urma, rig.ends[0].cq));
    assert_int_equal(poll(&waiting, 1, 0), 0);
    one = request(&rig, FERRY_URMA_READ, 0, 0, 64);
    assert_fine(ferry_urma_jetty_post(&rig.urma, rig.ends[0].jetty, &one, 1, &result));
    usim_run(rig.sim);
    assert_int_equal(poll(&waiting, 1, 10000), 1);
    assert_fine(ferry_urma_cq_ack_events(&rig.urma, rig.ends[0].cq, &count));
    assert_true(count >= 1);
    assert_fine(wait_one(&rig).status);
    usim_script(rig.sim, USIM_BUSY_CTX, 0, 3);
    usim_script(rig.sim, USIM_BUSY_CQ, 0, 3);
    usim_script(rig.sim, USIM_BUSY_JETTY, 0, 3);
    usim_script(rig.sim, USIM_BUSY_UNBIND, 0, 3);
    usim_script(rig.sim, USIM_BUSY_SEG, 0, 3);
    usim_script(rig.sim, USIM_BUSY_IMPORT, 0, 3);
    rig_close(&rig);
}

static void test_urma_makes_nothing_when_it_fails(void **state)
{
    struct ferry_urma_cq_options cq = {.depth = 4};
    struct ferry_urma_jetty_options jetty = {.depth = 4, .error_timeout = 10};
    struct ferry_urma_mem_spec mem = {.length = 64, .access = 6, .token = 1};
    struct ferry_urma_jetty *no_jetty = NULL;
    struct ferry_urma_cq *no_cq = NULL;
    struct ferry_urma_mem *no_mem = NULL;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    for (uint32_t skip = 0; skip < (native_way ? 2 : 1); skip++) {
        usim_script(rig.sim, USIM_CREATE_CQ, skip, 1);
        assert_class(ferry_urma_cq_create(&rig.urma, rig.ends[0].ctx, &cq, &no_cq),
                     FERRY_URMA_DEVICE);
    }
    usim_script(rig.sim, USIM_CREATE_JETTY, 0, 1);
    assert_class(
        ferry_urma_jetty_create(&rig.urma, rig.ends[0].ctx, rig.ends[0].cq, &jetty, &no_jetty),
        FERRY_URMA_DEVICE);
    jetty.depth = 100000;
    assert_class(
        ferry_urma_jetty_create(&rig.urma, rig.ends[0].ctx, rig.ends[0].cq, &jetty, &no_jetty),
        FERRY_URMA_CALLER);
    mem.addr = rig.ends[0].memory.data;
    usim_script(rig.sim, USIM_CREATE_SEG, 0, 1);
    assert_class(ferry_urma_mem_register(&rig.urma, rig.ends[0].ctx, &mem, &no_mem),
                 FERRY_URMA_MEMORY);
    mem.access = FERRY_URMA_ACCESS_LOCAL | FERRY_URMA_ACCESS_READ;
    assert_class(ferry_urma_mem_register(&rig.urma, rig.ends[0].ctx, &mem, &no_mem),
                 FERRY_URMA_CALLER);
    rig_close(&rig);
}

/* Who finds the library initialised by somebody else must leave it so. */
static void test_urma_uninitialises_only_what_it_initialised(void **state)
{
    struct ferry_urma_open_options options = {0};
    struct ferry_urma second;
    uint32_t before = usim_shim_uninits();
    struct rig rig;

    (void)state;
    fabric_open(&rig);
    options.self = &rig.host;
    urma_start(&rig);
    assert_fine(ferry_urma_open(rig.urma.ops, &options, &second));
    assert_fine(ferry_urma_close(&second));
    assert_int_equal(usim_shim_uninits(), before);
    assert_fine(ferry_urma_close(&rig.urma));
    assert_int_equal(usim_shim_uninits(), before + (native_way ? 1 : 0));
    usim_shim_foreign_init(true);
    assert_fine(
        ferry_urma_open(native_way ? usim_native_table() : usim_table(), &options, &second));
    assert_fine(ferry_urma_close(&second));
    assert_int_equal(usim_shim_uninits(), before + (native_way ? 1 : 0));
    usim_shim_foreign_init(false);
    rig_close(&rig);
}

static void test_urma_says_that_there_is_no_provider(void **state)
{
    struct usim_host nowhere = {0};
    struct ferry_urma_open_options options = {.self = &nowhere};
    struct ferry_urma urma;

    (void)state;
    usim_shim_host(NULL);
    assert_class(ferry_urma_open(native_way ? usim_native_table() : usim_table(), &options, &urma),
                 FERRY_URMA_DEVICE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urma_lists_sparse_eids_and_ports_in_every_state),
        cmocka_unit_test(test_urma_opens_a_context_only_where_the_eid_still_is),
        cmocka_unit_test(test_urma_moves_exactly_what_a_request_names),
        cmocka_unit_test(test_urma_refuses_a_token_or_a_range_that_is_not_registered),
        cmocka_unit_test(test_urma_reports_each_request_once_through_a_fence),
        cmocka_unit_test(test_urma_says_how_much_of_a_list_was_accepted),
        cmocka_unit_test(test_urma_saves_what_a_failed_poll_took_off_the_queue),
        cmocka_unit_test(test_urma_wakes_a_sleeper_and_survives_busy_destroys),
        cmocka_unit_test(test_urma_makes_nothing_when_it_fails),
        cmocka_unit_test(test_urma_uninitialises_only_what_it_initialised),
        cmocka_unit_test(test_urma_says_that_there_is_no_provider),
    };

    native_way = argc > 1 && strcmp(argv[1], "native") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
