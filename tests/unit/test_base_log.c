/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logger: levels, both formats, repeats on an injected clock, and a standard error that nobody
 * reads or that is gone.
 */
#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LINES_MAX 256

struct capture {
    char *lines[LINES_MAX];
    enum ferry_log_level levels[LINES_MAX];
    size_t count;
};

struct hand_clock {
    struct ferry_clock clock;
    uint64_t now_ns;
};

static struct capture capture;
static struct hand_clock hand_clock;

static uint64_t hand_now(const struct ferry_clock *clock)
{
    return ((const struct hand_clock *)clock)->now_ns;
}

static void sink(void *arg, enum ferry_log_level level, const char *line)
{
    struct capture *into = arg;

    if (into->count < LINES_MAX) {
        into->levels[into->count] = level;
        into->lines[into->count] = strdup(line);
    }
    into->count++;
}

static void forget(void)
{
    for (size_t i = 0; i < capture.count && i < LINES_MAX; i++)
        free(capture.lines[i]);
    memset(&capture, 0, sizeof(capture));
}

static int setup(void **state)
{
    (void)state;
    hand_clock = (struct hand_clock){.clock = {.now_ns = hand_now}, .now_ns = FERRY_NS_PER_S};
    ferry_log_set_clock(&hand_clock.clock);
    ferry_log_set_sink(sink, &capture);
    ferry_log_set_format(FERRY_LOG_TEXT);
    ferry_log_set_level(FERRY_LOG_TRACE);
    ferry_log_flush();
    forget();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ferry_log_flush();
    ferry_log_set_sink(NULL, NULL);
    ferry_log_set_clock(NULL);
    ferry_log_set_format(FERRY_LOG_TEXT);
    ferry_log_set_level(FERRY_LOG_WARN);
    forget();
    return 0;
}

/* The part of a text line behind the time. */
static const char *message_of(const char *line)
{
    const char *space = strchr(line, ' ');

    assert_non_null(space);
    return space + 1;
}

