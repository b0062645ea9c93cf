/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access control of one engine: what its peers have to prove before a request of theirs is read,
 * and what it proves to them. Built when an engine opens, handed to the data path and to the
 * control plane, constant after that but for the counters.
 */
#ifndef FERRY_ACCESS_ACCESS_H
#define FERRY_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include <ferry/status.h>

#include "access/auth.h"
#include "access/refusals.h"
#include "access/tls.h"
#include "base/compiler.h"

/* Paths; "" for what is not in use. */
struct ferry_access_options {
    const char *auth_key_file;
    struct ferry_tls_options tls;
};

struct ferry_access_control {
    struct ferry_auth *auth; /* NULL: nobody proves a key */
    struct ferry_tls *tls;   /* NULL: connections are plain */
    /* any thread, atomic */
    struct ferry_refusals data_refusals;
    struct ferry_refusals control_refusals;
};

/* ERR_CONFIG with text; ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_access_open(const struct ferry_access_options *options,
                                                  struct ferry_access_control **access_out);
/* NULL is harmless. Given: nobody uses it any more. */
void ferry_access_close(struct ferry_access_control *access);

/* Where there is none (the model rig, tests of single rooms) nothing is asked for. */
static inline const struct ferry_auth *ferry_access_auth(const struct ferry_access_control *access)
{
    return access != NULL ? access->auth : NULL;
}

static inline struct ferry_tls *ferry_access_tls(const struct ferry_access_control *access)
{
    return access != NULL ? access->tls : NULL;
}

/* True if a peer has to prove anything. */
static inline bool ferry_access_on(const struct ferry_access_control *access)
{
    return access != NULL && (access->auth != NULL || access->tls != NULL);
}

#endif
