/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz the segment document: whatever parses is JSON as a whole (the reader takes it in pieces), is
 * sorted and free of overlaps, prints, and what was printed parses and prints to the same text.
 */
#include "fuzz.h"

#include <string.h>

#include "base/json.h"
#include "metadata/document.h"

static void check(const struct ferry_document *doc)
{
    FUZZ_REQUIRE(doc->name != NULL);
    FUZZ_REQUIRE(doc->machine_id != NULL);
    FUZZ_REQUIRE(doc->rpc_server_addr != NULL);
    for (uint32_t i = 0; i < doc->buffer_count; i++) {
        const struct ferry_document_buffer *buffer = &doc->buffers[i];

        FUZZ_REQUIRE(buffer->length > 0);
        FUZZ_REQUIRE(buffer->length <= UINT64_MAX - buffer->addr);
        FUZZ_REQUIRE(memchr(buffer->location, '\0', sizeof(buffer->location)) != NULL);
        FUZZ_REQUIRE(i == 0 ||
                     doc->buffers[i - 1].addr + doc->buffers[i - 1].length <= buffer->addr);
        for (uint32_t j = 0; j < buffer->attr_count; j++)
            FUZZ_REQUIRE(ferry_document_buffer_attr(buffer, buffer->attrs[j].transport_id) ==
                         buffer->attrs[j].text);
    }
}

static void check_whole(const char *text, size_t len)
{
    static const struct ferry_json_limits limits = {
        .text_bytes_max = FERRY_DOCUMENT_TEXT_MAX,
        .memory_bytes_max = (size_t)1 << 31,
        .depth_max = FERRY_JSON_DEPTH_MAX,
    };
    struct ferry_json root;

    FUZZ_REQUIRE(ferry_json_parse(&limits, "whole", text, len, &root) == FERRY_OK);
    ferry_json_free(&root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ferry_document *doc;
    struct ferry_document *again;
    char *text;
    char *second;
    size_t len;
    size_t second_len;

    if (ferry_document_parse((const char *)data, size, &doc) != FERRY_OK)
        return 0;
    check_whole((const char *)data, size);
    check(doc);
    FUZZ_REQUIRE(ferry_document_print(doc, &text, &len) == FERRY_OK);
    FUZZ_REQUIRE(strlen(text) == len);
    FUZZ_REQUIRE(ferry_document_parse(text, len, &again) == FERRY_OK);
    check(again);
    FUZZ_REQUIRE(again->buffer_count == doc->buffer_count);
    FUZZ_REQUIRE(ferry_document_print(again, &second, &second_len) == FERRY_OK);
    FUZZ_REQUIRE(second_len == len);
    FUZZ_REQUIRE(memcmp(text, second, len) == 0);
    free(text);
    free(second);
    ferry_document_destroy(doc);
    ferry_document_destroy(again);
    return 0;
}
