/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys themselves, for the two files that touch them. They lie in a page of their own that core
 * dumps leave out and that is wiped before it is given back.
 */
#ifndef FERRY_ACCESS_AUTH_PRIVATE_H
#define FERRY_ACCESS_AUTH_PRIVATE_H

#include "access/auth.h"

struct ferry_auth_key {
    uint32_t len; /* FERRY_AUTH_KEY_BYTES_MIN..FERRY_AUTH_KEY_BYTES_MAX */
    uint8_t bytes[FERRY_AUTH_KEY_BYTES_MAX];
};

struct ferry_auth {
    uint32_t count; /* 1..FERRY_AUTH_KEYS_MAX */
    struct ferry_auth_key keys[FERRY_AUTH_KEYS_MAX];
};

#endif
