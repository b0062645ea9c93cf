/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of a file segment: what scripts of the reference write is read, what is wrong is
 * refused by name, unknown members survive, and which path is this host's.
 */
#include "metadata/file_document.h"

#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "metadata/host_names.h"

/* As Python's json module writes it. */
static const char script[] =
    "{\"server_name\": \"node1\", \"protocol\": \"nvmeof\", \"buffers\": [{\"length\": 4096, "
    "\"file_path\": \"/mnt/a/one\", \"local_path_map\": {\"node1\": \"/mnt/a/one\"}}, {\"length\": "
    "1000, \"file_path\": \"/mnt/b/t\\u00fcr \\\"x\\\"\", \"local_path_map\": {\"node1\": "
    "\"/mnt/b/t\\u00fcr \\\"x\\\"\", \"node2\": \"/n/two\"}}]}";

static struct ferry_file_document *parse(const char *text)
{
    struct ferry_file_document *doc = NULL;

    assert_ok(ferry_file_document_parse(text, strlen(text), &doc));
    return doc;
}

static char *print(const struct ferry_file_document *doc)
{
    char *text = NULL;
    size_t len = 0;

    assert_ok(ferry_file_document_print(doc, &text, &len));
    assert_int_equal(strlen(text), len);
    return text;
}

static struct ferry_host_names names(const char *list)
{
    struct ferry_host_names host;

    assert_ok(ferry_host_names_parse(list, &host));
    return host;
}

static void test_what_the_scripts_write_is_read(void **state)
{
    struct ferry_file_document *doc = parse(script);

    (void)state;
    assert_string_equal(doc->server_name, "node1");
    assert_int_equal(doc->file_count, 2);
    assert_int_equal(doc->length, 5096);
    assert_int_equal(doc->files[0].start, 0);
    assert_int_equal(doc->files[1].start, 4096);
    assert_int_equal(doc->files[1].length, 1000);
    assert_int_equal(doc->files[1].file_offset, 0);
    assert_string_equal(doc->files[1].file_path, "/mnt/b/t\xc3\xbcr \"x\"");
    assert_int_equal(doc->files[1].place_count, 2);
    assert_string_equal(doc->files[1].places[1].host, "node2");
    assert_string_equal(doc->files[1].places[1].path, "/n/two");
    assert_true(doc->revision != 0);
    ferry_file_document_destroy(doc);
}

static void test_it_is_written_as_the_scripts_write_it(void **state)
{
    struct ferry_file_document *doc = NULL;
    uint32_t index;
    char *text;

    (void)state;
    assert_ok(ferry_file_document_create("node1", &doc));
    assert_ok(ferry_file_document_add(doc, "/mnt/a/one", 4096, &index));
    assert_ok(ferry_file_document_place(doc, index, "node1", "/mnt/a/one"));
    text = print(doc);
    assert_string_equal(text, "{\"server_name\":\"node1\",\"protocol\":\"nvmeof\",\"buffers\":[{"
                              "\"length\":4096,\"file_path\":\"/mnt/a/one\",\"local_path_map\":{"
                              "\"node1\":\"/mnt/a/one\"}}]}");
    free(text);
    ferry_file_document_destroy(doc);
}

static void test_both_spellings_of_the_name_are_read(void **state)
{
    struct ferry_file_document *doc = parse(
        "{\"name\":\"seven\",\"protocol\":\"nvmeof\",\"buffers\":[{\"length\":1,\"file_path\":"
        "\"/x\",\"local_path_map\":{}}]}");
    char *text = print(doc);

    (void)state;
    assert_string_equal(doc->server_name, "seven");
    assert_non_null(strstr(text, "\"name\":\"seven\""));
    assert_null(strstr(text, "server_name"));
    free(text);
    ferry_file_document_destroy(doc);
}

static void test_unknown_members_survive_a_change(void **state)
{
    struct ferry_file_document *doc = parse(
        "{\"later\":[1,2.50,null,18446744073709551615],\"protocol\":\"nvmeof\",\"server_name\":"
        "\"a\",\"buffers\":[{\"length\":7,\"offset\":512,\"file_path\":\"/x\",\"n\":null,"
        "\"local_path_map\":{\"a\":\"/x\"},\"note\":{\"k\":\"v\"}}],\"timestamp\":\"t\"}");
    char *text;

    (void)state;
    assert_int_equal(doc->files[0].file_offset, 512);
    assert_ok(ferry_file_document_place(doc, 0, "b", "/y"));
    text = print(doc);
    assert_string_equal(text,
                        "{\"server_name\":\"a\",\"protocol\":\"nvmeof\",\"buffers\":[{\"length\":7,"
                        "\"file_path\":\"/x\",\"local_path_map\":{\"a\":\"/x\",\"b\":\"/y\"},"
                        "\"offset\":512,\"n\":null,\"note\":{\"k\":\"v\"}}],"
                        "\"later\":[1,2.50,null,18446744073709551615],\"timestamp\":\"t\"}");
    free(text);
    ferry_file_document_destroy(doc);
}

