/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys, transcripts and proofs: key files good and bad, proofs against those of an independent
 * implementation (Python's hmac), and what must not pass for a proof.
 */
#include "access/access.h"

#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

#define KEY_A "8f14e45fceea167a5a36dedd4bea2543c9f0f895fb98ab9159f51fd0297e236d"
#define KEY_B "45c48cce2e2d7fbdea1afc51c7c6ad26eccbc87e4b5ce2fe28308fd9f2a7baf3"

struct rig {
    char path[64];
    struct ferry_auth *auth;
};

static int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    snprintf(rig->path, sizeof(rig->path), "/tmp/ferry-key-%d-XXXXXX", (int)getpid());
    close(mkstemp(rig->path));
    *state = rig;
    return 0;
}

static int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_auth_close(rig->auth);
    unlink(rig->path);
    free(rig);
    return 0;
}

static void write_key(struct rig *rig, const char *text, size_t len, mode_t mode)
{
    FILE *file;

    assert_int_equal(chmod(rig->path, 0600), 0);
    file = fopen(rig->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(rig->path, mode), 0);
}

static enum ferry_status open_key(struct rig *rig, const char *text)
{
    write_key(rig, text, strlen(text), 0600);
    ferry_auth_close(rig->auth);
    rig->auth = NULL;
    return ferry_auth_open(rig->path, &rig->auth);
}

static void assert_text_has(const char *part)
{
    if (strstr(ferry_last_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, ferry_last_error_text());
}

/* Run the same proof in Python; the hex digits that it prints. */
static void prove_in_python(const char *key_hex, const char *role, char *hex, size_t size)
{
    static const char program[] = "import hashlib,hmac,sys\n"
                                  "sha=lambda b: hashlib.sha256(b).digest()\n"
                                  "key,role=bytes.fromhex(sys.argv[1]),sys.argv[2].encode()\n"
                                  "t=sha(b'a purpose')\n"
                                  "for piece in (b'', b'one', bytes(range(256))*5):\n"
                                  "    t=sha(t+sha(piece))\n"
                                  "print(hmac.new(key,role+t,hashlib.sha256).hexdigest())\n";
    char command[1024];
    FILE *pipe;

    snprintf(command, sizeof(command), "python3 - %s '%s' <<'END'\n%sEND\n", key_hex, role,
             program);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(hex, (int)size, pipe));
    assert_int_equal(pclose(pipe), 0);
    hex[strcspn(hex, "\n")] = '\0';
}

static struct ferry_auth_transcript a_transcript(void)
{
    struct ferry_auth_transcript transcript;
    uint8_t bytes[5 * 256];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    ferry_auth_begin(&transcript, "a purpose");
    ferry_auth_add(&transcript, "", 0);
    ferry_auth_add(&transcript, "one", 3);
    ferry_auth_add(&transcript, bytes, sizeof(bytes));
    return transcript;
}

static void test_proofs_are_those_of_an_independent_implementation(void **state)
{
    static const char *const roles[] = {"ferry initiator", "ferry target"};
    struct ferry_auth_transcript transcript = a_transcript();
    struct rig *rig = *state;
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];
    char ours[2 * FERRY_AUTH_PROOF_SIZE + 1];
    char theirs[128];

    assert_ok(open_key(rig, KEY_A "\n" KEY_B));
    for (uint32_t key = 0; key < 2; key++) {
        for (int role = FERRY_AUTH_INITIATOR; role <= FERRY_AUTH_TARGET; role++) {
            prove_in_python(key == 0 ? KEY_A : KEY_B, roles[role], theirs, sizeof(theirs));
            assert_true(
                ferry_auth_prove(rig->auth, key, (enum ferry_auth_role)role, &transcript, proof));
            ferry_hex_encode(proof, sizeof(proof), ours);
            assert_string_equal(ours, theirs);
        }
    }
}

static void test_only_the_right_proof_passes(void **state)
{
    struct ferry_auth_transcript transcript = a_transcript();
    struct ferry_auth_transcript other = a_transcript();
    struct rig *rig = *state;
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];
    uint8_t wrong[FERRY_AUTH_PROOF_SIZE] = {0};
    uint32_t key = 99;

    assert_ok(open_key(rig, KEY_A));
    assert_true(ferry_auth_prove(rig->auth, 0, FERRY_AUTH_INITIATOR, &transcript, proof));
    assert_true(ferry_auth_check(rig->auth, FERRY_AUTH_INITIATOR, &transcript, proof, &key));
    assert_int_equal(key, 0);
    /* nothing, each bit, another role, another transcript, a failed one */
    assert_false(ferry_auth_check(rig->auth, FERRY_AUTH_INITIATOR, &transcript, wrong, &key));
    for (size_t bit = 0; bit < 8 * sizeof(proof); bit++) {
        memcpy(wrong, proof, sizeof(wrong));
        wrong[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(ferry_auth_check(rig->auth, FERRY_AUTH_INITIATOR, &transcript, wrong, &key));
    }
    assert_false(ferry_auth_check(rig->auth, FERRY_AUTH_TARGET, &transcript, proof, &key));
    ferry_auth_add(&other, "", 0);
    assert_false(ferry_auth_check(rig->auth, FERRY_AUTH_INITIATOR, &other, proof, &key));
    transcript.failed = true;
    assert_false(ferry_auth_check(rig->auth, FERRY_AUTH_INITIATOR, &transcript, proof, &key));
    assert_false(ferry_auth_prove(rig->auth, 0, FERRY_AUTH_INITIATOR, &transcript, proof));
}

