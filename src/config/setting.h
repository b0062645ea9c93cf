/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a configuration, shared by the files of this room only: settings with their values,
 * and the stage on which a whole source of values is checked before any of them takes effect.
 *
 * One thread at a time per configuration. Getters read only, so threads may share one that nobody
 * changes any more.
 */
#ifndef FERRY_CONFIG_SETTING_H
#define FERRY_CONFIG_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/config.h>

#include "base/compiler.h"
#include "config/option.h"

struct json_object;

#define FERRY_CONFIG_NAME_MAX       127 /* longest full name of a setting */
#define FERRY_CONFIG_EXPECTED_SIZE  256
#define FERRY_CONFIG_ITEM_BYTES_MAX 1024 /* longest text in a list */
#define FERRY_CONFIG_FILE_BYTES_MAX (4u << 20)

/* A checked value. `text` is what people see and what --set takes back. */
struct ferry_value {
    uint64_t number; /* BOOL 0 or 1, UINT, SIZE, AUTO (0 is auto), CHOICE (index) */
    char *text;
    char **items; /* LIST */
    size_t item_count;
};

struct ferry_setting {
    /* immutable after create */
    const struct ferry_option *option;
    char *name;
    char *environment;
    char *default_text; /* as the value prints it */
    /* one thread at a time per configuration */
    struct ferry_value value;
    enum ferry_config_origin origin;
    char *origin_detail; /* NULL reads as "" */
};

struct ferry_config {
    struct ferry_setting *settings; /* in the order of the tables */
    size_t count;
};

/*
 * value.c. @where begins the error text: "conf.json: log_level", "FERRY_LOG_LEVEL". ERR_CONFIG with
 * text, ERR_NO_MEMORY. A SECRET's value never appears in a text.
 */
FERRY_CHECKED enum ferry_status ferry_value_from_text(const struct ferry_option *option,
                                                      const char *where, const char *text,
                                                      struct ferry_value *value_out);
FERRY_CHECKED enum ferry_status ferry_value_from_json(const struct ferry_option *option,
                                                      const char *where, struct json_object *json,
                                                      struct ferry_value *value_out);
FERRY_CHECKED enum ferry_status ferry_value_copy(const struct ferry_value *value,
                                                 struct ferry_value *copy_out);
/* Accepts a zeroed value and leaves one. */
void ferry_value_fini(struct ferry_value *value);

/* value_print.c. What a value is and may be, in words; buf holds FERRY_CONFIG_EXPECTED_SIZE bytes.
 */
const char *ferry_option_type_name(enum ferry_option_type type);
void ferry_option_expected(const struct ferry_option *option, char *buf);

/*
 * names.c: pure functions over the names. The settings form a tree whose inner nodes are sections.
 */
struct ferry_setting *ferry_config_find(const struct ferry_config *config, const char *name);
bool ferry_config_is_section(const struct ferry_config *config, const char *name);
/* True if a setting above @name is a PLACEHOLDER, which takes in everything below it. */
bool ferry_config_below_placeholder(const struct ferry_config *config, const char *name);
/* The known name (or variable) that is spelt most like @name; never NULL, "" if there is none. */
const char *ferry_config_nearest(const struct ferry_config *config, const char *name,
                                 bool environment);
/*
 * If @name lies in the section of a published transport that this build does not have, the length
 * of "transports.<transport>", else 0.
 */
size_t ferry_config_unbuilt_len(const struct ferry_config *config, const char *name);
/* The published path syntax "a/b/c" into "a.b.c". False: longer than any setting's name. */
bool ferry_config_normalize(const char *name, char *buf /* FERRY_CONFIG_NAME_MAX + 1 */);
/* ERR_CONFIG: "<where>: unknown setting; the nearest known one is ...". */
FERRY_COLD enum ferry_status ferry_config_fail_unknown(const struct ferry_config *config,
                                                       const char *where, const char *name);
/* ERR_CONFIG: "<where>: <value> asks for a transport that this build does not have ...". */
FERRY_COLD enum ferry_status ferry_config_fail_unbuilt(const char *where, const char *name);

/* stage.c: values of one source, checked and not yet in effect. Zeroed before init, fini always. */
struct ferry_staged {
    bool set;
    struct ferry_value value;
    char *detail;
};

struct ferry_stage {
    struct ferry_config *config;
    enum ferry_config_origin origin;
    const char *label;           /* of a file or text, else "" */
    struct ferry_staged *staged; /* one per setting */
};

FERRY_CHECKED enum ferry_status ferry_stage_init(struct ferry_stage *stage,
                                                 struct ferry_config *config,
                                                 enum ferry_config_origin origin,
                                                 const char *label);
/* Takes over @value, also on failure. ERR_CONFIG if the source names the setting twice. */
FERRY_CHECKED enum ferry_status ferry_stage_put(struct ferry_stage *stage,
                                                const struct ferry_setting *setting,
                                                struct ferry_value *value, const char *detail);
/* Put all values into effect that no higher origin has set. Cannot fail; empties the stage. */
void ferry_stage_commit(struct ferry_stage *stage);
void ferry_stage_fini(struct ferry_stage *stage);

/* file.c: read a file, or JSON text, onto a stage of origin FILE. */
FERRY_CHECKED enum ferry_status ferry_stage_file(struct ferry_stage *stage, const char *path);
FERRY_CHECKED enum ferry_status ferry_stage_text(struct ferry_stage *stage, const char *json,
                                                 size_t len);

#endif
