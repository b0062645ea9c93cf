/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From three files to a TLS context; see tls.h. Runs on the thread that opens an engine. What peers
 * would refuse is an error here already: a key of another certificate, one that has expired, one
 * that none of the CAs has signed. Never asks a terminal for a password.
 */
#include "access/tls_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>

#include "access/secret_file.h"
#include "base/error.h"
#include "base/log.h"

/* The kernel knows all three; the first is the fastest. */
#define CIPHERS "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

void ferry_tls_error_text(char *buf, size_t size)
{
    unsigned long code = ERR_get_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;

    snprintf(buf, size, "%s", reason != NULL ? reason : "no reason given");
    ERR_clear_error();
}

/* ERR_CONFIG: "<setting>: <path> <what>: <OpenSSL's reason>". */
static enum ferry_status fail_file(const char *setting, const char *path, const char *what)
{
    char reason[160];

    ferry_tls_error_text(reason, sizeof(reason));
    return ferry_fail(FERRY_ERR_CONFIG, "%s: %.200s %s: %s", setting, path, what, reason);
}

/* Instead of a question on the terminal: an encrypted key is an error. */
static int no_password(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return 0;
}

static enum ferry_status read_pem(const char *setting, const char *path, bool secret,
                                  struct ferry_tls_pem *pem)
{
    pem->text = ferry_secret_alloc(FERRY_TLS_FILE_BYTES_MAX + 1);
    if (pem->text == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "%s: out of memory", setting);
    return ferry_secret_file_read(setting, path, secret, pem->text, FERRY_TLS_FILE_BYTES_MAX + 1,
                                  &pem->len);
}

static BIO *bio_of(const struct ferry_tls_pem *pem)
{
    return BIO_new_mem_buf(pem->text, (int)pem->len);
}

/* The end of a PEM text is an error to OpenSSL; anything else is one to us. */
static bool at_end(void)
{
    unsigned long code = ERR_peek_last_error();
    bool end = ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;

    if (end)
        ERR_clear_error();
    return end;
}

static enum ferry_status use_cert(struct ferry_tls *tls, const char *path)
{
    BIO *bio = bio_of(&tls->cert);
    X509 *cert = bio != NULL ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    bool ok = cert != NULL && SSL_CTX_use_certificate(tls->context, cert) == 1;

    X509_free(cert);
    while (ok && (cert = PEM_read_bio_X509(bio, NULL, no_password, NULL)) != NULL) {
        /* Takes the certificate over if it succeeds. */
        ok = SSL_CTX_add0_chain_cert(tls->context, cert) == 1;
        if (!ok)
            X509_free(cert);
    }
    ok = ok && at_end();
    BIO_free(bio);
    return ok ? FERRY_OK : fail_file("tls.cert", path, "holds no certificate in PEM");
}

static enum ferry_status use_key(struct ferry_tls *tls, const char *path)
{
    BIO *bio = bio_of(&tls->key);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    enum ferry_status status = FERRY_OK;

    if (key == NULL)
        status = fail_file("tls.key", path,
                           "holds no key in PEM that can be read without a password");
    else if (SSL_CTX_use_PrivateKey(tls->context, key) != 1 ||
             SSL_CTX_check_private_key(tls->context) != 1)
        status = fail_file("tls.key", path, "is not the key of the certificate in tls.cert");
    EVP_PKEY_free(key);
    BIO_free(bio);
    return status;
}

static enum ferry_status use_ca(struct ferry_tls *tls, const char *path)
{
    X509_STORE *store = SSL_CTX_get_cert_store(tls->context);
    BIO *bio = bio_of(&tls->ca);
    unsigned count = 0;
    bool ok = bio != NULL;
    X509 *cert;

    while (ok && (cert = PEM_read_bio_X509(bio, NULL, no_password, NULL)) != NULL) {
        ok = X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
        count++;
    }
    ok = ok && at_end() && count > 0;
    BIO_free(bio);
    return ok ? FERRY_OK : fail_file("tls.ca", path, "holds no certificates in PEM");
}

/* What every peer with the same CAs will ask of our certificate. */
static enum ferry_status check_own(struct ferry_tls *tls, const char *path)
{
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    STACK_OF(X509) *chain = NULL;
    enum ferry_status status = FERRY_OK;

