/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment document: what is read, what is refused and by which name, what is kept, and that it
 * reads back as it was written.
 */
#include "metadata/document.h"

#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

/* Everything that a published document can have, in the reference's shape. */
static const char full[] =
    "{\"name\":\"10.0.0.7:15428\",\"type\":\"memory\",\"machine_id\":\"b0a1:77\","
    "\"rpc_server_addr\":\"10.0.0.7:15428\",\"rdma_server_name\":\"10.0.1.7:15428\","
    "\"later\":{\"a\":[1,2.50,null]},"
    "\"detail\":{\"buffers\":["
    "{\"addr\":140737488355328,\"length\":4096,\"location\":\"cpu:0\",\"transports\":[1,13],"
    "\"regions\":[{\"size\":2048,\"location\":\"cpu:0\"},{\"size\":2048,\"location\":\"cpu:1\"}],"
    "\"transport_attrs\":[[13,\"{\\\"registration_id\\\":18446744073709551615}\"],[1,\"\"]],"
    "\"rkey\":[4294967295,0],\"shm_path\":\"/x\",\"mnnvl_handle\":\"h\",\"internal\":true,"
    "\"extra\":\"kept\"},"
    "{\"addr\":4096,\"length\":1048576,\"location\":\"*\",\"transports\":[13],"
    "\"regions\":[{\"size\":1048576,\"location\":\"*\"}],\"transport_attrs\":[[13,\"{}\"]],"
    "\"rkey\":[],\"shm_path\":\"\",\"mnnvl_handle\":\"\",\"internal\":false}],"
    "\"device_attrs\":{\"mlx5_0\":\"{}\"},"
    "\"devices\":[{\"name\":\"mlx5_0\",\"lid\":65535,\"gid\":\"fe80::1\","
    "\"transport_attrs\":[[1,\"x\"]]}],"
    "\"topology\":\"{\\\"nics\\\":[],\\\"mems\\\":[]}\","
    "\"transport_attrs\":[[13,\"{\\\"protocol\\\":\\\"tent_hp_tcp\\\"}\"]],\"detail_later\":[]},"
    "\"ferry\":{\"version\":\"0.1.0\",\"features\":[\"x\"]}}";

static struct ferry_document *parse(const char *text)
{
    struct ferry_document *doc = NULL;

    assert_ok(ferry_document_parse(text, strlen(text), &doc));
    return doc;
}

static char *print(const struct ferry_document *doc)
{
    char *text = NULL;
    size_t len = 0;

    assert_ok(ferry_document_print(doc, &text, &len));
    assert_int_equal(strlen(text), len);
    return text;
}

static void test_a_full_document_is_read(void **state)
{
    struct ferry_document *doc = parse(full);

    (void)state;
    assert_string_equal(doc->name, "10.0.0.7:15428");
    assert_string_equal(doc->machine_id, "b0a1:77");
    assert_string_equal(doc->rpc_server_addr, "10.0.0.7:15428");
    assert_string_equal(doc->ferry_version, "0.1.0");
    assert_int_equal(doc->buffer_count, 2);
    assert_int_equal(doc->buffers[0].addr, 4096);
    assert_int_equal(doc->buffers[0].length, 1048576);
    assert_string_equal(doc->buffers[0].location, "*");
    assert_null(doc->buffers[0].kept);
    assert_int_equal(doc->buffers[1].addr, 140737488355328);
    assert_string_equal(ferry_document_buffer_attr(&doc->buffers[1], 13),
                        "{\"registration_id\":18446744073709551615}");
    assert_string_equal(ferry_document_buffer_attr(&doc->buffers[1], 1), "");
    assert_null(ferry_document_buffer_attr(&doc->buffers[1], 7));
    assert_string_equal(ferry_document_attr(doc, 13), "{\"protocol\":\"tent_hp_tcp\"}");
    assert_null(ferry_document_attr(doc, 12));
    ferry_document_destroy(doc);
}