static void test_log_text_line_has_time_level_area_and_message(void **state)
{
    int year, month, day, hour, minute, second, us;

    (void)state;
    errno = EXDEV;
    ferry_warn("hp_tcp", "lane closed: peer=%s lane=%d", "node1", 3);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(capture.count, 1);
    assert_int_equal(capture.levels[0], FERRY_LOG_WARN);
    assert_string_equal(message_of(capture.lines[0]),
                        "warn hp_tcp: lane closed: peer=node1 lane=3");
    assert_int_equal(sscanf(capture.lines[0], "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ", &year, &month, &day,
                            &hour, &minute, &second, &us),
                     7);

    struct tm tm = {
        .tm_year = year - 1900,
        .tm_mon = month - 1,
        .tm_mday = day,
        .tm_hour = hour,
        .tm_min = minute,
        .tm_sec = second,
    };
    time_t logged = timegm(&tm);
    time_t now = time(NULL);

    assert_true(logged <= now);
    assert_true(now - logged < 60);
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static void test_log_level_is_checked_before_arguments(void **state)
{
    (void)state;
    evaluated = 0;
    ferry_log_set_level(FERRY_LOG_INFO);
    ferry_debug("a", "%d", evaluate());
    ferry_trace("a", "%d", evaluate());
    assert_int_equal(evaluated, 0);
    assert_int_equal(capture.count, 0);
    ferry_info("a", "%d", evaluate());
    assert_int_equal(evaluated, 1);
    assert_int_equal(capture.count, 1);
    ferry_log_set_level(FERRY_LOG_OFF);
    ferry_error("a", "%d", evaluate());
    assert_int_equal(evaluated, 1);
}

static void test_log_json_is_valid_whatever_the_bytes_are(void **state)
{
    char message[256];
    struct json_object *value, *field;

    (void)state;
    for (int byte = 1; byte < 256; byte++)
        message[byte - 1] = (char)byte;
    message[255] = '\0';
    ferry_log_set_format(FERRY_LOG_JSON);
    ferry_info("we\"ird", "%s", message);
    assert_int_equal(capture.count, 1);
    assert_null(strchr(capture.lines[0], '\n'));

    enum json_tokener_error error;
    struct json_tokener *tokener = json_tokener_new();

    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    value = json_tokener_parse_ex(tokener, capture.lines[0], (int)strlen(capture.lines[0]));
    error = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    assert_int_equal(error, json_tokener_success);
    assert_true(json_object_object_get_ex(value, "level", &field));
    assert_string_equal(json_object_get_string(field), "info");
    assert_true(json_object_object_get_ex(value, "area", &field));
    assert_string_equal(json_object_get_string(field), "we\"ird");
    assert_true(json_object_object_get_ex(value, "time", &field));
    assert_true(json_object_object_get_ex(value, "message", &field));

    /* ASCII survives exactly; the 128 lone high bytes are replaced one by one. */
    const char *text = json_object_get_string(field);

    assert_memory_equal(text, message, 127);
    assert_int_equal(strlen(text), 127 + 128 * 3);
    json_object_put(value);
}

static void test_log_text_stays_on_one_line(void **state)
{
    (void)state;
    ferry_info("a", "first\nsecond \x1b[31m \xc3\xa9 \xff");
    assert_string_equal(message_of(capture.lines[0]),
                        "info a: first\\x0asecond \\x1b[31m \xc3\xa9 \\xff");
}

static void test_log_long_messages_are_cut_and_say_so(void **state)
{
    char lengthy[5000];

    (void)state;
    memset(lengthy, '\x01', sizeof(lengthy) - 1); /* the byte with the longest escape */
    lengthy[sizeof(lengthy) - 1] = '\0';
    ferry_log_set_format(FERRY_LOG_JSON);
    ferry_info("a", "%s", lengthy);

    const char *line = capture.lines[0];

    assert_string_equal(line + strlen(line) - 11, "\\u0001...\"}");
}

static void say(int number)
{
    ferry_warn("a", "number %d", number);
}

static void test_log_repeats_are_counted_not_repeated(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        say(1);
    say(2);
    assert_int_equal(capture.count, 2);

    /* Just inside the window nothing is due; at its end the count comes first, then the message. */
    hand_clock.now_ns += 10 * FERRY_NS_PER_S - 1;
    say(1);
    assert_int_equal(capture.count, 2);
    hand_clock.now_ns += 1;
    say(1);
    assert_int_equal(capture.count, 4);
    assert_string_equal(message_of(capture.lines[2]), "warn a: number 1 (repeated 5 times)");
    assert_string_equal(message_of(capture.lines[3]), "warn a: number 1");

    /* The one that was not repeated leaves no line. */
    ferry_log_flush();
    assert_int_equal(capture.count, 4);
}

static void test_log_flush_prints_open_counts(void **state)
{
    (void)state;
    say(7);
    say(7);
    say(7);
    ferry_log_flush();
    assert_int_equal(capture.count, 2);
    assert_string_equal(message_of(capture.lines[1]), "warn a: number 7 (repeated 2 times)");
    say(7);
    assert_int_equal(capture.count, 3);
}

/* Due counts of one message come out when any other one is logged. */
static void test_log_any_message_settles_what_is_due(void **state)
{
    (void)state;
    say(1);
    say(1);
    hand_clock.now_ns += 11 * FERRY_NS_PER_S;
    say(2);
    assert_int_equal(capture.count, 3);
    assert_string_equal(message_of(capture.lines[1]), "warn a: number 1 (repeated 1 times)");
}

static void test_log_call_site_level_and_area_tell_messages_apart(void **state)
{
    (void)state;
    ferry_warn("a", "same");
    ferry_warn("b", "same");
    ferry_info("a", "same");
    ferry_warn("a", "%s", "same"); /* another call site */
    assert_int_equal(capture.count, 4);
}

/* More distinct messages than slots: counts of evicted ones are printed, none is lost. */
static void test_log_eviction_loses_no_count(void **state)
{
    size_t repeated = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        hand_clock.now_ns++;
        say(i);
        say(i);
    }
    ferry_log_flush();
    assert_int_equal(capture.count, 200);
    for (size_t i = 0; i < capture.count; i++)
        repeated += strstr(capture.lines[i], "(repeated 1 times)") != NULL;
    assert_int_equal(repeated, 100);
}

#define STRESS_THREADS  4
#define STRESS_MESSAGES 2000

static _Atomic uint64_t sunk_lines;
static _Atomic uint64_t sunk_repeats;

static void counting_sink(void *arg, enum ferry_log_level level, const char *line)
{
    const char *repeated = strstr(line, "(repeated ");
    unsigned long long count = 0;

    (void)arg;
    (void)level;
    if (repeated != NULL && sscanf(repeated, "(repeated %llu times)", &count) == 1)
        sunk_repeats += count;
    else
        sunk_lines++;
}

static void *stress(void *arg)
{
    (void)arg;
    for (int i = 0; i < STRESS_MESSAGES; i++)
        ferry_warn("stress", "number %d", i % 100);
    return NULL;
}

static void test_log_threads_lose_no_message(void **state)
{
    pthread_t threads[STRESS_THREADS];

    (void)state;
    ferry_log_set_sink(counting_sink, NULL);
    for (size_t i = 0; i < STRESS_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, stress, NULL), 0);
    for (size_t i = 0; i < STRESS_THREADS; i++)
        pthread_join(threads[i], NULL);
    ferry_log_flush();
    assert_int_equal(sunk_lines + sunk_repeats, STRESS_THREADS * STRESS_MESSAGES);
}

/* Standard error on the write end of a pipe; returns the old one. */
static int divert_stderr(int pipe_fds[2])
{
    int saved = dup(STDERR_FILENO);

    assert_true(saved >= 0);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
    close(pipe_fds[1]);
    return saved;
}

static void restore_stderr(int saved)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
}