#define PIECE        "\"file_path\":\"/x\",\"local_path_map\":{}"
#define DOC(buffers) "{\"server_name\":\"a\",\"protocol\":\"nvmeof\",\"buffers\":" buffers "}"

static void test_what_is_wrong_is_refused_by_name(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"", "line 1"},
        {"[]", "expected an object"},
        {"{\"server_name\":\"a\",\"buffers\":[]}", "protocol"},
        {"{\"protocol\":\"tcp\",\"buffers\":[]}", "expected \"nvmeof\", found \"tcp\""},
        {"{\"protocol\":\"nvmeof\",\"server_name\":7,\"buffers\":[]}", "server_name"},
        {"{\"protocol\":\"nvmeof\",\"name\":[],\"buffers\":[]}", "name"},
        {"{\"protocol\":\"nvmeof\"}", "buffers"},
        {DOC("[]"), "no file"},
        {DOC("{}"), "buffers"},
        {DOC("[7]"), "buffers[0]"},
        {DOC("[{" PIECE "}]"), "buffers[0].length"},
        {DOC("[{\"length\":-1," PIECE "}]"), "found -1"},
        {DOC("[{\"length\":\"1\"," PIECE "}]"), "buffers[0].length"},
        {DOC("[{\"length\":1.0," PIECE "}]"), "buffers[0].length"},
        {DOC("[{\"length\":9223372036854775808," PIECE "}]"), "found 9223372036854775808"},
        {DOC("[{\"length\":99999999999999999999," PIECE "}]"), "99999999999999999999"},
        {DOC("[{\"length\":9223372036854775807," PIECE "},{\"length\":1," PIECE "}]"),
         "buffers[1]: the lengths"},
        {DOC("[{\"length\":9223372036854775807,\"offset\":1," PIECE "}]"), "offset 1"},
        {DOC("[{\"length\":1,\"offset\":-1," PIECE "}]"), "buffers[0].offset"},
        {DOC("[{\"length\":1,\"file_path\":\"\",\"local_path_map\":{}}]"), "file_path is empty"},
        {DOC("[{\"length\":1,\"file_path\":null,\"local_path_map\":{}}]"), "file_path"},
        {DOC("[{\"length\":1,\"file_path\":\"/x\"}]"), "local_path_map"},
        {DOC("[{\"length\":1,\"file_path\":\"/x\",\"local_path_map\":{\"h\":7}}]"),
         "buffers[0].local_path_map.h"},
        {DOC("[{\"length\":1,\"file_path\":\"/x\",\"local_path_map\":{\"\":\"/x\"}}]"),
         "no name of a host"},
        {DOC("[{\"length\":1,\"length\":2," PIECE "}]"), "twice"},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(cases); i++) {
        struct ferry_file_document *doc = NULL;
        const char *text = cases[i].text;

        assert_status(ferry_file_document_parse(text, strlen(text), &doc), FERRY_ERR_METADATA);
        assert_null(doc);
        if (strstr(ferry_last_error_text(), cases[i].says) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", text, ferry_last_error_text(),
                     cases[i].says);
    }
}

static void test_a_cut_document_is_refused_at_every_length(void **state)
{
    (void)state;
    for (size_t len = 0; len < sizeof(script) - 1; len++) {
        struct ferry_file_document *doc;

        assert_status(ferry_file_document_parse(script, len, &doc), FERRY_ERR_METADATA);
    }
}

static void test_a_document_that_is_too_long_is_refused(void **state)
{
    size_t len = FERRY_FILE_DOCUMENT_TEXT_MAX + 1;
    char *text = malloc(len);
    struct ferry_file_document *doc;

    (void)state;
    assert_non_null(text);
    memset(text, ' ', len);
    memcpy(text, script, sizeof(script) - 1);
    assert_ok(ferry_file_document_parse(text, len - 1, &doc));
    ferry_file_document_destroy(doc);
    assert_status(ferry_file_document_parse(text, len, &doc), FERRY_ERR_TOO_LARGE);
    free(text);
}

