/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Find the array detail.buffers in the text of a segment document, and its items, without building
 * anything. Private to metadata/.
 *
 * A tree of all buffers takes thirty times their text; read one by one they take one buffer's. The
 * cuts need no valid JSON: if the rest of the document with an empty array in its place is valid,
 * and so is each item, then the whole is.
 */
#ifndef FERRY_METADATA_DOCUMENT_SPLIT_H
#define FERRY_METADATA_DOCUMENT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* What is between the brackets is text[start, end). */
struct ferry_document_array {
    size_t start;
    size_t end;
};

/* False if it is not where it usually is, in its usual spelling; that means nothing else. */
bool ferry_document_find_buffers(const char *text, size_t len,
                                 struct ferry_document_array *array_out);

/* The text of the items of an array, one after the other; begin with at = array.start. */
struct ferry_document_items {
    const char *text;
    size_t at;
    size_t end;
    bool more; /* a comma was the last thing seen */
};

struct ferry_document_items ferry_document_items(const char *text,
                                                 const struct ferry_document_array *array);
/* The next item, which may be empty where the text is wrong. False after the last. */
bool ferry_document_next_item(struct ferry_document_items *items, const char **item_out,
                              size_t *len_out);

#endif
