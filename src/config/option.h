/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option tables: one per component, the only description of its settings. The parser, the
 * environment variables, --set, `ferry config` and the manual page text all come from them.
 *
 * A component defines a `static const` table beside its code and hands it to whoever builds the
 * configuration. Values are read by full name through the getters below; asking for a name or type
 * that no table has is a defect and asserts.
 */
#ifndef FERRY_CONFIG_OPTION_H
#define FERRY_CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/config.h>
#include <ferry/status.h>

enum ferry_option_type {
    FERRY_OPTION_BOOL,        /* true | false; JSON booleans only, text "true"/"false" elsewhere */
    FERRY_OPTION_UINT,        /* whole number min..max */
    FERRY_OPTION_SIZE,        /* bytes: a whole number, or text such as "64MiB"; min..max */
    FERRY_OPTION_AUTO,        /* "auto" (reads as 0) or a whole number min..max, min > 0 */
    FERRY_OPTION_STRING,      /* at most max bytes */
    FERRY_OPTION_CHOICE,      /* one of choices[] */
    FERRY_OPTION_LIST,        /* list of strings, at most max entries */
    FERRY_OPTION_SECRET,      /* a STRING that is never shown */
    FERRY_OPTION_PLACEHOLDER, /* accepted and ignored: a published key without meaning here */
};

struct ferry_option {
    const char *name; /* within the component: "worker_count" */
    enum ferry_option_type type;
    const char *default_value; /* as text, in the form --set takes */
    uint64_t min;
    uint64_t max;
    const char *const *choices; /* NULL-terminated, CHOICE only */
    const char *unit;           /* "ms", "bytes", "us", "" */
    const char *help;           /* one or two sentences, no full stop needed */
    const char *const *aliases; /* CHOICE only, or NULL: other spelling, choice, ..., NULL */
};

struct ferry_option_table {
    const char *component; /* "transports.hp_tcp"; "" for the top level */
    const struct ferry_option *options;
    size_t count;
};

/*
 * A configuration over these tables. Keys under transports.<name> without a table are accepted if
 * they say "enable": false. Tables must outlive the configuration. ERR_NO_MEMORY.
 */
enum ferry_status ferry_config_create_with(const struct ferry_option_table *const *tables,
                                           size_t count, struct ferry_config **config_out);
enum ferry_status ferry_config_copy(const struct ferry_config *config,
                                    struct ferry_config **copy_out);

bool ferry_config_bool(const struct ferry_config *config, const char *name);
/* UINT, SIZE, AUTO */
uint64_t ferry_config_u64(const struct ferry_config *config, const char *name);
/* STRING, CHOICE (an alias reads as the choice that it stands for), SECRET */
const char *ferry_config_string(const struct ferry_config *config, const char *name);
/* CHOICE: the index in choices */
uint32_t ferry_config_choice(const struct ferry_config *config, const char *name);
size_t ferry_config_list_len(const struct ferry_config *config, const char *name);
const char *ferry_config_list_item(const struct ferry_config *config, const char *name,
                                   size_t index);
enum ferry_config_origin ferry_config_origin_of(const struct ferry_config *config,
                                                const char *name);

#endif
