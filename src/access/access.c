/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes what access control consists of. Runs on the thread that opens an engine.
 */
#include "access/access.h"

#include <stdlib.h>

#include "base/error.h"

enum ferry_status ferry_access_open(const struct ferry_access_options *options,
                                    struct ferry_access_control **access_out)
{
    struct ferry_access_control *access = calloc(1, sizeof(*access));
    enum ferry_status status = FERRY_OK;

    if (access == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "access control: out of memory");
    if (options->auth_key_file[0] != '\0')
        status = ferry_auth_open(options->auth_key_file, &access->auth);
    if (status == FERRY_OK)
        status = ferry_tls_open(&options->tls, &access->tls);
    if (status != FERRY_OK) {
        ferry_access_close(access);
        return status;
    }
    *access_out = access;
    return FERRY_OK;
}

void ferry_access_close(struct ferry_access_control *access)
{
    if (access == NULL)
        return;
    ferry_auth_close(access->auth);
    ferry_tls_close(access->tls);
    free(access);
}
