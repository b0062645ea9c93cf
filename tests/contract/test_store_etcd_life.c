/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the etcd store that live with their process: they go when it is killed, come back when
 * it or etcd comes back, and take nothing from others.
 */
#include "etcd_rig.h"
#include "support/process.h"

/* A process that owns an entry and lives until it is killed: this program again. */
static pid_t start_owner(struct rig *rig, const char *name, const char *text)
{
    char port[8];
    char byte = 0;
    int ready[2];
    pid_t child;

    snprintf(port, sizeof(port), "%u", rig->etcd.port);
    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ready[1], 3);
        execl("/proc/self/exe", "owner", "--own", port, name, text, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(byte, 'y');
    return child;
}

/* That process: says on descriptor 3 that it has the entry. */
static int own(const char *port, const char *name, const char *text)
{
    struct rig rig = {0};
    bool ok;

    configure(&rig);
    point_at(&rig, (uint16_t)atoi(port));
    assert_ok(ferry_http_client_open(NULL, &rig.http));
    ok = open_store(&rig) == FERRY_OK && put_owned(&rig, name, text) == FERRY_OK;
    if (write(3, ok ? "y" : "n", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static void end_owner(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Field report B24: nobody has to clean up behind a process that was killed. */
static void test_the_entry_of_a_killed_owner_goes_away(void **state)
{
    struct rig *rig = *state;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");
    uint64_t killed_ns;

    put(rig, "nvmeof/stays", "{}");
    /* Longer than the lease without a keep-alive. */
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 2000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":1}");
        test_nap();
    }
    end_owner(owner);
    killed_ns = test_now_ns();
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
    assert_true(test_now_ns() - killed_ns < 30 * FERRY_NS_PER_S);
    assert_string_equal(get(rig, "nvmeof/stays"), "{}");
}

static void test_an_owner_that_was_stopped_puts_its_entry_back(void **state)
{
    struct rig *rig = *state;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");

    assert_true(process_stop(owner));
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
    kill(owner, SIGCONT);
    assert_within_ms(strcmp(get(rig, "seg"), "{\"o\":1}") == 0, PATIENCE_MS);
    /* And it lives on under its new lease. */
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 1000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":1}");
        test_nap();
    }
    end_owner(owner);
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
}

static void test_an_owner_that_comes_back_does_not_take_a_name_from_its_successor(void **state)
{
    struct rig *rig = *state;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");

    assert_true(process_stop(owner));
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
    assert_ok(put_owned(rig, "seg", "{\"o\":2}"));
    kill(owner, SIGCONT);
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 2000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":2}");
        test_nap();
    }
    end_owner(owner);
}

static void test_an_owned_put_takes_nothing_from_others(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");

    assert_status(put_owned(rig, "seg", "{\"o\":2}"), FERRY_ERR_EXISTS);
    request = request_of(FERRY_STORE_DELETE, "seg");
    request.owned = true;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(get(rig, "seg"), "{\"o\":1}");
    /* Unless the very entry is meant. */
    request = request_of(FERRY_STORE_GET, "seg");
    assert_ok(ferry_store_call(rig->store, &request));
    free(request.reply);
    uint64_t revision = request.revision;

    request = put_of("seg", "{\"o\":3}");
    request.owned = true;
    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = revision;
    assert_ok(ferry_store_call(rig->store, &request));
    end_owner(owner);
    /* It is ours now: it does not go with the lease that it had. */
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 2000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":3}");
        test_nap();
    }
    assert_ok(put_owned(rig, "seg", "{\"o\":4}"));
    request = request_of(FERRY_STORE_DELETE, "seg");
    request.owned = true;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(get(rig, "seg"), "");
}

static void test_an_entry_that_somebody_deleted_is_put_again(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_DELETE, "seg");

    assert_ok(put_owned(rig, "seg", "one"));
    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(get(rig, "seg"), "");
    assert_ok(put_owned(rig, "seg", "two"));
    assert_string_equal(get(rig, "seg"), "two");
}

struct writer {
    struct rig *rig;
    char text[16];
    enum ferry_status status;
};

static void *put_meanwhile(void *arg)
{
    struct writer *writer = arg;
    struct ferry_store_request request = put_of("seg", writer->text);

    writer->status = ferry_store_call(writer->rig->store, &request);
    return NULL;
}

static void test_requests_ride_out_a_restart(void **state)
{
    struct rig *rig = *state;
    struct writer writer = {.rig = rig};
    struct timespec gap = {.tv_nsec = 200000000};
    pthread_t thread;

    assert_ok(put_owned(rig, "own", "{\"o\":1}"));
    for (int i = 0; i < 3; i++) {
        snprintf(writer.text, sizeof(writer.text), "round %d", i);
        test_etcd_kill(&rig->etcd);
        assert_int_equal(pthread_create(&thread, NULL, put_meanwhile, &writer), 0);
        /* So that it meets the gap; nothing depends on that it does. */
        nanosleep(&gap, NULL);
        test_etcd_start(&rig->etcd);
        pthread_join(thread, NULL);
        assert_ok(writer.status);
        assert_string_equal(get(rig, "seg"), writer.text);
        assert_string_equal(get(rig, "own"), "{\"o\":1}");
        assert_ok(put_owned(rig, "own", "{\"o\":1}"));
    }
}

static void test_an_etcd_that_lost_all_gets_the_entry_again(void **state)
{
    struct rig *rig = *state;

    assert_ok(put_owned(rig, "own", "{\"o\":1}"));
    test_etcd_kill(&rig->etcd);
    test_etcd_wipe(&rig->etcd);
    test_etcd_start(&rig->etcd);
    assert_within_ms(strcmp(get(rig, "own"), "{\"o\":1}") == 0, PATIENCE_MS);
    assert_ok(put_owned(rig, "own", "{\"o\":2}"));
    assert_string_equal(get(rig, "own"), "{\"o\":2}");
}

/* The lease went and nobody has noticed yet: the put that finds out goes through all the same. */
static void test_a_put_under_a_lease_that_is_gone_takes_another(void **state)
{
    struct rig *rig = *state;
    char body[96];
    const char *id;

    set_config(rig, "metadata_lease_s", "3600");
    reopen(rig);
    assert_ok(put_owned(rig, "own", "one"));
    id = strstr(ask(rig, "/v3/lease/leases", "{}"), "\"ID\":\"");
    assert_non_null(id);
    snprintf(body, sizeof(body), "{\"ID\":\"%.*s\"}", (int)strcspn(id + 6, "\""), id + 6);
    ask(rig, "/v3/lease/revoke", body);
    assert_string_equal(get(rig, "own"), "");
    assert_ok(put_owned(rig, "own", "two"));
    assert_string_equal(get(rig, "own"), "two");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ON(test_the_entry_of_a_killed_owner_goes_away),
        ON(test_an_owner_that_was_stopped_puts_its_entry_back),
        ON(test_an_owner_that_comes_back_does_not_take_a_name_from_its_successor),
        ON(test_an_owned_put_takes_nothing_from_others),
        ON(test_an_entry_that_somebody_deleted_is_put_again),
        ON(test_requests_ride_out_a_restart),
        ON(test_an_etcd_that_lost_all_gets_the_entry_again),
        ON(test_a_put_under_a_lease_that_is_gone_takes_another),
    };

    if (argc == 5 && strcmp(argv[1], "--own") == 0)
        return own(argv[2], argv[3], argv[4]);
    return cmocka_run_group_tests_name("etcd store: living entries", tests, NULL, NULL);
}