/* To change a key in a running fleet, each file has the old and the new one for a while. */
static void test_every_key_of_the_file_is_accepted_and_named(void **state)
{
    struct ferry_auth_transcript transcript = a_transcript();
    struct rig *rig = *state;
    struct ferry_auth *fleet;
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];
    uint32_t key = 99;

    assert_ok(open_key(rig, "# the new one\n" KEY_B "\n\n# the old one\n\t" KEY_A " \r\n"));
    fleet = rig->auth;
    rig->auth = NULL;
    assert_ok(open_key(rig, KEY_A));
    assert_true(ferry_auth_prove(rig->auth, 0, FERRY_AUTH_INITIATOR, &transcript, proof));
    assert_true(ferry_auth_check(fleet, FERRY_AUTH_INITIATOR, &transcript, proof, &key));
    assert_int_equal(key, 1);
    /* Its answer uses that key. */
    assert_true(ferry_auth_prove(fleet, key, FERRY_AUTH_TARGET, &transcript, proof));
    assert_true(ferry_auth_check_one(rig->auth, 0, FERRY_AUTH_TARGET, &transcript, proof));
    assert_true(ferry_auth_prove(fleet, 0, FERRY_AUTH_TARGET, &transcript, proof));
    assert_false(ferry_auth_check_one(rig->auth, 0, FERRY_AUTH_TARGET, &transcript, proof));
    ferry_auth_close(fleet);
}

static void test_hex_and_base64_are_the_same_key(void **state)
{
    /* "echo KEY_A | xxd -r -p | base64" */
    static const char *const forms[] = {
        KEY_A,
        "8F14E45FCEEA167A5A36DEDD4BEA2543C9F0F895FB98AB9159F51FD0297E236D\n",
        "jxTkX87qFnpaNt7dS+olQ8nw+JX7mKuRWfUf0Cl+I20=\n",
    };
    struct ferry_auth_transcript transcript = a_transcript();
    struct rig *rig = *state;
    uint8_t first[FERRY_AUTH_PROOF_SIZE];
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];

    for (size_t i = 0; i < FERRY_ARRAY_LEN(forms); i++) {
        assert_ok(open_key(rig, forms[i]));
        assert_true(
            ferry_auth_prove(rig->auth, 0, FERRY_AUTH_TARGET, &transcript, i == 0 ? first : proof));
        if (i > 0)
            assert_memory_equal(first, proof, sizeof(proof));
    }
}

static void test_bad_key_files_are_refused_without_showing_them(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } files[] = {
        {"", "holds no key"},
        {"\n# only a comment\n", "holds no key"},
        {"8f14e45fceea167a5a36dedd4bea2543", "line 1: a key of less than 32 bytes"},
        {"\n\njxTkX87qFnpaNt7dS+olQw==", "line 3: a key of less than 32 bytes"},
        {KEY_A "\nsecret words that are no key", "line 2: no key"},
        {KEY_A "0", "line 1: no key"},
        {KEY_A "=", "line 1: no key"},
        {"jxTkX87qFnpaNt7dS+olQ8nw+JX7mKuRWfUf0Cl+I20", "line 1: no key"},
        {KEY_A "\n" KEY_A "\n" KEY_A "\n" KEY_A "\n" KEY_A, "line 5: more keys than four"},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < FERRY_ARRAY_LEN(files); i++) {
        assert_status(open_key(rig, files[i].text), FERRY_ERR_CONFIG);
        assert_text_has(files[i].says);
        assert_text_has(rig->path);
        assert_null(strstr(ferry_last_error_text(), "secret"));
        assert_null(strstr(ferry_last_error_text(), "8f14"));
        assert_null(strstr(ferry_last_error_text(), "jxTk"));
    }
    write_key(rig, KEY_A "\0more", 69, 0600);
    assert_status(ferry_auth_open(rig->path, &rig->auth), FERRY_ERR_CONFIG);
    assert_text_has("NUL");
}