static void test_the_path_is_found_by_any_name_of_the_host(void **state)
{
    struct ferry_file_document *doc = parse(script);
    struct ferry_host_names host = names("node2:1234");
    const char *path = NULL;

    (void)state;
    assert_string_equal(ferry_file_document_path(doc, 1, &host), "/n/two");
    assert_null(ferry_file_document_path(doc, 0, &host));
    host = names("other,node2");
    assert_string_equal(ferry_file_document_path(doc, 1, &host), "/n/two");
    assert_ok(ferry_file_document_place(doc, 1, "node2:1234", "/exact"));
    host = names("node2:1234");
    assert_ok(ferry_file_document_resolve(doc, 1, &host, "seg", &path));
    assert_string_equal(path, "/exact");
    ferry_file_document_destroy(doc);
}

static void test_a_host_without_a_path_is_told_who_has_one(void **state)
{
    struct ferry_file_document *doc = parse(script);
    struct ferry_host_names host = names("node9");
    const char *path = NULL;

    (void)state;
    assert_status(ferry_file_document_resolve(doc, 1, &host, "seg", &path), FERRY_ERR_NOT_MAPPED);
    assert_null(path);
    assert_string_equal(ferry_last_error_text(),
                        "segment seg, file 1: host node9 is not in its path map, which has node1, "
                        "node2; registered as /mnt/b/t\xc3\xbcr \"x\"; ferry segment map adds this "
                        "host");
    ferry_file_document_destroy(doc);
}

/* The path at registration is the registering host's, and nobody else's. */
static void test_the_registered_path_is_only_its_own_hosts(void **state)
{
    struct ferry_file_document *doc = parse(script);
    struct ferry_host_names host = names("node1");

    (void)state;
    assert_true(ferry_file_document_displace(doc, 0, "node1"));
    assert_false(ferry_file_document_displace(doc, 0, "node1"));
    assert_string_equal(ferry_file_document_path(doc, 0, &host), "/mnt/a/one");
    host = names("node2");
    assert_null(ferry_file_document_path(doc, 0, &host));
    ferry_file_document_destroy(doc);
}

static void test_a_relative_path_is_read_and_not_used(void **state)
{
    struct ferry_file_document *doc = parse(
        DOC("[{\"length\":1,\"file_path\":\"x\",\"local_path_map\":{\"a\":\"x\",\"b\":\"\"}}]"));
    struct ferry_host_names host = names("a");
    const char *path = NULL;

    (void)state;
    assert_string_equal(ferry_file_document_path(doc, 0, &host), "x");
    assert_status(ferry_file_document_resolve(doc, 0, &host, "s", &path), FERRY_ERR_METADATA);
    host = names("b");
    assert_status(ferry_file_document_resolve(doc, 0, &host, "s", &path), FERRY_ERR_METADATA);
    assert_status(ferry_file_document_place(doc, 0, "c", "relative"), FERRY_ERR_INVALID);
    assert_status(ferry_file_document_place(doc, 0, "c", "/\xff"), FERRY_ERR_INVALID);
    assert_status(ferry_file_document_place(doc, 0, "c,d", "/x"), FERRY_ERR_INVALID);
    assert_status(ferry_file_document_place(doc, 0, "", "/x"), FERRY_ERR_INVALID);
    ferry_file_document_destroy(doc);
}

static void test_every_offset_is_found_in_its_piece(void **state)
{
    static const uint64_t lengths[] = {0, 3, 0, 0, 1, 5, 0, 2, 0};
    struct ferry_file_document *doc = NULL;
    uint64_t offset = 0;
    uint32_t index;

    (void)state;
    assert_ok(ferry_file_document_create("a", &doc));
    for (uint32_t i = 0; i < FERRY_ARRAY_LEN(lengths); i++) {
        assert_ok(ferry_file_document_add(doc, "/x", lengths[i], &index));
        assert_int_equal(index, i);
    }
    for (uint32_t i = 0; i < FERRY_ARRAY_LEN(lengths); i++) {
        for (uint64_t k = 0; k < lengths[i]; k++)
            assert_int_equal(ferry_file_document_at(doc, offset++), i);
    }
    assert_int_equal(offset, doc->length);
    assert_ok(ferry_file_document_resize(doc, 1, 30));
    assert_int_equal(doc->length, 38);
    assert_int_equal(doc->files[5].start, 31);
    assert_int_equal(ferry_file_document_at(doc, 30), 4);
    assert_status(ferry_file_document_resize(doc, 1, FERRY_FILE_LENGTH_MAX), FERRY_ERR_TOO_LARGE);
    assert_status(ferry_file_document_add(doc, "/x", FERRY_FILE_LENGTH_MAX - 37, &index),
                  FERRY_ERR_TOO_LARGE);
    ferry_file_document_destroy(doc);
}