/* Compare as JSON: members in any order, buffers sorted by address. */
static void assert_same_json(const char *a, const char *b)
{
    struct json_object *left = json_tokener_parse(a);
    struct json_object *right = json_tokener_parse(b);

    assert_non_null(left);
    assert_non_null(right);
    if (!json_object_equal(left, right))
        fail_msg("differ:\n%s\n%s", a, b);
    json_object_put(left);
    json_object_put(right);
}

static void test_everything_is_kept_on_rewrite(void **state)
{
    struct json_object *tree = json_tokener_parse(full);
    struct json_object *detail;
    struct json_object *buffers;
    struct ferry_document *doc = parse(full);
    char *text = print(doc);
    struct ferry_document *again = parse(text);
    char *second = print(again);

    (void)state;
    /* The input's two buffers are out of order; that is all that may change. */
    json_object_object_get_ex(tree, "detail", &detail);
    json_object_object_get_ex(detail, "buffers", &buffers);
    struct json_object *first = json_object_get(json_object_array_get_idx(buffers, 0));

    json_object_array_put_idx(buffers, 0, json_object_get(json_object_array_get_idx(buffers, 1)));
    json_object_array_put_idx(buffers, 1, first);
    assert_same_json(json_object_to_json_string(tree), text);
    assert_string_equal(text, second);
    assert_non_null(strstr(text, "2.50"));
    json_object_put(tree);
    free(text);
    free(second);
    ferry_document_destroy(doc);
    ferry_document_destroy(again);
}

static char *copy(const char *text)
{
    char *result = strdup(text);

    assert_non_null(result);
    return result;
}

static struct ferry_document *make(void)
{
    struct ferry_document *doc = NULL;

    assert_ok(ferry_document_create(&doc));
    doc->name = copy("seg \"a\"");
    doc->machine_id = copy("m");
    doc->rpc_server_addr = copy("[::1]:15428");
    doc->ferry_version = copy("0.1.0");
    return doc;
}

static void test_our_own_document_has_the_published_shape(void **state)
{
    struct ferry_document *doc = make();
    uint32_t index;
    char *text;

    (void)state;
    assert_ok(ferry_document_add_attr(doc, 13, copy("{\"version\":1}")));
    assert_ok(ferry_document_add_buffer(doc, UINT64_MAX - 4096, 4096, "cpu:1", &index));
    assert_ok(ferry_document_add_buffer(doc, 65536, 512, "*", &index));
    assert_ok(ferry_document_add_buffer_attr(doc, index, 13, copy("{}")));
    ferry_document_sort(doc);
    text = print(doc);
    assert_string_equal(
        text,
        "{\"name\":\"seg \\\"a\\\"\",\"type\":\"memory\",\"machine_id\":\"m\","
        "\"rpc_server_addr\":\"[::1]:15428\",\"detail\":{\"buffers\":["
        "{\"addr\":65536,\"length\":512,\"location\":\"*\",\"transports\":[13],"
        "\"regions\":[{\"size\":512,\"location\":\"*\"}],\"transport_attrs\":[[13,\"{}\"]],"
        "\"rkey\":[],\"shm_path\":\"\",\"mnnvl_handle\":\"\",\"internal\":false},"
        "{\"addr\":18446744073709547519,\"length\":4096,\"location\":\"cpu:1\",\"transports\":[],"
        "\"regions\":[{\"size\":4096,\"location\":\"cpu:1\"}],\"transport_attrs\":[],"
        "\"rkey\":[],\"shm_path\":\"\",\"mnnvl_handle\":\"\",\"internal\":false}],"
        "\"device_attrs\":{},\"devices\":[],\"transport_attrs\":[[13,\"{\\\"version\\\":1}\"]]},"
        "\"ferry\":{\"version\":\"0.1.0\"}}");

    struct ferry_document *again = parse(text);

    assert_int_equal(again->buffers[1].addr, UINT64_MAX - 4096);
    assert_null(again->kept);
    assert_null(again->buffers[0].kept);
    ferry_document_destroy(again);
    ferry_document_destroy(doc);
    free(text);
}

