/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL between two buffers of ours; see tls_stream.h. Nothing here reads or writes a socket, so
 * that the reactor's rules hold: no call blocks. In steady state nothing is allocated.
 */
#include "access/tls_stream.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "access/tls_private.h"
#include "base/assert.h"
#include "base/error.h"

#define RECORD_HEADER      5u
#define RECORD_PLAIN_MAX   16384u
#define RECORD_CIPHER_MAX  (RECORD_PLAIN_MAX + 256u) /* RFC 8446, 5.2 */
#define HANDSHAKE_IN_SIZE  (RECORD_HEADER + RECORD_CIPHER_MAX)
#define HANDSHAKE_OUT_SIZE (RECORD_HEADER + RECORD_CIPHER_MAX)
#define IN_SIZE            (64u << 10)
#define OUT_SIZE           (FERRY_TLS_CHUNK_BYTES + (4u << 10))

/* Content types of a record; all that a handshake begins with is one of these. */
#define TYPE_FIRST 20u
#define TYPE_LAST  23u

void ferry_tls_stream_close(struct ferry_tls_stream *stream)
{
    if (stream == NULL)
        return;
    SSL_free(stream->ssl);
    free(stream->in);
    free(stream->out);
    if (stream->record != NULL)
        OPENSSL_cleanse(stream->record, RECORD_PLAIN_MAX);
    free(stream->record);
    OPENSSL_cleanse(stream, sizeof(*stream));
    free(stream);
}

/* ---- OpenSSL's side of the buffers ---- */

