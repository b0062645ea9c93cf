/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz the document of a file segment: whatever parses holds what its header promises, prints, and
 * what was printed parses and prints to the same text, also after a host was added and removed.
 */
#include "fuzz.h"

#include <string.h>

#include "metadata/file_document.h"
#include "metadata/host_names.h"

static void check(const struct ferry_file_document *doc)
{
    uint64_t start = 0;

    FUZZ_REQUIRE(doc->server_name != NULL);
    FUZZ_REQUIRE(doc->file_count > 0);
    FUZZ_REQUIRE(doc->revision != 0);
    for (uint32_t i = 0; i < doc->file_count; i++) {
        const struct ferry_file_piece *piece = &doc->files[i];

        FUZZ_REQUIRE(piece->start == start);
        FUZZ_REQUIRE(piece->length <= FERRY_FILE_LENGTH_MAX - start);
        FUZZ_REQUIRE(piece->length <= FERRY_FILE_LENGTH_MAX - piece->file_offset);
        FUZZ_REQUIRE(piece->file_path[0] != '\0');
        start += piece->length;
        if (piece->length > 0) {
            FUZZ_REQUIRE(ferry_file_document_at(doc, piece->start) == i);
            FUZZ_REQUIRE(ferry_file_document_at(doc, start - 1) == i);
        }
        for (uint32_t j = 0; j < piece->place_count; j++)
            FUZZ_REQUIRE(ferry_host_name_ok(piece->places[j].host));
    }
    FUZZ_REQUIRE(start == doc->length);
}

static void check_resolved(const struct ferry_file_document *doc)
{
    struct ferry_host_names host;
    const char *path = NULL;

    FUZZ_REQUIRE(ferry_host_names_parse("node1,node2:7", &host) == FERRY_OK);
    for (uint32_t i = 0; i < doc->file_count; i++) {
        if (ferry_file_document_resolve(doc, i, &host, "s", &path) == FERRY_OK)
            FUZZ_REQUIRE(path[0] == '/');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ferry_file_document *doc;
    struct ferry_file_document *again;
    char *text;
    char *second;
    size_t len;
    size_t second_len;

    if (ferry_file_document_parse((const char *)data, size, &doc) != FERRY_OK)
        return 0;
    check(doc);
    check_resolved(doc);
    FUZZ_REQUIRE(ferry_file_document_print(doc, &text, &len) == FERRY_OK);
    FUZZ_REQUIRE(strlen(text) == len);
    FUZZ_REQUIRE(ferry_file_document_parse(text, len, &again) == FERRY_OK);
    check(again);
    FUZZ_REQUIRE(again->file_count == doc->file_count);
    /* A name that no input of this length can hold, so that it is new. */
    if (size < 200) {
        char host[256];

        memset(host, 'h', 255);
        host[255] = '\0';
        FUZZ_REQUIRE(ferry_file_document_place(again, 0, host, "/p") == FERRY_OK);
        FUZZ_REQUIRE(ferry_file_document_displace(again, 0, host));
    }
    FUZZ_REQUIRE(ferry_file_document_print(again, &second, &second_len) == FERRY_OK);
    FUZZ_REQUIRE(second_len == len);
    FUZZ_REQUIRE(memcmp(text, second, len) == 0);
    free(text);
    free(second);
    ferry_file_document_destroy(doc);
    ferry_file_document_destroy(again);
    return 0;
}
