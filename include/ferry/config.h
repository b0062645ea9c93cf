/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: every setting of an engine, where its value came from, and strict checks.
 *
 * A setting has a dotted name such as "transports.hp_tcp.worker_count". Values come from five
 * places, the first that names a setting wins: the API, the command line, the environment, a file,
 * the default. The order of calls does not matter. Unknown names, wrong types and values out of
 * range are errors that name the setting, the value and what was expected. `ferry config` prints
 * all of it. Example: examples/config.c.
 */
#ifndef FERRY_CONFIG_H
#define FERRY_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ferry_config;

/** Where a value came from; a higher one wins. */
enum ferry_config_origin {
    FERRY_ORIGIN_DEFAULT = 0,
    FERRY_ORIGIN_FILE = 1,
    FERRY_ORIGIN_ENVIRONMENT = 2,
    FERRY_ORIGIN_COMMAND_LINE = 3,
    FERRY_ORIGIN_API = 4,
};

/** One setting, as ferry_config_each() shows it. All text belongs to the configuration. */
struct ferry_config_entry {
    size_t struct_size;
    const char *name;          /* "transports.hp_tcp.worker_count" */
    const char *type;          /* "bool", "uint", "size", "string", "string list", "choice", ... */
    const char *unit;          /* "ms", "bytes", or "" */
    const char *value;         /* in effect, as text; secrets read "(set)" or "(not set)" */
    const char *default_value; /* as text */
    const char *expected;      /* "1..65535", "auto | uring | epoll", ... */
    const char *help;          /* one or two sentences */
    const char *environment;   /* "FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT" */
    enum ferry_config_origin origin;
    const char *origin_detail; /* file name, variable name, or "" */
};

/**
 * ferry_config_create() - a configuration that holds the defaults only.
 * @config_out: the configuration.
 *
 * Ownership: the caller's, until ferry_config_destroy().
 * Threads: any thread.
 * Return: FERRY_OK, FERRY_ERR_NO_MEMORY.
 */
FERRY_API_CHECKED enum ferry_status ferry_config_create(struct ferry_config **config_out);

/**
 * ferry_config_destroy() - free a configuration.
 * @config: a configuration or NULL. Engines opened with it keep their own copy.
 *
 * Ownership: @config is gone.
 * Threads: one thread at a time per configuration.
 * Return: nothing.
 */
FERRY_API void ferry_config_destroy(struct ferry_config *config);

/**
 * ferry_config_load_file() - read settings from a JSON file.
 * @config: a configuration.
 * @path:   a file in the layout of the published configuration files, at most 4 MiB.
 *
 * Keys of transports that this build does not have are accepted if they say "enable": false.
 * All or nothing: after an error the configuration is as before.
 *
 * Ownership: @path is copied.
 * Threads: one thread at a time per configuration.
 * Return: FERRY_OK; FERRY_ERR_CONFIG (the text names file, key, value and what was expected);
 *   FERRY_ERR_NO_MEMORY.
 */
FERRY_API_CHECKED enum ferry_status ferry_config_load_file(struct ferry_config *config,
                                                           const char *path);

/**
 * ferry_config_load_text() - the same from JSON text.
 * @config: a configuration.
 * @json:   the text.
 * @name:   what error messages call it, such as "MC_TENT_CONF".
 *
 * Ownership: both are copied.
 * Threads: one thread at a time per configuration.
 * Return: as ferry_config_load_file().
 */
FERRY_API_CHECKED enum ferry_status ferry_config_load_text(struct ferry_config *config,
                                                           const char *json, const char *name);

/**
 * ferry_config_load_environment() - take settings from FERRY_* variables.
 * @config: a configuration.
 *
 * FERRY_CONFIG names a file to load first; MC_TENT_CONF (a file or JSON text) is honoured if
 * FERRY_CONFIG is not set. A FERRY_* variable that is no setting is an error that names it.
 *
 * Ownership: values are copied.
 * Threads: one thread at a time per configuration; nobody may change the environment meanwhile.
 * Return: as ferry_config_load_file().
 */
FERRY_API_CHECKED enum ferry_status ferry_config_load_environment(struct ferry_config *config);

/**
 * ferry_config_set() - set one setting from text.
 * @config: a configuration.
 * @name:   the setting's name.
 * @value:  the value as text; lists are separated by commas.
 * @origin: FERRY_ORIGIN_API or FERRY_ORIGIN_COMMAND_LINE.
 *
 * Ownership: both strings are copied.
 * Threads: one thread at a time per configuration.
 * Return: FERRY_OK; FERRY_ERR_CONFIG (unknown name, wrong type, out of range); FERRY_ERR_INVALID;
 *   FERRY_ERR_NO_MEMORY.
 */
FERRY_API_CHECKED enum ferry_status ferry_config_set(struct ferry_config *config, const char *name,
                                                     const char *value,
                                                     enum ferry_config_origin origin);

/** Called once per setting, in a fixed order. The entry is valid during the call only. */
typedef void ferry_config_each_fn(void *arg, const struct ferry_config_entry *entry);

/**
 * ferry_config_each() - visit every setting with its value and origin.
 * @config: a configuration.
 * @fn:     called for each.
 * @arg:    passed to @fn.
 *
 * Ownership: entries belong to the configuration.
 * Threads: one thread at a time per configuration.
 * Return: nothing.
 */
FERRY_API void ferry_config_each(const struct ferry_config *config, ferry_config_each_fn *fn,
                                 void *arg);

/**
 * ferry_config_get() - the value in effect of one setting, as text.
 * @config:  a configuration.
 * @name:    the setting's name.
 * @buf:     where the text goes, always terminated.
 * @buf_len: size of @buf in bytes, > 0.
 *
 * Ownership: none.
 * Threads: one thread at a time per configuration.
 * Return: FERRY_OK; FERRY_ERR_NOT_FOUND; FERRY_ERR_TOO_LARGE (the text was cut).
 */
FERRY_API_CHECKED enum ferry_status ferry_config_get(const struct ferry_config *config,
                                                     const char *name, char *buf, size_t buf_len);

#ifdef __cplusplus
}
#endif

#endif