static int bio_read(BIO *bio, char *buf, size_t size, size_t *got_out)
{
    struct ferry_tls_stream *stream = BIO_get_data(bio);
    size_t have = stream->in_end - stream->in_begin;
    size_t take = have < size ? have : size;

    BIO_clear_retry_flags(bio);
    *got_out = take;
    if (take == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(buf, stream->in + stream->in_begin, take);
    stream->in_begin += take;
    return 1;
}

static int bio_write(BIO *bio, const char *buf, size_t size, size_t *put_out)
{
    struct ferry_tls_stream *stream = BIO_get_data(bio);
    size_t room = stream->out_size - stream->out_end;
    size_t take = room < size ? room : size;

    BIO_clear_retry_flags(bio);
    *put_out = take;
    if (take == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(stream->out + stream->out_end, buf, take);
    stream->out_end += take;
    return 1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD *ferry_tls_bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "ferry buffers");

    if (method != NULL && (BIO_meth_set_read_ex(method, bio_read) != 1 ||
                           BIO_meth_set_write_ex(method, bio_write) != 1 ||
                           BIO_meth_set_ctrl(method, bio_control) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- beginning ---- */

/* "ferry/1": who comes for something else is in the wrong place. */
static const unsigned char protocol[] = {7, 'f', 'e', 'r', 'r', 'y', '/', '1'};

int ferry_tls_select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                              const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    for (unsigned at = 0; at < in_len; at += in[at] + 1u) {
        if (in[at] != protocol[0] || at + sizeof(protocol) > in_len ||
            memcmp(in + at, protocol, sizeof(protocol)) != 0)
            continue;
        *out = protocol + 1;
        *out_len = protocol[0];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool expect_name(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    struct in6_addr any;

    if (inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, host, 0) == 1 &&
           SSL_set_tlsext_host_name(ssl, host) == 1;
}

static bool set_up(struct ferry_tls_stream *stream, bool initiator, const char *host)
{
    BIO *bio = BIO_new(stream->tls->bio_method);

    if (bio == NULL)
        return false;
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(stream->ssl, bio, bio); /* one reference serves both */
    if (SSL_set_app_data(stream->ssl, stream) != 1)
        return false;
    if (!initiator) {
        SSL_set_accept_state(stream->ssl);
        return true;
    }
    SSL_set_connect_state(stream->ssl);
    return SSL_set_alpn_protos(stream->ssl, protocol, sizeof(protocol)) == 0 &&
           (!stream->tls->verify_names || host == NULL || expect_name(stream->ssl, host));
}

enum ferry_status ferry_tls_stream_open(struct ferry_tls *tls, bool initiator, const char *host,
                                        struct ferry_tls_stream **stream_out)
{
    struct ferry_tls_stream *stream = calloc(1, sizeof(*stream));
    bool ok = stream != NULL;

    if (ok) {
        stream->tls = tls;
        stream->initiator = initiator;
        stream->handshaking = true;
        stream->in = malloc(HANDSHAKE_IN_SIZE);
        stream->in_size = HANDSHAKE_IN_SIZE;
        stream->out = malloc(HANDSHAKE_OUT_SIZE);
        stream->out_size = HANDSHAKE_OUT_SIZE;
        stream->ssl = SSL_new(tls->context);
        ok = stream->in != NULL && stream->out != NULL && stream->ssl != NULL &&
             set_up(stream, initiator, host);
    }
    ERR_clear_error();
    if (!ok) {
        ferry_tls_stream_close(stream);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "tls: out of memory for a connection");
    }
    *stream_out = stream;
    return FERRY_OK;
}

/* ---- buffers ---- */

/* Bytes that the record in the handshake's buffer still lacks. */
static size_t record_lacks(const struct ferry_tls_stream *stream)
{
    size_t have = stream->in_end - stream->in_begin;
    const uint8_t *record = stream->in + stream->in_begin;
    size_t whole = RECORD_HEADER;

    if (have >= RECORD_HEADER)
        whole += (size_t)record[3] << 8 | record[4];
    return whole - have;
}

uint8_t *ferry_tls_stream_input(struct ferry_tls_stream *stream, size_t *room_out)
{
    if (stream->in_begin > 0) {
        memmove(stream->in, stream->in + stream->in_begin, stream->in_end - stream->in_begin);
        stream->in_end -= stream->in_begin;
        stream->in_begin = 0;
    }
    *room_out = stream->in_size - stream->in_end;
    if (stream->handshaking && record_lacks(stream) < *room_out)
        *room_out = record_lacks(stream);
    FERRY_ASSERT(*room_out > 0);
    return stream->in + stream->in_end;
}

void ferry_tls_stream_received(struct ferry_tls_stream *stream, size_t len)
{
    FERRY_ASSERT(len <= stream->in_size - stream->in_end);
    stream->in_end += len;
}

const uint8_t *ferry_tls_stream_output(const struct ferry_tls_stream *stream, size_t *len_out)
{
    *len_out = stream->out_end - stream->out_begin;
    return stream->out + stream->out_begin;
}

void ferry_tls_stream_sent(struct ferry_tls_stream *stream, size_t len)
{
    FERRY_ASSERT(len <= stream->out_end - stream->out_begin);
    stream->out_begin += len;
    if (stream->out_begin == stream->out_end) {
        stream->out_begin = 0;
        stream->out_end = 0;
    }
}

/* Given: established, and with nothing received behind the handshake. */
enum ferry_status ferry_tls_stream_grow(struct ferry_tls_stream *stream)
{
    uint8_t *in = malloc(IN_SIZE);
    uint8_t *out = malloc(OUT_SIZE);

    FERRY_ASSERT(!stream->handshaking && stream->in_end == stream->in_begin);
    FERRY_ASSERT(stream->out_end == stream->out_begin);
    stream->record = malloc(RECORD_PLAIN_MAX);
    if (in == NULL || out == NULL || stream->record == NULL) {
        free(in);
        free(out);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "tls: out of memory for a connection");
    }
    free(stream->in);
    free(stream->out);
    stream->in = in;
    stream->in_size = IN_SIZE;
    stream->out = out;
    stream->out_size = OUT_SIZE;
    stream->in_begin = stream->in_end = 0;
    stream->out_begin = stream->out_end = 0;
    return FERRY_OK;
}

/* ---- handshake ---- */

const char *ferry_tls_stream_trouble(const struct ferry_tls_stream *stream)
{
    return stream->trouble;
}

bool ferry_tls_stream_plain(const struct ferry_tls_stream *stream, uint8_t first_out[4])
{
    if (stream->plain)
        memcpy(first_out, stream->in + stream->in_begin, 4);
    return stream->plain;
}

static enum ferry_tls_result fail(struct ferry_tls_stream *stream, const char *what)
{
    long verdict = SSL_get_verify_result(stream->ssl);
    char reason[120];

    ferry_tls_error_text(reason, sizeof(reason));
    if (what != NULL)
        snprintf(stream->trouble, sizeof(stream->trouble), "%s", what);
    else if (verdict != X509_V_OK)
        snprintf(stream->trouble, sizeof(stream->trouble), "the peer's certificate: %s",
                 X509_verify_cert_error_string(verdict));
    else
        snprintf(stream->trouble, sizeof(stream->trouble), "%s", reason);
    return FERRY_TLS_FAILED;
}

/* A whole record is in, or what came is none. */
static enum ferry_tls_result check_record(struct ferry_tls_stream *stream)
{
    const uint8_t *record = stream->in + stream->in_begin;
    size_t have = stream->in_end - stream->in_begin;

    if (have < RECORD_HEADER)
        return FERRY_TLS_WANTS;
    if (!stream->begun && (record[0] < TYPE_FIRST || record[0] > TYPE_LAST || record[1] != 3)) {
        stream->plain = true;
        return fail(stream, "what the peer says is no TLS");
    }
    stream->begun = true;
    if (have + record_lacks(stream) > HANDSHAKE_IN_SIZE)
        return fail(stream, "a record that is too long");
    return record_lacks(stream) > 0 ? FERRY_TLS_WANTS : FERRY_TLS_OK;
}

static enum ferry_tls_result established(struct ferry_tls_stream *stream)
{
    const unsigned char *name = NULL;
    unsigned len = 0;

    SSL_get0_alpn_selected(stream->ssl, &name, &len);
    if (len == 0)
        return fail(stream, "the peer does not come for ferry/1 (ALPN)");
    stream->handshaking = false;
    return FERRY_TLS_OK;
}

enum ferry_tls_result ferry_tls_stream_handshake(struct ferry_tls_stream *stream)
{
    enum ferry_tls_result checked = FERRY_TLS_OK;
    int rc;

    FERRY_ASSERT(stream->handshaking);
    /* Only whole records go in: then nothing of what follows the last one is taken. */
    if (stream->in_end != stream->in_begin)
        checked = check_record(stream);
    if (checked != FERRY_TLS_OK)
        return checked;
    ERR_clear_error();
    rc = SSL_do_handshake(stream->ssl);
    if (rc == 1)
        return established(stream);
    switch (SSL_get_error(stream->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: /* the output buffer is full: send it, then go on */
        ERR_clear_error();
        return FERRY_TLS_WANTS;
    default:
        return fail(stream, NULL);
    }
}

/* ---- data ---- */

bool ferry_tls_stream_holds_input(const struct ferry_tls_stream *stream)
{
    return stream->in_end != stream->in_begin || SSL_pending(stream->ssl) > 0;
}

enum ferry_tls_result ferry_tls_stream_decrypt(struct ferry_tls_stream *stream, void *buf,
                                               size_t len, size_t *got_out)
{
    int rc = SSL_read_ex(stream->ssl, buf, len, got_out);

    if (FERRY_LIKELY(rc == 1))
        return FERRY_TLS_OK;
    switch (SSL_get_error(stream->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        return FERRY_TLS_WANTS;
    case SSL_ERROR_ZERO_RETURN:
        return FERRY_TLS_ENDED;
    default:
        return fail(stream, NULL);
    }
}

static bool put_record(struct ferry_tls_stream *stream, const void *plain, size_t len)
{
    size_t written = 0;

    if (SSL_write_ex(stream->ssl, plain, len, &written) == 1 && written == len)
        return true;
    (void)fail(stream, NULL);
    return false;
}

/*
 * One step of filling records: small pieces, such as a header and the beginning of its payload, are
 * put together in stream->record (*@held bytes of it); what fills a record alone is encrypted from
 * where it is. How much was taken; 0 on failure.
 */
static size_t put_some(struct ferry_tls_stream *stream, const uint8_t *at, size_t left,
                       size_t *held)
{
    size_t room = RECORD_PLAIN_MAX - *held;
    size_t step = left < room ? left : room;

    if (step == RECORD_PLAIN_MAX)
        return put_record(stream, at, step) ? step : 0;
    memcpy(stream->record + *held, at, step);
    *held += step;
    if (*held < RECORD_PLAIN_MAX)
        return step;
    *held = 0;
    return put_record(stream, stream->record, RECORD_PLAIN_MAX) ? step : 0;
}

_Static_assert(FERRY_TLS_CHUNK_BYTES % RECORD_PLAIN_MAX == 0, "a chunk is whole records");

size_t ferry_tls_stream_encrypt(struct ferry_tls_stream *stream, const struct iovec *iov,
                                uint32_t iov_count)
{
    size_t taken = 0;
    size_t held = 0;

    for (uint32_t i = 0; i < iov_count; i++) {
        const uint8_t *at = iov[i].iov_base;
        size_t left = iov[i].iov_len;

        while (left > 0 && taken < FERRY_TLS_CHUNK_BYTES) {
            size_t step = put_some(stream, at, left, &held);

            if (step == 0)
                return 0;
            at += step;
            left -= step;
            taken += step;
        }
    }
    if (held > 0 && !put_record(stream, stream->record, held))
        return 0;
    return taken;
}
