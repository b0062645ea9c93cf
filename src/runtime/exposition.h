/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes metrics down: the text format of Prometheus (0.0.4), or JSON that says the same. One
 * thread. Families one after the other, each with all its samples; a failure, which only lack of
 * memory or a text that grows too long can be, shows in take().
 */
#ifndef FERRY_RUNTIME_EXPOSITION_H
#define FERRY_RUNTIME_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "runtime/tally.h"

#define FERRY_EXPOSITION_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum ferry_exposition_form {
    FERRY_EXPOSITION_TEXT,
    FERRY_EXPOSITION_JSON,
};

struct ferry_label {
    const char *name;
    const char *value; /* any bytes; what is not UTF-8 becomes U+FFFD */
};

struct ferry_exposition {
    struct ferry_text text;
    enum ferry_exposition_form form;
    const char *family; /* NULL: none begun */
    bool first;         /* its next sample is its first */
};

/* At most @size_max bytes. */
void ferry_exposition_init(struct ferry_exposition *out, enum ferry_exposition_form form,
                           size_t size_max);
/* @name and @help are literals, in the family's own form: no quotes, no line ends. */
void ferry_exposition_family(struct ferry_exposition *out, const char *name, const char *type,
                             const char *help);
void ferry_exposition_value(struct ferry_exposition *out, const struct ferry_label *labels,
                            uint32_t count, uint64_t value);
/* A value in seconds. */
void ferry_exposition_ns(struct ferry_exposition *out, const struct ferry_label *labels,
                         uint32_t count, uint64_t ns);
/* A histogram in seconds. */
void ferry_exposition_tally(struct ferry_exposition *out, const struct ferry_label *labels,
                            uint32_t count, const struct ferry_tally_sum *sum);
/* The text, malloc'd. ERR_NO_MEMORY, ERR_TOO_LARGE. */
FERRY_CHECKED enum ferry_status ferry_exposition_take(struct ferry_exposition *out, char **text_out,
                                                      size_t *len_out);

#endif
