/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: where a value comes from, and what a wrong one says.
 *
 *     FERRY_TRANSPORTS_HP_TCP_PORT=7001 ./config
 *
 * The first place that names a setting wins: the program, the command line, the environment, a
 * file, the default. The order of the calls does not matter.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

static void show(void *arg, const struct ferry_config_entry *entry)
{
    static const char *const origins[] = {"default", "file", "environment", "command line",
                                          "program"};
    (void)arg;
    if (entry->origin != FERRY_ORIGIN_DEFAULT)
        printf("%s = %s (%s)\n", entry->name, entry->value, origins[entry->origin]);
}

int main(void)
{
    struct ferry_config *config = NULL;

    enum ferry_status status = ferry_config_create(&config);
    if (status == FERRY_OK)
        status = ferry_config_set(config, "transports.hp_tcp.worker_count", "2", FERRY_ORIGIN_API);
    if (status == FERRY_OK)
        status = ferry_config_load_environment(config);
    if (status != FERRY_OK) {
        fprintf(stderr, "%s\n", ferry_last_error_text());
        ferry_config_destroy(config);
        return EXIT_FAILURE;
    }
    ferry_config_each(config, show, NULL);

    /* Strict: a value out of range is refused, and the text says what was expected. */
    status = ferry_config_set(config, "transports.hp_tcp.worker_count", "0", FERRY_ORIGIN_API);
    printf("worker_count 0: %s\n", status == FERRY_OK ? "accepted" : ferry_last_error_text());

    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    options.config = config;
    status = ferry_engine_open(&options, &engine);
    ferry_config_destroy(config); /* the engine has its own copy */
    if (status != FERRY_OK) {
        fprintf(stderr, "%s\n", ferry_last_error_text());
        return EXIT_FAILURE;
    }
    printf("running as %s\n", ferry_engine_segment_name(engine));
    return ferry_engine_close(engine) == FERRY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
