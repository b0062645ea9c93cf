/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS as an engine uses it: one certificate with its key, and the CAs whose certificates peers must
 * show. TLS 1.3 and nothing older, in both directions mutual, no tickets, no resumption. The files
 * are read once, when the engine opens; the control plane gets their texts (GnuTLS, libcurl), the
 * data path a context of OpenSSL's (tls_stream.h).
 *
 * What is checked of a peer: a chain to one of the CAs, dates, purpose; an initiator also checks
 * that the certificate names the host it connects to, unless verify_names is off. A target cannot
 * know the names of initiators and does not look at them. Revocation lists are not read.
 *
 * Any thread; constant after open.
 */
#ifndef FERRY_ACCESS_TLS_H
#define FERRY_ACCESS_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_TLS_FILE_BYTES_MAX ((size_t)1 << 20)

struct ferry_tls;

/* Paths; all three are given, or none is. */
struct ferry_tls_options {
    const char *cert; /* PEM: the certificate, then those between it and the CA */
    const char *key;  /* PEM, not encrypted */
    const char *ca;   /* PEM, one or more */
    bool verify_names;
    bool kernel; /* let the kernel encrypt where it can */
};

/* A PEM text, ended by a NUL that @len does not count. */
struct ferry_tls_pem {
    char *text;
    size_t len;
};

/* *@tls_out is NULL if no path is given. ERR_CONFIG with text, the remedy in it; ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_tls_open(const struct ferry_tls_options *options,
                                               struct ferry_tls **tls_out);
/* Wipes the key. NULL is harmless. Given: nobody uses it any more, streams included. */
void ferry_tls_close(struct ferry_tls *tls);

/* Borrowed for the life of @tls; GnuTLS and libcurl read them. */
const struct ferry_tls_pem *ferry_tls_cert(const struct ferry_tls *tls);
const struct ferry_tls_pem *ferry_tls_key(const struct ferry_tls *tls);
const struct ferry_tls_pem *ferry_tls_ca(const struct ferry_tls *tls);
bool ferry_tls_verifies_names(const struct ferry_tls *tls);

#endif
