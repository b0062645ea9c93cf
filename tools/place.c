/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads places in segments. Pure; any thread.
 */
#include "place.h"

#include <string.h>

#include "text.h"

#define SCHEME      "ferry://"
#define FILE_SCHEME "file://"

static bool parse_address(const char *text, uint64_t *addr_out)
{
    uint64_t addr = 0;

    if (strncmp(text, "0x", 2) != 0)
        return ferry_cli_parse_u64(text, addr_out);
    text += 2;
    if (*text == '\0' || strlen(text) > 16)
        return false;
    for (; *text != '\0'; text++) {
        const char *digits = "0123456789abcdef";
        const char *digit = strchr(digits, *text >= 'A' && *text <= 'F' ? *text + 32 : *text);

        if (digit == NULL)
            return false;
        addr = addr << 4 | (uint64_t)(digit - digits);
    }
    *addr_out = addr;
    return true;
}

/* "", "2", "+64KiB", "2+64KiB", "@0x7f0000000000" */
static bool parse_spot(const char *text, struct ferry_place *place)
{
    const char *plus = strchr(text, '+');
    char index[24];

    place->absolute = false;
    place->index = 0;
    place->offset = 0;
    if (*text == '@') {
        place->absolute = true;
        return parse_address(text + 1, &place->addr);
    }
    if (plus != NULL && !ferry_cli_parse_size(plus + 1, &place->offset))
        return false;

    size_t len = plus != NULL ? (size_t)(plus - text) : strlen(text);

    if (len == 0)
        return true;
    if (len >= sizeof(index))
        return false;
    memcpy(index, text, len);
    index[len] = '\0';
    return ferry_cli_parse_u64(index, &place->index);
}

static bool is_host_port(const char *name)
{
    char host[256];
    uint16_t port;

    return strchr(name, '/') == NULL && ferry_cli_split_place(name, host, sizeof(host), &port);
}

/* The whole text is the name: a path may hold anything. */
static enum ferry_place_kind parse_file(const char *text, struct ferry_place *place_out)
{
    struct ferry_place place = {0};
    size_t len = strlen(text);

    if (len == strlen(FILE_SCHEME) || len >= sizeof(place.name))
        return FERRY_PLACE_WRONG;
    memcpy(place.name, text, len + 1);
    *place_out = place;
    return FERRY_PLACE_SEGMENT;
}

enum ferry_place_kind ferry_place_parse(const char *text, struct ferry_place *place_out)
{
    bool scheme = strncmp(text, SCHEME, strlen(SCHEME)) == 0;
    const char *name = scheme ? text + strlen(SCHEME) : text;
    const enum ferry_place_kind otherwise = scheme ? FERRY_PLACE_WRONG : FERRY_PLACE_FILE;
    /* A name in a store may contain slashes itself: the last one ends it. */
    const char *slash = strrchr(name, '/');
    size_t len = slash != NULL ? (size_t)(slash - name) : strlen(name);
    struct ferry_place place;

    if (strncmp(text, FILE_SCHEME, strlen(FILE_SCHEME)) == 0)
        return parse_file(text, place_out);
    if (len == 0 || len >= sizeof(place.name))
        return otherwise;
    memcpy(place.name, name, len);
    place.name[len] = '\0';
    if ((!scheme && !is_host_port(place.name)) ||
        !parse_spot(slash != NULL ? slash + 1 : "", &place))
        return otherwise;
    *place_out = place;
    return FERRY_PLACE_SEGMENT;
}
