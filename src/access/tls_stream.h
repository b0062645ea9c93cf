/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TLS connection as bytes in and bytes out: no socket, no waiting. Whoever drives it (the
 * reactor) receives ciphertext where input() says and sends what output() has.
 *
 *   opened --handshake()--> established --to_kernel()--> given to the kernel, over here
 *                                |
 *                                +--encrypt(), decrypt(), as long as it lives
 *
 * In the handshake not a byte more is asked for than it needs, so that what follows it is still in
 * the socket when the kernel takes over. Buffers are bounded: 17 KiB each way in the handshake,
 * 64 KiB and 68 KiB afterwards. One thread at a time.
 */
#ifndef FERRY_ACCESS_TLS_STREAM_H
#define FERRY_ACCESS_TLS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_TLS_TROUBLE_SIZE 200
/* Plaintext that one encrypt() takes at most. */
#define FERRY_TLS_CHUNK_BYTES (64u << 10)

struct ferry_tls;
struct ferry_tls_stream;

enum ferry_tls_result {
    FERRY_TLS_OK = 0,
    FERRY_TLS_WANTS = 1,  /* more input; send what is in output() first */
    FERRY_TLS_ENDED = 2,  /* the peer has ended the stream, and said so */
    FERRY_TLS_FAILED = 3, /* trouble() says why; an alert may be in output() */
};

enum ferry_tls_kernel {
    FERRY_TLS_KERNEL_NO,     /* goes on here */
    FERRY_TLS_KERNEL_YES,    /* the socket is plain to us from now on; only close() is left */
    FERRY_TLS_KERNEL_BROKEN, /* half of it: the connection is of no use any more */
};

/*
 * @host: what the peer's certificate must name, for an initiator that looks at names. Borrowed only
 * during the call. ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_tls_stream_open(struct ferry_tls *tls, bool initiator,
                                                      const char *host,
                                                      struct ferry_tls_stream **stream_out);
/* Wipes what was decrypted. NULL is harmless. */
void ferry_tls_stream_close(struct ferry_tls_stream *stream);

/* Room for ciphertext; in the handshake, exactly what it needs next. */
uint8_t *ferry_tls_stream_input(struct ferry_tls_stream *stream, size_t *room_out);
void ferry_tls_stream_received(struct ferry_tls_stream *stream, size_t len);
/* Ciphertext that waits to be sent; 0 bytes if there is none. */
const uint8_t *ferry_tls_stream_output(const struct ferry_tls_stream *stream, size_t *len_out);
void ferry_tls_stream_sent(struct ferry_tls_stream *stream, size_t len);

FERRY_CHECKED enum ferry_tls_result ferry_tls_stream_handshake(struct ferry_tls_stream *stream);
/* Given: established, no output waits. */
FERRY_CHECKED enum ferry_tls_kernel ferry_tls_stream_to_kernel(struct ferry_tls_stream *stream,
                                                               int fd);
/* Given: established. Grows the buffers to their working size. ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_tls_stream_grow(struct ferry_tls_stream *stream);

/* @got_out bytes, 1..len, when OK; nothing otherwise. */
FERRY_CHECKED enum ferry_tls_result
ferry_tls_stream_decrypt(struct ferry_tls_stream *stream, void *buf, size_t len, size_t *got_out);
/* Something may be decrypted without further input. */
bool ferry_tls_stream_holds_input(const struct ferry_tls_stream *stream);
/*
 * Encrypt from the beginning of @iov into output(), at most FERRY_TLS_CHUNK_BYTES; how much of it
 * was taken, 0 on failure. Given: no output waits.
 */
FERRY_CHECKED size_t ferry_tls_stream_encrypt(struct ferry_tls_stream *stream,
                                              const struct iovec *iov, uint32_t iov_count);

/* Why it failed, in words. */
const char *ferry_tls_stream_trouble(const struct ferry_tls_stream *stream);
/* The peer's very first bytes were no TLS: @first_out gets four of them. */
bool ferry_tls_stream_plain(const struct ferry_tls_stream *stream, uint8_t first_out[4]);

#endif
