/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a TLS context, for tls.c and tls_stream.c.
 */
#ifndef FERRY_ACCESS_TLS_PRIVATE_H
#define FERRY_ACCESS_TLS_PRIVATE_H

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "access/tls.h"
#include "access/tls_stream.h"

struct ferry_tls {
    struct ferry_tls_pem cert;
    struct ferry_tls_pem key; /* in pages that core dumps leave out */
    struct ferry_tls_pem ca;
    bool verify_names;
    bool kernel; /* the kernel can encrypt, and may */
    SSL_CTX *context;
    BIO_METHOD *bio_method;
};

/* The longest traffic secret: that of a SHA-384 cipher. */
#define FERRY_TLS_SECRET_MAX 48u

struct ferry_tls_secret {
    uint8_t bytes[FERRY_TLS_SECRET_MAX];
    size_t len; /* 0: not there */
};

struct ferry_tls_stream {
    struct ferry_tls *tls;
    SSL *ssl;
    bool initiator;
    bool handshaking;
    bool begun; /* the peer has begun with TLS */
    bool plain; /* with something else */
    /* ciphertext that was received: in[in_begin..in_end) */
    uint8_t *in;
    size_t in_size;
    size_t in_begin;
    size_t in_end;
    /* ciphertext to be sent: out[out_begin..out_end) */
    uint8_t *out;
    size_t out_size;
    size_t out_begin;
    size_t out_end;
    uint8_t *record; /* one record's plaintext while it is put together */
    /* for the kernel: what the sides encrypt with */
    struct ferry_tls_secret initiator_secret;
    struct ferry_tls_secret target_secret;
    char trouble[FERRY_TLS_TROUBLE_SIZE];
};

/* tls_stream.c: for the context. NULL: no memory. */
BIO_METHOD *ferry_tls_bio_method(void);
int ferry_tls_select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                              const unsigned char *in, unsigned in_len, void *arg);

/* tls_kernel.c */
bool ferry_tls_kernel_usable(void);
/* OpenSSL's callback for secrets, in the form of key log files; keeps those of the traffic. */
void ferry_tls_keep_secret(const SSL *ssl, const char *line);

/* The oldest error of libcrypto and libssl on this thread in words; empties their queue. */
void ferry_tls_error_text(char *buf, size_t size);

#endif
