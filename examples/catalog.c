/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File segments: make one of two files known, and look at it as this host has it.
 *
 *     FERRY_METADATA_TYPE=etcd FERRY_METADATA_SERVERS=127.0.0.1:2379 ./catalog NAME FILE FILE
 *
 * Paths are absolute. Other hosts add their own paths with ferry_catalog_map(), or with
 * `ferry segment map`.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

int main(int argc, char **argv)
{
    struct ferry_catalog *catalog = NULL;
    char *json = NULL;

    if (argc != 4) {
        fprintf(stderr, "usage: %s NAME FILE FILE\n", argv[0]);
        return 2;
    }

    /* NULL: the settings of the environment. */
    enum ferry_status status = ferry_catalog_open(NULL, &catalog);
    if (status == FERRY_OK)
        status = ferry_catalog_register(catalog, argv[1], (const char *const *)&argv[2], 2,
                                        FERRY_NO_DEADLINE);
    if (status == FERRY_ERR_EXISTS) {
        /* The text says by whom; what is there is shown all the same. */
        fprintf(stderr, "%s\n", ferry_last_error_text());
        status = FERRY_OK;
    }
    if (status == FERRY_OK)
        status = ferry_catalog_describe(catalog, argv[1], FERRY_CATALOG_LOOK, FERRY_NO_DEADLINE,
                                        &json);
    if (status == FERRY_OK)
        printf("%s\n", json);
    else
        fprintf(stderr, "%s\n", ferry_last_error_text());
    ferry_text_free(json);
    ferry_catalog_close(catalog);
    return status == FERRY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