    SSL_CTX_get0_chain_certs(tls->context, &chain);
    if (check == NULL || X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(tls->context),
                                             SSL_CTX_get0_certificate(tls->context), chain) != 1)
        status = ferry_fail(FERRY_ERR_NO_MEMORY, "tls.cert: out of memory");
    else if (X509_verify_cert(check) != 1)
        status = ferry_fail(FERRY_ERR_CONFIG,
                            "tls.cert: %.200s would be refused by every peer with the same tls.ca: "
                            "%s",
                            path, X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    return status;
}

static enum ferry_status new_context(struct ferry_tls *tls)
{
    tls->context = SSL_CTX_new(TLS_method());
    tls->bio_method = ferry_tls_bio_method();
    if (tls->context == NULL || tls->bio_method == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "tls: out of memory");
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_alpn_select_cb(tls->context, ferry_tls_select_protocol, NULL);
    if (tls->kernel)
        SSL_CTX_set_keylog_callback(tls->context, ferry_tls_keep_secret);
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(tls->context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(tls->context, CIPHERS) != 1 ||
        SSL_CTX_set_num_tickets(tls->context, 0) != 1) {
        ERR_clear_error();
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "tls: this OpenSSL has no TLS 1.3");
    }
    return FERRY_OK;
}

static enum ferry_status load(struct ferry_tls *tls, const struct ferry_tls_options *options)
{
    enum ferry_status status = read_pem("tls.cert", options->cert, false, &tls->cert);

    if (status == FERRY_OK)
        status = read_pem("tls.key", options->key, true, &tls->key);
    if (status == FERRY_OK)
        status = read_pem("tls.ca", options->ca, false, &tls->ca);
    if (status == FERRY_OK)
        status = new_context(tls);
    if (status == FERRY_OK)
        status = use_cert(tls, options->cert);
    if (status == FERRY_OK)
        status = use_key(tls, options->key);
    if (status == FERRY_OK)
        status = use_ca(tls, options->ca);
    if (status == FERRY_OK)
        status = check_own(tls, options->cert);
    return status;
}

enum ferry_status ferry_tls_open(const struct ferry_tls_options *options,
                                 struct ferry_tls **tls_out)
{
    unsigned given = (options->cert[0] != '\0') + (options->key[0] != '\0') +
                     (options->ca[0] != '\0');
    enum ferry_status status;
    struct ferry_tls *tls;

    *tls_out = NULL;
    if (given == 0)
        return FERRY_OK;
    if (given != 3)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "tls.cert, tls.key and tls.ca belong together; %s is missing",
                          options->cert[0] == '\0'  ? "tls.cert"
                          : options->key[0] == '\0' ? "tls.key"
                                                    : "tls.ca");
    tls = calloc(1, sizeof(*tls));
    if (tls == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "tls: out of memory");
    tls->verify_names = options->verify_names;
    tls->kernel = options->kernel && ferry_tls_kernel_usable();
    status = load(tls, options);
    if (status != FERRY_OK) {
        ferry_tls_close(tls);
        return status;
    }
    ferry_info("access", "TLS is on; data connections are encrypted by %s",
               tls->kernel ? "the kernel" : "OpenSSL");
    *tls_out = tls;
    return FERRY_OK;
}

void ferry_tls_close(struct ferry_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->bio_method);
    ferry_secret_free(tls->cert.text, FERRY_TLS_FILE_BYTES_MAX + 1);
    ferry_secret_free(tls->key.text, FERRY_TLS_FILE_BYTES_MAX + 1);
    ferry_secret_free(tls->ca.text, FERRY_TLS_FILE_BYTES_MAX + 1);
    free(tls);
}

const struct ferry_tls_pem *ferry_tls_cert(const struct ferry_tls *tls)
{
    return &tls->cert;
}

const struct ferry_tls_pem *ferry_tls_key(const struct ferry_tls *tls)
{
    return &tls->key;
}

const struct ferry_tls_pem *ferry_tls_ca(const struct ferry_tls *tls)
{
    return &tls->ca;
}

bool ferry_tls_verifies_names(const struct ferry_tls *tls)
{
    return tls->verify_names;
}
