/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a key file to keys. Runs on the thread that opens an engine. Errors name the file and the
 * line, never what stands in it; what was read is wiped.
 */
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "access/auth_private.h"
#include "access/secret_file.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/text.h"

#define SETTING "auth_key_file"

struct reading {
    const char *path;
    unsigned line;
};

static enum ferry_status fail_line(const struct reading *reading, const char *what)
{
    return ferry_fail(FERRY_ERR_CONFIG,
                      "%s: %.200s, line %u: %s; make one with: openssl rand -hex 32", SETTING,
                      reading->path, reading->line, what);
}

static bool is_hex(const char *text)
{
    return strspn(text, "0123456789abcdefABCDEF") == strlen(text);
}

/* Bytes of @text in base64 with its padding, at most @size; 0 if it is none. */
static size_t decode_base64(const char *text, uint8_t *buf, size_t size)
{
    uint8_t whole[FERRY_AUTH_KEY_BYTES_MAX + 3];
    size_t digits = strlen(text);
    size_t pad = 0;
    size_t len;
    int got;

    while (pad < 2 && pad < digits && text[digits - 1 - pad] == '=')
        pad++;
    if (digits % 4 != 0 || digits / 4 * 3 > sizeof(whole) ||
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") !=
            digits - pad)
        return 0;
    got = EVP_DecodeBlock(whole, (const unsigned char *)text, (int)digits);
    len = got > (int)pad ? (size_t)got - pad : 0;
    if (len > size)
        len = 0;
    memcpy(buf, whole, len);
    OPENSSL_cleanse(whole, sizeof(whole));
    return len;
}

static enum ferry_status add_key(const struct reading *reading, const char *text,
                                 struct ferry_auth *auth)
{
    struct ferry_auth_key *key = &auth->keys[auth->count];
    size_t len = 0;

    if (auth->count == FERRY_AUTH_KEYS_MAX)
        return fail_line(reading, "more keys than four");
    if (!is_hex(text))
        len = decode_base64(text, key->bytes, sizeof(key->bytes));
    else if (ferry_hex_decode(text, key->bytes, sizeof(key->bytes), &len) != FERRY_OK)
        len = 0;
    if (len == 0)
        return fail_line(reading, "no key of at most 256 bytes in hex or base64");
    if (len < FERRY_AUTH_KEY_BYTES_MIN)
        return fail_line(reading, "a key of less than 32 bytes");
    key->len = (uint32_t)len;
    auth->count++;
    return FERRY_OK;
}

static enum ferry_status parse(const char *path, char *text, size_t len, struct ferry_auth *auth)
{
    struct reading reading = {.path = path};
    char *next = text;

    if (strlen(text) != len)
        return ferry_fail(FERRY_ERR_CONFIG, "%s: %.200s holds a NUL; expected lines of text",
                          SETTING, path);
    while (next != NULL) {
        char *line = strsep(&next, "\n");
        size_t end;
        enum ferry_status status;

        reading.line++;
        line += strspn(line, " \t");
        end = strlen(line);
        while (end > 0 && strchr(" \t\r", line[end - 1]) != NULL)
            line[--end] = '\0';
        if (line[0] == '\0' || line[0] == '#')
            continue;
        status = add_key(&reading, line, auth);
        if (status != FERRY_OK)
            return status;
    }
    if (auth->count == 0)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "%s: %.200s holds no key; make one with: openssl rand -hex 32", SETTING,
                          path);
    return FERRY_OK;
}

enum ferry_status ferry_auth_open(const char *path, struct ferry_auth **auth_out)
{
    char text[FERRY_AUTH_FILE_BYTES_MAX + 1];
    struct ferry_auth *auth;
    enum ferry_status status;
    size_t len = 0;

    auth = ferry_secret_alloc(sizeof(*auth));
    if (auth == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "%s: out of memory", SETTING);
    status = ferry_secret_file_read(SETTING, path, true, text, sizeof(text), &len);
    if (status == FERRY_OK)
        status = parse(path, text, len, auth);
    OPENSSL_cleanse(text, sizeof(text));
    if (status != FERRY_OK) {
        ferry_auth_close(auth);
        return status;
    }
    *auth_out = auth;
    return FERRY_OK;
}

void ferry_auth_close(struct ferry_auth *auth)
{
    ferry_secret_free(auth, sizeof(*auth));
}
