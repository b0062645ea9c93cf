/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz the replies of etcd: every reader takes every input, fails or keeps its promises, and leaves
 * nothing behind.
 */
#include "fuzz.h"

#include <string.h>

#include "metadata/etcd_codec.h"

#define PREFIX "mooncake/tent/"

static void read_entries(const char *reply, size_t len)
{
    struct ferry_etcd_entry entry = {0};
    bool done;

    if (ferry_etcd_read_range(reply, len, &entry) == FERRY_OK) {
        FUZZ_REQUIRE(entry.found == (entry.value != NULL));
        FUZZ_REQUIRE(!entry.found || entry.value[entry.value_len] == '\0');
        free(entry.value);
    }
    if (ferry_etcd_read_txn(reply, len, &done, &entry) == FERRY_OK) {
        FUZZ_REQUIRE(!done || entry.value == NULL);
        free(entry.value);
    }
}

static void read_keys(const char *reply, size_t len)
{
    struct ferry_text names;
    char *last = NULL;
    size_t last_len = 0;

    ferry_text_init_heap(&names, 1 << 20);
    if (ferry_etcd_read_keys(reply, len, PREFIX, &names, &last, &last_len) == FERRY_OK) {
        /* Whole lines without control characters. */
        FUZZ_REQUIRE(names.len == 0 || names.data[names.len - 1] == '\n');
        for (size_t i = 0; i < names.len; i++)
            FUZZ_REQUIRE((unsigned char)names.data[i] >= 0x20 || names.data[i] == '\n');
        FUZZ_REQUIRE(last == NULL || memcmp(last, PREFIX, strlen(PREFIX)) == 0);
        free(last);
    }
    ferry_text_fini(&names);
}

static void read_others(const char *reply, size_t len)
{
    char token[FERRY_ETCD_TOKEN_SIZE];
    struct ferry_etcd_news news;
    uint64_t a;
    uint64_t b;
    char text[64];
    int code;

    if (ferry_etcd_read_put(reply, len, &a) == FERRY_OK)
        FUZZ_REQUIRE(a <= INT64_MAX);
    if (ferry_etcd_read_grant(reply, len, &a, &b) == FERRY_OK)
        FUZZ_REQUIRE(a != 0 && b != 0);
    if (ferry_etcd_read_keepalive(reply, len, &a) == FERRY_OK)
        FUZZ_REQUIRE(a <= INT64_MAX);
    if (ferry_etcd_read_token(reply, len, token) == FERRY_OK) {
        FUZZ_REQUIRE(token[0] != '\0');
        FUZZ_REQUIRE(strpbrk(token, "\r\n") == NULL);
    }
    if (ferry_etcd_read_news(reply, len, &news) == FERRY_OK)
        FUZZ_REQUIRE(news.revision <= INT64_MAX);
    ferry_etcd_read_refusal(reply, len, &code, text, sizeof(text));
    FUZZ_REQUIRE(code >= -1 && code <= 100);
    FUZZ_REQUIRE(strlen(text) < sizeof(text));
    FUZZ_REQUIRE(strpbrk(text, "\r\n") == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *reply = (const char *)data;

    read_entries(reply, size);
    read_keys(reply, size);
    read_others(reply, size);
    return 0;
}
