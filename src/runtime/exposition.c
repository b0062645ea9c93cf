/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics as text. Pure functions on the caller's object; one thread.
 */
#include "runtime/exposition.h"

#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"

/* Upper bound of a bucket in seconds, exact. */
#define BOUND_SIZE 32

void ferry_exposition_init(struct ferry_exposition *out, enum ferry_exposition_form form,
                           size_t size_max)
{
    *out = (struct ferry_exposition){.form = form};
    ferry_text_init_heap(&out->text, size_max);
    if (form == FERRY_EXPOSITION_JSON)
        ferry_text_add(&out->text, "{\"metrics\": [");
}

static void end_family(struct ferry_exposition *out)
{
    if (out->family != NULL && out->form == FERRY_EXPOSITION_JSON)
        ferry_text_add(&out->text, "]}");
}

void ferry_exposition_family(struct ferry_exposition *out, const char *name, const char *type,
                             const char *help)
{
    end_family(out);
    if (out->form == FERRY_EXPOSITION_JSON)
        ferry_text_addf(&out->text,
                        "%s\n{\"name\": \"%s\", \"type\": \"%s\", \"help\": \"%s\", \"samples\": [",
                        out->family != NULL ? "," : "", name, type, help);
    else
        ferry_text_addf(&out->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    out->family = name;
    out->first = true;
}

/* A label's value between its quotes: only these three are escaped in Prometheus' text. */
static void add_escaped(struct ferry_text *text, const char *value)
{
    const char *end = value + strlen(value);

    while (value < end && !text->cut) {
        size_t len = ferry_utf8_length((const unsigned char *)value, (size_t)(end - value));

        if (len == 0)
            ferry_text_add(text, "\xef\xbf\xbd");
        else if (*value == '\n')
            ferry_text_add(text, "\\n");
        else if (*value == '"' || *value == '\\')
            ferry_text_addf(text, "\\%c", *value);
        else
            ferry_text_add_bytes(text, value, len);
        value += len > 0 ? len : 1;
    }
}

/* name_suffix{labels,extra} and a space. */
static void begin_text(struct ferry_exposition *out, const char *suffix,
                       const struct ferry_label *labels, uint32_t count, const char *le)
{
    struct ferry_text *text = &out->text;

    ferry_text_addf(text, "%s%s", out->family, suffix);
    for (uint32_t i = 0; i < count; i++) {
        ferry_text_addf(text, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
        add_escaped(text, labels[i].value);
        ferry_text_add(text, "\"");
    }
    if (le != NULL)
        ferry_text_addf(text, "%sle=\"%s\"", count == 0 ? "{" : ",", le);
    ferry_text_add(text, count > 0 || le != NULL ? "} " : " ");
}

/* An object with its labels, up to the values. */
static void begin_json(struct ferry_exposition *out, const struct ferry_label *labels,
                       uint32_t count)
{
    struct ferry_text *text = &out->text;

    ferry_text_addf(text, "%s\n{\"labels\": {", out->first ? "" : ",");
    for (uint32_t i = 0; i < count; i++) {
        ferry_text_addf(text, "%s\"%s\": ", i == 0 ? "" : ", ", labels[i].name);
        ferry_text_add_json(text, labels[i].value);
    }
    ferry_text_add(text, "}, ");
    out->first = false;
}

static void add_seconds(struct ferry_text *text, uint64_t ns)
{
    ferry_text_addf(text, "%llu.%09llu", (unsigned long long)(ns / FERRY_NS_PER_S),
                    (unsigned long long)(ns % FERRY_NS_PER_S));
}

static void begin_sample(struct ferry_exposition *out, const struct ferry_label *labels,
                         uint32_t count)
{
    if (out->form == FERRY_EXPOSITION_JSON) {
        begin_json(out, labels, count);
        ferry_text_add(&out->text, "\"value\": ");
    } else {
        begin_text(out, "", labels, count, NULL);
    }
}

static void end_sample(struct ferry_exposition *out)
{
    ferry_text_add(&out->text, out->form == FERRY_EXPOSITION_JSON ? "}" : "\n");
}

void ferry_exposition_value(struct ferry_exposition *out, const struct ferry_label *labels,
                            uint32_t count, uint64_t value)
{
    begin_sample(out, labels, count);
    ferry_text_addf(&out->text, "%llu", (unsigned long long)value);
    end_sample(out);
}

void ferry_exposition_ns(struct ferry_exposition *out, const struct ferry_label *labels,
                         uint32_t count, uint64_t ns)
{
    begin_sample(out, labels, count);
    add_seconds(&out->text, ns);
    end_sample(out);
}

static void bound_of(uint32_t bucket, char buf[BOUND_SIZE])
{
    struct ferry_text text;

    ferry_text_init(&text, buf, BOUND_SIZE);
    add_seconds(&text, FERRY_NS_PER_US << bucket);
    /* As Prometheus prints it itself: no zeros at the end, but one after the point. */
    while (text.len > 2 && buf[text.len - 1] == '0' && buf[text.len - 2] != '.')
        buf[--text.len] = '\0';
}

static void tally_as_text(struct ferry_exposition *out, const struct ferry_label *labels,
                          uint32_t count, const struct ferry_tally_sum *sum)
{
    uint64_t below = 0;
    char bound[BOUND_SIZE];

    for (uint32_t i = 0; i < FERRY_TALLY_BUCKETS - 1; i++) {
        below += sum->buckets[i];
        bound_of(i, bound);
        begin_text(out, "_bucket", labels, count, bound);
        ferry_text_addf(&out->text, "%llu\n", (unsigned long long)below);
    }
    begin_text(out, "_bucket", labels, count, "+Inf");
    ferry_text_addf(&out->text, "%llu\n", (unsigned long long)sum->count);
    begin_text(out, "_sum", labels, count, NULL);
    add_seconds(&out->text, sum->ns);
    ferry_text_add(&out->text, "\n");
    begin_text(out, "_count", labels, count, NULL);
    ferry_text_addf(&out->text, "%llu\n", (unsigned long long)sum->count);
}

static void tally_as_json(struct ferry_exposition *out, const struct ferry_label *labels,
                          uint32_t count, const struct ferry_tally_sum *sum)
{
    uint64_t below = 0;
    char bound[BOUND_SIZE];

    begin_json(out, labels, count);
    ferry_text_addf(&out->text, "\"count\": %llu, \"sum\": ", (unsigned long long)sum->count);
    add_seconds(&out->text, sum->ns);
    ferry_text_add(&out->text, ", \"buckets\": [");
    for (uint32_t i = 0; i < FERRY_TALLY_BUCKETS - 1; i++) {
        below += sum->buckets[i];
        bound_of(i, bound);
        ferry_text_addf(&out->text, "%s{\"le\": %s, \"count\": %llu}", i == 0 ? "" : ", ", bound,
                        (unsigned long long)below);
    }
    ferry_text_add(&out->text, "]}");
}

void ferry_exposition_tally(struct ferry_exposition *out, const struct ferry_label *labels,
                            uint32_t count, const struct ferry_tally_sum *sum)
{
    if (out->form == FERRY_EXPOSITION_JSON)
        tally_as_json(out, labels, count, sum);
    else
        tally_as_text(out, labels, count, sum);
}

enum ferry_status ferry_exposition_take(struct ferry_exposition *out, char **text_out,
                                        size_t *len_out)
{
    enum ferry_status status;

    end_family(out);
    if (out->form == FERRY_EXPOSITION_JSON)
        ferry_text_add(&out->text, "\n]}\n");
    status = ferry_text_take(&out->text, text_out, len_out);
    if (status != FERRY_OK)
        ferry_text_fini(&out->text);
    return status;
}