static void test_many_hosts_come_and_go(void **state)
{
    struct ferry_file_document *doc = NULL;
    struct ferry_file_document *again;
    char host[16];
    char path[16];
    uint32_t index;
    char *text;

    (void)state;
    assert_ok(ferry_file_document_create("a", &doc));
    assert_ok(ferry_file_document_add(doc, "/x", 1, &index));
    for (int i = 0; i < FERRY_FILE_DOCUMENT_HOSTS_MAX; i++) {
        snprintf(host, sizeof(host), "h%d", i);
        snprintf(path, sizeof(path), "/%d", i);
        assert_ok(ferry_file_document_place(doc, 0, host, path));
        /* Some leave at once, so that the list shrinks and grows across every size. */
        if (i % 3 == 0) {
            assert_true(ferry_file_document_displace(doc, 0, host));
            assert_ok(ferry_file_document_place(doc, 0, host, path));
        }
    }
    assert_status(ferry_file_document_place(doc, 0, "one-more", "/x"), FERRY_ERR_TOO_LARGE);
    text = print(doc);
    again = parse(text);
    free(text);
    for (int i = FERRY_FILE_DOCUMENT_HOSTS_MAX - 1; i >= 0; i--) {
        snprintf(host, sizeof(host), "h%d", i);
        snprintf(path, sizeof(path), "/%d", i);
        assert_string_equal(again->files[0].places[i].path, path);
        assert_true(ferry_file_document_displace(doc, 0, host));
    }
    assert_ok(ferry_file_document_place(doc, 0, "last", "/l"));
    assert_int_equal(doc->files[0].place_count, 1);
    ferry_file_document_destroy(again);
    ferry_file_document_destroy(doc);
}

static void test_the_revision_changes_with_the_text(void **state)
{
    struct ferry_file_document *one = parse(script);
    struct ferry_file_document *same = parse(script);
    char *text;
    struct ferry_file_document *other;

    (void)state;
    assert_ok(ferry_file_document_resize(one, 0, 4097));
    text = print(one);
    other = parse(text);
    free(text);
    assert_int_equal(one->revision, same->revision);
    assert_int_not_equal(other->revision, same->revision);
    ferry_file_document_destroy(one);
    ferry_file_document_destroy(same);
    ferry_file_document_destroy(other);
}

static void test_names_of_a_host(void **state)
{
    struct ferry_host_names host = names("a:1,b,[::1]:7,fe80::1,a");
    char system_name[256] = "";
    char wide[FERRY_FILE_HOST_MAX + 2];

    (void)state;
    assert_int_equal(host.count, 6);
    assert_string_equal(ferry_host_names_first(&host), "a:1");
    assert_string_equal(host.names[1], "a");
    assert_string_equal(host.names[2], "b");
    assert_string_equal(host.names[3], "[::1]:7");
    assert_string_equal(host.names[4], "[::1]");
    assert_string_equal(host.names[5], "fe80::1");
    assert_true(ferry_host_names_has(&host, "b"));
    assert_false(ferry_host_names_has(&host, "c"));
    assert_int_equal(gethostname(system_name, sizeof(system_name) - 1), 0);
    host = names("");
    assert_string_equal(ferry_host_names_first(&host), system_name);
    memset(wide, 'w', sizeof(wide) - 1);
    wide[sizeof(wide) - 1] = '\0';
    assert_status(ferry_host_names_parse(wide, &host), FERRY_ERR_CONFIG);
    assert_status(ferry_host_names_parse("a,,b", &host), FERRY_ERR_CONFIG);
    assert_status(ferry_host_names_parse("a,", &host), FERRY_ERR_CONFIG);
    assert_status(ferry_host_names_parse("a\tb", &host), FERRY_ERR_CONFIG);
    assert_status(ferry_host_names_parse("1,2,3,4,5,6,7,8,9", &host), FERRY_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_scripts_write_is_read),
        cmocka_unit_test(test_it_is_written_as_the_scripts_write_it),
        cmocka_unit_test(test_both_spellings_of_the_name_are_read),
        cmocka_unit_test(test_unknown_members_survive_a_change),
        cmocka_unit_test(test_what_is_wrong_is_refused_by_name),
        cmocka_unit_test(test_a_cut_document_is_refused_at_every_length),
        cmocka_unit_test(test_a_document_that_is_too_long_is_refused),
        cmocka_unit_test(test_the_path_is_found_by_any_name_of_the_host),
        cmocka_unit_test(test_a_host_without_a_path_is_told_who_has_one),
        cmocka_unit_test(test_the_registered_path_is_only_its_own_hosts),
        cmocka_unit_test(test_a_relative_path_is_read_and_not_used),
        cmocka_unit_test(test_every_offset_is_found_in_its_piece),
        cmocka_unit_test(test_many_hosts_come_and_go),
        cmocka_unit_test(test_the_revision_changes_with_the_text),
        cmocka_unit_test(test_names_of_a_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
