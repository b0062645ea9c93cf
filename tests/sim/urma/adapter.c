/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated fabric as a shared object that an engine loads by transports.ub.adapter, so that
 * the shipped command runs on it. Reads its place from the environment (see urma_sim.h): the path
 * of a fabric that exists, and the node that this process is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/urma/urma_sim.h"

__attribute__((visibility("default"))) const struct ferry_urma_ops *ferry_urma_adapter(void);

static struct usim_host host;
static struct ferry_urma_ops ops;
static const struct ferry_urma_ops *under;

/* The library's users have nothing to hand to it: this process is one host. */
static struct ferry_urma_status open_here(const struct ferry_urma_open_options *options,
                                          struct ferry_urma_runtime **runtime_out)
{
    struct ferry_urma_open_options with_self = *options;

    with_self.self = &host;
    return under->open(&with_self, runtime_out);
}

const struct ferry_urma_ops *ferry_urma_adapter(void)
{
    const char *place = getenv(USIM_VARIABLE);
    const char *colon = place != NULL ? strrchr(place, ':') : NULL;
    char path[512];

    if (colon != NULL && host.sim == NULL && (size_t)(colon - place) < sizeof(path)) {
        struct usim_options options = {.path = path, .attach = true};

        memcpy(path, place, (size_t)(colon - place));
        path[colon - place] = '\0';
        host.sim = usim_open(&options);
        host.node = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
    usim_shim_host(&host);
    under = getenv(USIM_VARIABLE_NATIVE) != NULL ? usim_native_table() : usim_table();
    ops = *under;
    ops.open = open_here;
    return &ops;
}
