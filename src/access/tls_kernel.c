/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing an established TLS connection to the kernel, both directions. OpenSSL 3.0 does that by
 * itself for sending only, so the traffic keys are derived here, from the secrets that it gives to
 * its key log callback (RFC 8446, 7.3), and the kernel begins with record 0: no side of ours sends
 * a ticket or anything else between the handshake and its first data.
 *
 * What the kernel cannot do, a change of keys, neither side asks for.
 */
#include "access/tls_private.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"

#ifndef SOL_TLS
#define SOL_TLS 282
#endif

#define NONCE_SIZE 12u
#define SALT_SIZE  4u
#define LABEL_MAX  32u

/* ---- secrets ---- */

/* "CLIENT_TRAFFIC_SECRET_0 <random in hex> <secret in hex>" */
static void keep(struct ferry_tls_secret *secret, const char *line, const char *label)
{
    size_t label_len = strlen(label);
    const char *random;
    const char *hex;

    if (strncmp(line, label, label_len) != 0 || line[label_len] != ' ')
        return;
    random = line + label_len + 1;
    hex = strchr(random, ' ');
    if (hex == NULL ||
        ferry_hex_decode(hex + 1, secret->bytes, sizeof(secret->bytes), &secret->len) != FERRY_OK)
        secret->len = 0;
}

void ferry_tls_keep_secret(const SSL *ssl, const char *line)
{
    struct ferry_tls_stream *stream = SSL_get_app_data(ssl);

    if (stream == NULL)
        return;
    keep(&stream->initiator_secret, line, "CLIENT_TRAFFIC_SECRET_0");
    keep(&stream->target_secret, line, "SERVER_TRAFFIC_SECRET_0");
}

/*
 * HKDF-Expand-Label(secret, @label, "", @size) of RFC 8446; @size is at most one digest, so that
 * the first block is all of it.
 */
static bool expand(const struct ferry_tls_secret *secret, const char *label, uint8_t *out,
                   size_t size)
{
    const EVP_MD *md = secret->len == 48 ? EVP_sha384() : EVP_sha256();
    uint8_t info[4 + LABEL_MAX + 1] = {0, (uint8_t)size, (uint8_t)(6 + strlen(label))};
    uint8_t block[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    size_t end = 3;
    bool ok;

    FERRY_ASSERT(size <= 32 && 6 + strlen(label) <= LABEL_MAX);
    memcpy(info + end, "tls13 ", 6);
    memcpy(info + end + 6, label, strlen(label));
    end += 6 + strlen(label);
    info[end++] = 0; /* no context */
    info[end++] = 1; /* the first block */
    ok = HMAC(md, secret->bytes, (int)secret->len, info, end, block, &len) != NULL && len >= size;
    if (ok)
        memcpy(out, block, size);
    OPENSSL_cleanse(block, sizeof(block));
    return ok;
}

/* ---- the socket ---- */

/* What the kernel is told about one direction. */
union crypto_info {
    struct tls_crypto_info info;
    struct tls12_crypto_info_aes_gcm_128 aes128;
    struct tls12_crypto_info_aes_gcm_256 aes256;
    struct tls12_crypto_info_chacha20_poly1305 chacha;
};

/* Size of what was filled in; 0: a cipher that the kernel lacks. Sequence numbers begin at 0. */
static size_t fill(const SSL *ssl, const struct ferry_tls_secret *secret, union crypto_info *crypto)
{
    uint32_t cipher = SSL_CIPHER_get_id(SSL_get_current_cipher(ssl));
    uint8_t nonce[NONCE_SIZE];
    bool ok;

    memset(crypto, 0, sizeof(*crypto));
    crypto->info.version = TLS_1_3_VERSION;
    if (secret->len == 0 || !expand(secret, "iv", nonce, sizeof(nonce)))
        return 0;
    switch (cipher) {
    case TLS1_3_CK_AES_128_GCM_SHA256:
        crypto->info.cipher_type = TLS_CIPHER_AES_GCM_128;
        memcpy(crypto->aes128.salt, nonce, SALT_SIZE);
        memcpy(crypto->aes128.iv, nonce + SALT_SIZE, sizeof(crypto->aes128.iv));
        ok = expand(secret, "key", crypto->aes128.key, sizeof(crypto->aes128.key));
        return ok ? sizeof(crypto->aes128) : 0;
    case TLS1_3_CK_AES_256_GCM_SHA384:
        crypto->info.cipher_type = TLS_CIPHER_AES_GCM_256;
        memcpy(crypto->aes256.salt, nonce, SALT_SIZE);
        memcpy(crypto->aes256.iv, nonce + SALT_SIZE, sizeof(crypto->aes256.iv));
        ok = expand(secret, "key", crypto->aes256.key, sizeof(crypto->aes256.key));
        return ok ? sizeof(crypto->aes256) : 0;
    case TLS1_3_CK_CHACHA20_POLY1305_SHA256:
        crypto->info.cipher_type = TLS_CIPHER_CHACHA20_POLY1305;
        memcpy(crypto->chacha.iv, nonce, sizeof(crypto->chacha.iv));
        ok = expand(secret, "key", crypto->chacha.key, sizeof(crypto->chacha.key));
        return ok ? sizeof(crypto->chacha) : 0;
    default:
        return 0;
    }
}

static bool give(int fd, int direction, const union crypto_info *crypto, size_t size)
{
    return setsockopt(fd, SOL_TLS, direction, crypto, (socklen_t)size) == 0;
}

enum ferry_tls_kernel ferry_tls_stream_to_kernel(struct ferry_tls_stream *stream, int fd)
{
    bool initiator = stream->initiator;
    enum ferry_tls_kernel result = FERRY_TLS_KERNEL_NO;
    union crypto_info rx;
    union crypto_info tx;
    size_t size;

    FERRY_ASSERT(!stream->handshaking && stream->in_end == stream->in_begin);
    FERRY_ASSERT(stream->out_end == stream->out_begin);
    if (!stream->tls->kernel)
        return FERRY_TLS_KERNEL_NO;
    size = fill(stream->ssl, initiator ? &stream->target_secret : &stream->initiator_secret, &rx);
    if (size > 0 &&
        fill(stream->ssl, initiator ? &stream->initiator_secret : &stream->target_secret, &tx) ==
            size &&
        setsockopt(fd, SOL_TCP, TCP_ULP, "tls", sizeof("tls")) == 0 && give(fd, TLS_RX, &rx, size))
        /* From here on there is no way back to OpenSSL. */
        result = give(fd, TLS_TX, &tx, size) ? FERRY_TLS_KERNEL_YES : FERRY_TLS_KERNEL_BROKEN;
    OPENSSL_cleanse(&rx, sizeof(rx));
    OPENSSL_cleanse(&tx, sizeof(tx));
    OPENSSL_cleanse(&stream->initiator_secret, sizeof(stream->initiator_secret));
    OPENSSL_cleanse(&stream->target_secret, sizeof(stream->target_secret));
    return result;
}

/* A kernel that has it refuses a socket that is not connected; one that lacks it knows no "tls". */
bool ferry_tls_kernel_usable(void)
{
    FERRY_AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && setsockopt(fd, SOL_TCP, TCP_ULP, "tls", sizeof("tls")) != 0 &&
           errno == ENOTCONN;
}