static void test_log_writes_lines_to_standard_error(void **state)
{
    char text[512] = "";
    int fds[2];

    (void)state;
    ferry_log_set_sink(NULL, NULL);
    int saved = divert_stderr(fds);

    ferry_error("a", "to the pipe");
    restore_stderr(saved);

    ssize_t got = read(fds[0], text, sizeof(text) - 1);

    close(fds[0]);
    assert_true(got > 0);
    assert_string_equal(message_of(text), "error a: to the pipe\n");
}

/* The host program must not die because whoever read its standard error did. */
static void test_log_without_a_reader_raises_no_sigpipe(void **state)
{
    sigset_t pending;
    int fds[2];

    (void)state;
    ferry_log_set_sink(NULL, NULL);
    signal(SIGPIPE, SIG_DFL);
    int saved = divert_stderr(fds);

    close(fds[0]);
    ferry_error("a", "nobody listens");
    ferry_error("a", "still nobody");
    restore_stderr(saved);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    /* The lost lines are told once somebody listens. */
    ferry_log_set_sink(sink, &capture);
    ferry_error("a", "heard");
    assert_int_equal(capture.count, 2);
    assert_string_equal(message_of(capture.lines[0]), "warn log: log lines were lost: count=2");
}

/*
 * A line may be longer than the room that makes a pipe poll as writable, one page. Written at once
 * it held the logger's lock until somebody read.
 */
static void test_long_line_to_a_nearly_full_pipe_delays_nobody(void **state)
{
    char noise[1000];
    char page[4096];
    int fds[2];

    (void)state;
    memset(noise, 1, sizeof(noise) - 1);
    noise[sizeof(noise) - 1] = '\0';
    memset(page, 'x', sizeof(page));
    ferry_log_set_sink(NULL, NULL);
    ferry_log_set_format(FERRY_LOG_JSON);
    int saved = divert_stderr(fds);
    assert_true(fcntl(fds[0], F_SETPIPE_SZ, 2 * (int)sizeof(page)) >= 0);
    assert_int_equal(write(STDERR_FILENO, page, sizeof(page)), sizeof(page));

    alarm(30); /* it would hang */
    ferry_error("a", "%s", noise);
    alarm(0);

    restore_stderr(saved);
    close(fds[0]);
}

static void test_log_to_a_full_pipe_delays_nobody_for_long(void **state)
{
    char text[4096];
    int fds[2];

    (void)state;
    ferry_log_set_sink(NULL, NULL);
    int saved = divert_stderr(fds);
    uint64_t start_ns = ferry_now_ns(&ferry_clock_system);

    for (int i = 0; i < 3000; i++) /* far more than a pipe holds */
        ferry_error("a", "line number %d of many that nobody reads in time", i);

    uint64_t took_ns = ferry_now_ns(&ferry_clock_system) - start_ns;

    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    while (read(fds[0], text, sizeof(text)) > 0)
        continue;
    ferry_error("a", "read again");

    ssize_t got = read(fds[0], text, sizeof(text) - 1);

    restore_stderr(saved);
    close(fds[0]);
    assert_true(took_ns < 20 * FERRY_NS_PER_S); /* it would hang without the bound */
    assert_true(got > 0);
    text[got] = '\0';
    assert_non_null(strstr(text, "log lines were lost: count="));
    assert_non_null(strstr(text, "read again"));
}

static void nosy_sink(void *arg, enum ferry_log_level level, const char *line)
{
    (void)level;
    (void)line;
    (*(int *)arg)++;
    ferry_error("sink", "a sink must not log");
}

/* It is forbidden; it must not deadlock all the same. */
static void test_log_from_a_sink_is_dropped(void **state)
{
    int calls = 0;

    (void)state;
    ferry_log_set_sink(nosy_sink, &calls);
    ferry_error("a", "once");
    ferry_log_set_sink(sink, &capture);
    assert_int_equal(calls, 1);
}

int main(void)
{
#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        LOG_TEST(test_log_text_line_has_time_level_area_and_message),
        LOG_TEST(test_log_level_is_checked_before_arguments),
        LOG_TEST(test_log_json_is_valid_whatever_the_bytes_are),
        LOG_TEST(test_log_text_stays_on_one_line),
        LOG_TEST(test_log_long_messages_are_cut_and_say_so),
        LOG_TEST(test_log_repeats_are_counted_not_repeated),
        LOG_TEST(test_log_flush_prints_open_counts),
        LOG_TEST(test_log_any_message_settles_what_is_due),
        LOG_TEST(test_log_call_site_level_and_area_tell_messages_apart),
        LOG_TEST(test_log_eviction_loses_no_count),
        LOG_TEST(test_log_threads_lose_no_message),
        LOG_TEST(test_log_writes_lines_to_standard_error),
        LOG_TEST(test_log_without_a_reader_raises_no_sigpipe),
        LOG_TEST(test_long_line_to_a_nearly_full_pipe_delays_nobody),
        LOG_TEST(test_log_to_a_full_pipe_delays_nobody_for_long),
        LOG_TEST(test_log_from_a_sink_is_dropped),
    };
#undef LOG_TEST

    return cmocka_run_group_tests(tests, NULL, NULL);
}