static void test_sizes_at_their_edges(void **state)
{
    char text[2 * FERRY_AUTH_FILE_BYTES_MAX];
    struct rig *rig = *state;

    memset(text, 'a', sizeof(text));
    text[512] = '\0';
    assert_ok(open_key(rig, text));
    memcpy(text + 512, "aa", 3);
    assert_status(open_key(rig, text), FERRY_ERR_CONFIG);
    memset(text, '#', sizeof(text));
    memcpy(text + FERRY_AUTH_FILE_BYTES_MAX - 65, "\n" KEY_A, 66);
    assert_ok(open_key(rig, text));
    memset(text, '#', 80);
    memcpy(text + FERRY_AUTH_FILE_BYTES_MAX - 64, "\n" KEY_A, 66);
    assert_status(open_key(rig, text), FERRY_ERR_CONFIG);
    assert_text_has("longer than 4096 bytes");
}

static void test_a_file_that_others_can_use_is_refused_with_the_remedy(void **state)
{
    static const mode_t modes[] = {0640, 0620, 0610, 0604, 0602, 0601, 0644, 0666, 0777};
    struct rig *rig = *state;

    for (size_t i = 0; i < FERRY_ARRAY_LEN(modes); i++) {
        write_key(rig, KEY_A, 64, modes[i]);
        assert_status(ferry_auth_open(rig->path, &rig->auth), FERRY_ERR_CONFIG);
        assert_text_has("chmod 600");
    }
    write_key(rig, KEY_A, 64, 0400);
    assert_ok(ferry_auth_open(rig->path, &rig->auth));
}

static void test_what_is_no_file_is_refused_and_not_waited_for(void **state)
{
    struct rig *rig = *state;

    assert_status(ferry_auth_open("/tmp", &rig->auth), FERRY_ERR_CONFIG);
    assert_text_has("not a regular file");
    assert_int_equal(unlink(rig->path), 0);
    assert_int_equal(mkfifo(rig->path, 0600), 0);
    assert_status(ferry_auth_open(rig->path, &rig->auth), FERRY_ERR_CONFIG);
    assert_text_has("not a regular file");
    assert_int_equal(unlink(rig->path), 0);
    assert_status(ferry_auth_open(rig->path, &rig->auth), FERRY_ERR_CONFIG);
    assert_text_has("No such file");
    /* The key itself where its file's path belongs. */
    assert_status(ferry_auth_open(KEY_A, &rig->auth), FERRY_ERR_CONFIG);
    assert_null(strstr(ferry_last_error_text(), "8f14"));
    assert_text_has("looks like a key");
}

struct lines {
    int count;
    char last[1024];
};

static void keep_line(void *arg, enum ferry_log_level level, const char *line)
{
    struct lines *lines = arg;

    (void)level;
    lines->count++;
    snprintf(lines->last, sizeof(lines->last), "%s", line);
}

/* A flood is one line a minute and reason, and every one of it is counted. */
static void test_refusals_are_counted_and_logged_now_and_then(void **state)
{
    static struct ferry_refusals refusals;
    struct lines lines = {0};
    uint64_t now_ns = FERRY_REFUSALS_QUIET_NS * 5;

    (void)state;
    ferry_log_set_sink(keep_line, &lines);
    /* A clock that is a little behind the one that spoke is no later minute. */
    for (int i = 0; i < 1000; i++)
        ferry_refusal_note(&refusals, FERRY_REFUSAL_WRONG_KEY, now_ns - (uint64_t)i % 3, "hp_tcp",
                           "192.0.2.7:9", "");
    ferry_log_flush();
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.last, "auth_key_file"));
    assert_non_null(strstr(lines.last, "192.0.2.7:9"));
    ferry_refusal_note(&refusals, FERRY_REFUSAL_V1, now_ns, "hp_tcp", "192.0.2.8:9", "");
    ferry_log_flush();
    assert_int_equal(lines.count, 2);
    ferry_refusal_note(&refusals, FERRY_REFUSAL_WRONG_KEY, now_ns + FERRY_REFUSALS_QUIET_NS,
                       "hp_tcp", "192.0.2.9:9", "why");
    ferry_log_flush();
    ferry_log_set_sink(NULL, NULL);
    assert_int_equal(lines.count, 3);
    assert_non_null(strstr(lines.last, "unlogged=999"));
    assert_int_equal(atomic_load(&refusals.counts[FERRY_REFUSAL_WRONG_KEY]), 1001);
    assert_int_equal(atomic_load(&refusals.counts[FERRY_REFUSAL_V1]), 1);
}

int main(void)
{
#define RIG(test) cmocka_unit_test_setup_teardown(test, rig_up, rig_down)
    const struct CMUnitTest tests[] = {
        RIG(test_proofs_are_those_of_an_independent_implementation),
        RIG(test_only_the_right_proof_passes),
        RIG(test_every_key_of_the_file_is_accepted_and_named),
        RIG(test_hex_and_base64_are_the_same_key),
        RIG(test_bad_key_files_are_refused_without_showing_them),
        RIG(test_sizes_at_their_edges),
        RIG(test_a_file_that_others_can_use_is_refused_with_the_remedy),
        RIG(test_what_is_no_file_is_refused_and_not_waited_for),
        cmocka_unit_test(test_refusals_are_counted_and_logged_now_and_then),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
