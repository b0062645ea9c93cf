/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts of a JSON text along strings and brackets; see document_split.h. Pure, linear, no recursion,
 * no allocation. It looks at untrusted bytes that nobody has checked: every step is bounded by the
 * length.
 */
#include "metadata/document_split.h"

#include <string.h>

static size_t skip_space(const char *text, size_t len, size_t at)
{
    while (at < len &&
           (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
        at++;
    return at;
}

/* From an opening quote to behind the closing one, or to @len. */
static size_t skip_string(const char *text, size_t len, size_t at)
{
    for (at++; at < len; at++) {
        if (text[at] == '\\')
            at++;
        else if (text[at] == '"')
            return at + 1;
    }
    return len;
}

/* From an opening bracket to behind the one that closes it, whatever its kind, or to @len. */
static size_t skip_container(const char *text, size_t len, size_t at)
{
    size_t depth = 0;

    while (at < len) {
        char byte = text[at];

        if (byte == '"') {
            at = skip_string(text, len, at);
            continue;
        }
        at++;
        if (byte == '{' || byte == '[')
            depth++;
        else if ((byte == '}' || byte == ']') && --depth == 0)
            return at;
    }
    return len;
}

/* Behind the value that begins here: at a comma or a closing bracket that is not its own. */
static size_t skip_value(const char *text, size_t len, size_t at)
{
    while (at < len) {
        switch (text[at]) {
        case '"':
            at = skip_string(text, len, at);
            break;
        case '{':
        case '[':
            at = skip_container(text, len, at);
            break;
        case ',':
        case '}':
        case ']':
            return at;
        default:
            at++;
        }
    }
    return len;
}

/* Move *@at from the opening bracket of an object to the value of @key. */
static bool find_member(const char *text, size_t len, size_t *at, const char *key)
{
    size_t key_len = strlen(key);
    size_t pos = *at;

    if (pos >= len || text[pos] != '{')
        return false;
    do {
        size_t name = skip_space(text, len, pos + 1);

        if (name >= len || text[name] != '"')
            return false;

        size_t name_end = skip_string(text, len, name);
        bool found = name_end - name == key_len + 2 && memcmp(text + name + 1, key, key_len) == 0;

        pos = skip_space(text, len, name_end);
        if (pos >= len || text[pos] != ':')
            return false;
        pos = skip_space(text, len, pos + 1);
        if (found) {
            *at = pos;
            return true;
        }
        pos = skip_value(text, len, pos);
    } while (pos < len && text[pos] == ',');
    return false;
}

bool ferry_document_find_buffers(const char *text, size_t len,
                                 struct ferry_document_array *array_out)
{
    size_t at = skip_space(text, len, 0);

    if (!find_member(text, len, &at, "detail") || !find_member(text, len, &at, "buffers") ||
        at >= len || text[at] != '[')
        return false;

    size_t end = skip_container(text, len, at);

    if (text[end - 1] != ']' || end - at < 2)
        return false;
    *array_out = (struct ferry_document_array){.start = at + 1, .end = end - 1};
    return true;
}

struct ferry_document_items ferry_document_items(const char *text,
                                                 const struct ferry_document_array *array)
{
    size_t first = skip_space(text, array->end, array->start);

    return (struct ferry_document_items){
        .text = text,
        .at = first,
        .end = array->end,
        .more = first < array->end,
    };
}

bool ferry_document_next_item(struct ferry_document_items *items, const char **item_out,
                              size_t *len_out)
{
    size_t start = items->at;
    size_t at = start;

    if (!items->more)
        return false;
    while (at < items->end && items->text[at] != ',') {
        at = skip_value(items->text, items->end, at);
        if (at < items->end && items->text[at] != ',')
            at++; /* a bracket that closes nothing; the item is not JSON and will be refused */
    }
    *item_out = items->text + start;
    *len_out = at - start;
    items->more = at < items->end;
    items->at = at + 1;
    return true;
}