/*
 * A transport of ferry's alone is in the members "ferry" and nowhere else, where a reader of the
 * published form does not look; what a later ferry says beside it is kept.
 */
static void test_attributes_of_our_own_are_out_of_other_readers_way(void **state)
{
    const int32_t own = FERRY_DOCUMENT_OWN_ID_MIN + 1;
    struct ferry_document *doc = make();
    struct ferry_document *again;
    uint32_t index;
    char *text;
    char *later;
    char *at;

    (void)state;
    assert_ok(ferry_document_add_attr(doc, own, copy("{\"a\":1}")));
    assert_ok(ferry_document_add_attr(doc, 13, copy("{}")));
    assert_ok(ferry_document_add_buffer(doc, 65536, 512, "*", &index));
    assert_ok(ferry_document_add_buffer_attr(doc, index, own, copy("{\"b\":2}")));
    assert_ok(ferry_document_add_buffer_attr(doc, index, 13, copy("{}")));
    text = print(doc);
    assert_non_null(strstr(text, "\"transports\":[13],"));
    assert_non_null(strstr(text, "\"transport_attrs\":[[13,\"{}\"]],\"ferry\":{"
                                 "\"transport_attrs\":[[16777217,\"{\\\"b\\\":2}\"]]}"));
    assert_non_null(strstr(text, "\"ferry\":{\"version\":\"0.1.0\","
                                 "\"transport_attrs\":[[16777217,\"{\\\"a\\\":1}\"]]}}"));
    ferry_document_destroy(doc);
    doc = parse(text);
    assert_string_equal(ferry_document_attr(doc, own), "{\"a\":1}");
    assert_string_equal(ferry_document_buffer_attr(&doc->buffers[0], own), "{\"b\":2}");
    assert_null(doc->kept);
    assert_null(doc->buffers[0].kept);
    ferry_document_destroy(doc);

    /* A number of the published list has no business there. */
    at = strstr(text, "16777217");
    assert_non_null(at);
    memcpy(at, "      13", 8);
    assert_status(ferry_document_parse(text, strlen(text), &doc), FERRY_ERR_METADATA);
    memcpy(at, "16777217", 8);

    at = strstr(text, "\"ferry\":{\"transport_attrs\"");
    assert_non_null(at);
    assert_true(asprintf(&later, "%.*s\"ferry\":{\"next\":[7],%s", (int)(at - text), text,
                         at + strlen("\"ferry\":{")) > 0);
    free(text);
    doc = parse(later);
    text = print(doc);
    assert_non_null(strstr(text, "]],\"next\":[7]}"));
    again = parse(text);
    assert_string_equal(ferry_document_buffer_attr(&again->buffers[0], own), "{\"b\":2}");
    ferry_document_destroy(again);
    ferry_document_destroy(doc);
    free(later);
    free(text);
}

static void test_an_empty_segment_reads_back(void **state)
{
    struct ferry_document *doc = make();
    char *text = print(doc);
    struct ferry_document *again = parse(text);

    (void)state;
    assert_int_equal(again->buffer_count, 0);
    assert_int_equal(again->attr_count, 0);
    ferry_document_destroy(again);
    ferry_document_destroy(doc);
    ferry_document_destroy(NULL);
    free(text);
}

/* The value at "a.b.0.c" of a tree: its container and the last step. */
static struct json_object *container_of(struct json_object *tree, const char *path,
                                        const char **last_out)
{
    char step[64];

    for (;;) {
        const char *dot = strchr(path, '.');

        if (dot == NULL) {
            *last_out = path;
            return tree;
        }
        snprintf(step, sizeof(step), "%.*s", (int)(dot - path), path);
        if (json_object_is_type(tree, json_type_array))
            tree = json_object_array_get_idx(tree, strtoul(step, NULL, 10));
        else
            json_object_object_get_ex(tree, step, &tree);
        assert_non_null(tree);
        path = dot + 1;
    }
}

/* The full document with the value at @path replaced by JSON text, or removed. */
static char *with(const char *path, const char *json)
{
    struct json_object *tree = json_tokener_parse(full);
    const char *last;
    struct json_object *container = container_of(tree, path, &last);
    struct json_object *value = json != NULL ? json_tokener_parse(json) : NULL;
    char *text;

    if (json_object_is_type(container, json_type_array))
        json_object_array_put_idx(container, strtoul(last, NULL, 10), value);
    else if (json == NULL)
        json_object_object_del(container, last);
    else
        json_object_object_add(container, last, value);
    text = copy(json_object_to_json_string(tree));
    json_object_put(tree);
    return text;
}

static void expect_refused(const char *text, enum ferry_status status, const char *part)
{
    struct ferry_document *doc = NULL;

    assert_status(ferry_document_parse(text, strlen(text), &doc), status);
    assert_null(doc);
    if (strstr(ferry_last_error_text(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", ferry_last_error_text(), part);
}

static void expect_refused_with(const char *path, const char *json, const char *part)
{
    char *text = with(path, json);

    expect_refused(text, FERRY_ERR_METADATA, part);
    free(text);
}

static void test_every_required_key_is_required(void **state)
{
    static const struct {
        const char *path;
        const char *part;
    } cases[] = {
        {"name", "name: missing"},
        {"type", "type: missing"},
        {"machine_id", "machine_id: missing"},
        {"rpc_server_addr", "rpc_server_addr: missing"},
        {"detail", "detail: missing"},
        {"detail.device_attrs", "detail.device_attrs: missing"},
        {"detail.buffers", "detail.buffers: missing"},
        {"detail.devices", "detail.devices: missing"},
        {"detail.buffers.1.addr", "detail.buffers[1].addr: missing"},
        {"detail.buffers.1.length", "detail.buffers[1].length: missing"},
        {"detail.buffers.1.location", "detail.buffers[1].location: missing"},
        {"detail.buffers.1.transports", "detail.buffers[1].transports: missing"},
        {"detail.buffers.1.regions", "detail.buffers[1].regions: missing"},
        {"detail.buffers.1.transport_attrs", "detail.buffers[1].transport_attrs: missing"},
        {"detail.buffers.1.rkey", "detail.buffers[1].rkey: missing"},
        {"detail.buffers.1.shm_path", "detail.buffers[1].shm_path: missing"},
        {"detail.buffers.1.mnnvl_handle", "detail.buffers[1].mnnvl_handle: missing"},
        {"detail.buffers.1.internal", "detail.buffers[1].internal: missing"},
        {"detail.buffers.0.regions.1.size", "detail.buffers[0].regions[1].size: missing"},
        {"detail.buffers.0.regions.1.location", "detail.buffers[0].regions[1].location: missing"},
        {"detail.devices.0.name", "detail.devices[0].name: missing"},
        {"detail.devices.0.lid", "detail.devices[0].lid: missing"},
        {"detail.devices.0.gid", "detail.devices[0].gid: missing"},
        {"detail.devices.0.transport_attrs", "detail.devices[0].transport_attrs: missing"},
        {"ferry.version", "ferry.version: missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused_with(cases[i].path, NULL, cases[i].part);
}

static void test_optional_keys_may_be_absent(void **state)
{
    static const char *const paths[] = {"rdma_server_name", "detail.topology",
                                        "detail.transport_attrs", "ferry", "later"};

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char *text = with(paths[i], NULL);
        struct ferry_document *doc = parse(text);

        if (strcmp(paths[i], "ferry") == 0)
            assert_null(doc->ferry_version);
        ferry_document_destroy(doc);
        free(text);
    }
}

static void test_wrong_types_are_refused_by_path(void **state)
{
    static const struct {
        const char *path;
        const char *json;
        const char *part;
    } cases[] = {
        {"name", "7", "name: expected a string"},
        {"name", "null", "name: expected a string"},
        {"type", "\"disk\"", "found \"disk\""},
        {"type", "1", "type: expected a string"},
        {"machine_id", "[]", "machine_id"},
        {"rpc_server_addr", "{}", "rpc_server_addr"},
        {"rdma_server_name", "1", "rdma_server_name"},
        {"detail", "[]", "detail: expected an object"},
        {"detail.device_attrs", "[]", "detail.device_attrs"},
        {"detail.device_attrs", "{\"a\":1}", "detail.device_attrs.a"},
        {"detail.buffers", "{}", "detail.buffers: expected an array"},
        {"detail.buffers.1", "[]", "detail.buffers[1]"},
        {"detail.buffers.1.addr", "\"4096\"", "detail.buffers[1].addr"},
        {"detail.buffers.1.addr", "-1", "found -1"},
        {"detail.buffers.1.addr", "4096.0", "detail.buffers[1].addr"},
        {"detail.buffers.1.addr", "1e3", "detail.buffers[1].addr"},
        {"detail.buffers.1.addr", "true", "detail.buffers[1].addr"},
        {"detail.buffers.1.length", "0", "detail.buffers[1].length"},
        {"detail.buffers.1.length", "-4096", "detail.buffers[1].length"},
        {"detail.buffers.1.length", "18446744073709551615", "wrap"},
        {"detail.buffers.1.location", "0", "detail.buffers[1].location"},
        {"detail.buffers.1.transports", "[\"13\"]", "detail.buffers[1].transports[0]"},
        {"detail.buffers.1.transports", "[4294967296]", "detail.buffers[1].transports[0]"},
        {"detail.buffers.1.regions", "[1]", "detail.buffers[1].regions[0]"},
        {"detail.buffers.1.transport_attrs", "{\"13\":\"{}\"}",
         "detail.buffers[1].transport_attrs: expected an array"},
        {"detail.buffers.1.transport_attrs", "[[13]]", "expected a pair"},
        {"detail.buffers.1.transport_attrs", "[[13,\"a\",\"b\"]]", "expected a pair"},
        {"detail.buffers.1.transport_attrs", "[[\"13\",\"a\"]]", "transport_attrs[0][0]"},
        {"detail.buffers.1.transport_attrs", "[[13,{}]]", "transport_attrs[0][1]"},
        {"detail.buffers.1.transport_attrs", "[[13,\"a\"],[13,\"b\"]]", "13 occurs twice"},
        {"detail.buffers.1.rkey", "[4294967296]", "detail.buffers[1].rkey[0]"},
        {"detail.buffers.1.rkey", "[-1]", "detail.buffers[1].rkey[0]"},
        {"detail.buffers.1.shm_path", "null", "detail.buffers[1].shm_path"},
        {"detail.buffers.1.mnnvl_handle", "1", "detail.buffers[1].mnnvl_handle"},
        {"detail.buffers.1.internal", "0", "detail.buffers[1].internal"},
        {"detail.devices", "{}", "detail.devices"},
        {"detail.devices.0.lid", "65536", "detail.devices[0].lid"},
        {"detail.devices.0.gid", "1", "detail.devices[0].gid"},
        {"detail.topology", "{}", "detail.topology"},
        {"detail.transport_attrs", "[[13,\"a\"],[13,\"a\"]]", "13 occurs twice"},
        {"ferry", "\"0.1.0\"", "ferry: expected an object"},
        {"ferry.version", "1", "ferry.version"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused_with(cases[i].path, cases[i].json, cases[i].part);
}

static void test_text_that_is_no_document_is_refused(void **state)
{
    (void)state;
    expect_refused("", FERRY_ERR_METADATA, "segment document");
    expect_refused("null", FERRY_ERR_METADATA, "segment document");
    expect_refused("[]", FERRY_ERR_METADATA, "segment document");
    expect_refused("{\"name\":\"a\",\"name\":\"a\"}", FERRY_ERR_METADATA, "twice");
    expect_refused("{\"name\":\"a\",\"type\":\"file\"}", FERRY_ERR_UNSUPPORTED, "file");
    /* Every cut-off document: a store that returns half of one must not be believed. */
    for (size_t len = 0; len < sizeof(full) - 1; len++) {
        struct ferry_document *doc = NULL;
        char *cut = malloc(len + 1); /* exactly as long, for the address sanitizer */

        memcpy(cut, full, len);
        assert_status(ferry_document_parse(cut, len, &doc), FERRY_ERR_METADATA);
        free(cut);
    }
}

/* The full document with the first occurrence of @from replaced. */
static char *replaced(const char *from, const char *to)
{
    const char *at = strstr(full, from);
    char *text = malloc(sizeof(full) + strlen(to));

    assert_non_null(at);
    assert_non_null(text);
    sprintf(text, "%.*s%s%s", (int)(at - full), full, to, at + strlen(from));
    return text;
}

/* Buffers are cut out of the text and read one by one: a wrong cut must not make wrong text right.
 */
static void test_the_list_of_buffers_must_be_json(void **state)
{
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        {"\"buffers\":[{", "\"buffers\":[,{"},
        {"\"internal\":false}],", "\"internal\":false},],"},
        {"\"internal\":false}],", "\"internal\":false}},"},
        {"\"internal\":false}],", "\"internal\":false}]],"},
        {"\"internal\":false}],", "\"internal\":false]}],"},
        {"\"internal\":false}],", "\"internal\":false} {}],"},
        {"\"internal\":false}],", "\"internal\":false}],\"buffers\":[],"},
        {"\"extra\":\"kept\"},", "\"extra\":\"kept\"}:"},
        {"\"extra\":\"kept\"},", "\"extra\":\"kept\"},,"},
        {"\"extra\":\"kept\"},", "\"extra\":\"kept},"},
        {"\"extra\":\"kept\"},", "\"extra\":\"kept\\\"},"},
        {"\"extra\":\"kept\"},", "\"extra\":\"kept\"}"},
        {"\"extra\":\"kept\"},", "\"addr\":1},"},
        {"\"detail\":{", "\"detail\":{\"buffers\":[],"},
        {"\"detail\":{", "\"detail\":[],\"detail\":{"},
        {"\"ferry\"", "\"detail\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = replaced(cases[i].from, cases[i].to);

        expect_refused(text, FERRY_ERR_METADATA, "segment document");
        free(text);
    }
}

/* However the keys are spelled and spaced, and whatever strings look like, it is the same document.
 */
static void test_spelling_does_not_matter(void **state)
{
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        {"\"detail\"", "\"det\\u0061il\""},
        {"\"buffers\"", "\"\\u0062uffers\""},
        {"\"detail\":{\"buffers\":[", " \"detail\"\t: {\n \"buffers\" :\r\n [ "},
        {"\"internal\":false}],", "\"internal\":false}\n ] ,"},
        {"\"name\":", "\"noise\":{\"detail\":{\"buffers\":[1]}},\"name\":"},
        {"\"b0a1:77\"", "\"detail\\\":{\\\"buffers\\\":[\""},
        {"\"kept\"", "\"},]}],[\\\"\""},
        {"\"extra\":\"kept\"", "\"extra\":\"a\\\"b\",\"extra2\":\"]]\\\"\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = replaced(cases[i].from, cases[i].to);
        struct ferry_document *doc = parse(text);

        assert_int_equal(doc->buffer_count, 2);
        assert_int_equal(doc->buffers[1].addr, 140737488355328);
        free(text);
        text = print(doc);
        assert_non_null(strstr(text, "\"rkey\":[4294967295,0]"));
        free(text);
        ferry_document_destroy(doc);
    }
}

static void test_numbers_outside_u64_are_refused(void **state)
{
    static const char *const numbers[] = {"18446744073709551616", "99999999999999999999", "NaN",
                                          "-9223372036854775809", "1e400"};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char *text = replaced("140737488355328", numbers[i]);

        expect_refused(text, FERRY_ERR_METADATA, "segment document");
        free(text);
    }
}

static void test_overlapping_buffers_are_refused_by_name(void **state)
{
    static const struct {
        uint64_t addr[2];
        uint64_t length[2];
        bool good;
    } cases[] = {
        {{4096, 8192}, {4096, 4096}, true},    {{8192, 4096}, {4096, 4096}, true},
        {{4096, 8191}, {4096, 4096}, false},   {{4096, 4096}, {4096, 4096}, false},
        {{4096, 4096}, {4096, 100}, false},    {{4096, 5000}, {4096, 10}, false},
        {{UINT64_MAX - 10, 0}, {10, 1}, true}, {{UINT64_MAX - 10, UINT64_MAX - 5}, {10, 5}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ferry_document *doc = make();
        struct ferry_document *again = NULL;
        uint32_t index;
        char *text;

        for (int j = 0; j < 2; j++)
            assert_ok(
                ferry_document_add_buffer(doc, cases[i].addr[j], cases[i].length[j], "*", &index));
        ferry_document_sort(doc);
        text = print(doc);
        if (cases[i].good) {
            again = parse(text);
            assert_true(again->buffers[0].addr < again->buffers[1].addr);
            ferry_document_destroy(again);
        } else {
            expect_refused(text, FERRY_ERR_METADATA, "overlap");
        }
        free(text);
        ferry_document_destroy(doc);
    }
}

static void test_attributes_are_replaced_and_bounded(void **state)
{
    struct ferry_document *doc = make();
    uint32_t index;

    (void)state;
    assert_ok(ferry_document_add_attr(doc, 13, copy("one")));
    assert_ok(ferry_document_add_attr(doc, 13, copy("two")));
    assert_int_equal(doc->attr_count, 1);
    assert_string_equal(ferry_document_attr(doc, 13), "two");
    for (int i = 1; i < FERRY_DOCUMENT_ATTRS_MAX; i++)
        assert_ok(ferry_document_add_attr(doc, 100 + i, copy("x")));
    assert_status(ferry_document_add_attr(doc, 99, copy("x")), FERRY_ERR_TOO_LARGE);
    assert_status(ferry_document_add_buffer(doc, 1, 0, "*", &index), FERRY_ERR_INVALID);
    assert_status(ferry_document_add_buffer(doc, UINT64_MAX, 1, "*", &index), FERRY_ERR_INVALID);
    assert_status(
        ferry_document_add_buffer(
            doc, 1, 1, "0123456789012345678901234567890123456789012345678901234567890123", &index),
        FERRY_ERR_INVALID);
    assert_ok(ferry_document_add_buffer(
        doc, 1, 1, "012345678901234567890123456789012345678901234567890123456789012", &index));
    ferry_document_destroy(doc);
}

static double ms_since(uint64_t start_ns)
{
    return (double)(test_now_ns() - start_ns) / 1e6;
}

/* Field report B23: as many buffers as broke a store; nothing is lost or reordered. */
static void test_fifty_thousand_buffers_read_back(void **state)
{
    enum { COUNT = 50010 };
    struct ferry_document *doc = make();
    struct ferry_document *again = NULL;
    char *text = NULL;
    size_t len = 0;
    char attr[160];
    uint32_t index;
    uint64_t start_ns;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t place = (uint64_t)i * 7919 % COUNT; /* a permutation: not in order */

        assert_ok(ferry_document_add_buffer(doc, 0x7f0000000000 + place * 131072, 65536 + place,
                                            "cpu:0", &index));
        snprintf(attr, sizeof(attr),
                 "{\"permission\":\"global_read_write\",\"protocol\":\"tent_hp_tcp\","
                 "\"registration_id\":%" PRIu64 ",\"version\":1}",
                 UINT64_MAX - place);
        assert_ok(ferry_document_add_buffer_attr(doc, index, 13, copy(attr)));
    }
    ferry_document_sort(doc);
    start_ns = test_now_ns();
    assert_ok(ferry_document_print(doc, &text, &len));
    print_message("printed %zu bytes in %.0f ms\n", len, ms_since(start_ns));
    start_ns = test_now_ns();
    assert_ok(ferry_document_parse(text, len, &again));
    print_message("parsed them in %.0f ms\n", ms_since(start_ns));
    assert_int_equal(again->buffer_count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct ferry_document_buffer *buffer = &again->buffers[i];

        snprintf(attr, sizeof(attr), "\"registration_id\":%" PRIu64 ",", UINT64_MAX - i);
        assert_int_equal(buffer->addr, 0x7f0000000000 + (uint64_t)i * 131072);
        assert_int_equal(buffer->length, 65536 + i);
        assert_non_null(strstr(ferry_document_buffer_attr(buffer, 13), attr));
        assert_null(buffer->kept);
    }
    free(text);
    ferry_document_destroy(doc);
    ferry_document_destroy(again);
}

static void test_a_document_that_is_too_large_is_not_printed(void **state)
{
    struct ferry_document *doc = make();
    char *text = NULL;
    size_t len = 0;

    (void)state;
    for (uint32_t i = 0; i < 65; i++) {
        uint32_t index;
        char *attr = malloc((1u << 20) + 1);

        assert_non_null(attr);
        memset(attr, 'x', 1u << 20);
        attr[1u << 20] = '\0';
        assert_ok(ferry_document_add_buffer(doc, (uint64_t)(i + 1) << 20, 4096, "*", &index));
        assert_ok(ferry_document_add_buffer_attr(doc, index, 13, attr));
    }
    assert_status(ferry_document_print(doc, &text, &len), FERRY_ERR_TOO_LARGE);
    assert_non_null(strstr(ferry_last_error_text(), "65 buffers"));
    assert_non_null(strstr(ferry_last_error_text(), "67108864"));
    ferry_document_destroy(doc);
}

static void test_text_that_is_too_large_is_not_read(void **state)
{
    size_t len = (size_t)FERRY_DOCUMENT_TEXT_MAX + 1;
    char *text = malloc(len);
    struct ferry_document *doc = NULL;

    (void)state;
    assert_non_null(text);
    memset(text, ' ', len);
    assert_status(ferry_document_parse(text, len, &doc), FERRY_ERR_TOO_LARGE);

    /* Small text that would make a huge tree. */
    len = 3000001;
    for (size_t i = 0; i < len; i += 3)
        memcpy(text + i, "[],", 3);
    text[0] = '[';
    text[1] = '1';
    text[len - 1] = ']';
    assert_status(ferry_document_parse(text, len, &doc), FERRY_ERR_TOO_LARGE);
    free(text);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_document_is_read),
        cmocka_unit_test(test_everything_is_kept_on_rewrite),
        cmocka_unit_test(test_our_own_document_has_the_published_shape),
        cmocka_unit_test(test_attributes_of_our_own_are_out_of_other_readers_way),
        cmocka_unit_test(test_an_empty_segment_reads_back),
        cmocka_unit_test(test_every_required_key_is_required),
        cmocka_unit_test(test_optional_keys_may_be_absent),
        cmocka_unit_test(test_wrong_types_are_refused_by_path),
        cmocka_unit_test(test_text_that_is_no_document_is_refused),
        cmocka_unit_test(test_the_list_of_buffers_must_be_json),
        cmocka_unit_test(test_spelling_does_not_matter),
        cmocka_unit_test(test_numbers_outside_u64_are_refused),
        cmocka_unit_test(test_overlapping_buffers_are_refused_by_name),
        cmocka_unit_test(test_attributes_are_replaced_and_bounded),
        cmocka_unit_test(test_fifty_thousand_buffers_read_back),
        cmocka_unit_test(test_a_document_that_is_too_large_is_not_printed),
        cmocka_unit_test(test_text_that_is_too_large_is_not_read),
    };

    return cmocka_run_group_tests_name("metadata document", tests, NULL, NULL);
}
