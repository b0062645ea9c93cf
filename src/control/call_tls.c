/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of calls to peers: OpenSSL under libcurl, with the texts that the engine read when it opened.
 * Strangers, such as a metadata store behind https, are checked against the system's CAs and are
 * shown nothing. Control thread only.
 */
#include <string.h>

#include "access/access.h"
#include "control/call.h"

static const struct ferry_tls *tls_of(const struct ferry_http_work *work)
{
    return work->call->party != FERRY_HTTP_STRANGER ? ferry_access_tls(work->access) : NULL;
}

static bool set_blob(CURL *easy, CURLoption option, const struct ferry_tls_pem *pem)
{
    struct curl_blob blob = {.data = pem->text, .len = pem->len, .flags = CURL_BLOB_NOCOPY};

    return curl_easy_setopt(easy, option, &blob) == CURLE_OK;
}

bool ferry_http_tls_begin(struct ferry_http_work *work)
{
    const struct ferry_tls *tls = tls_of(work);
    CURL *easy = work->easy;

    if (tls == NULL)
        return true;
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, ferry_tls_verifies_names(tls) ? 2L : 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
    return curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CAINFO, NULL) == CURLE_OK &&
           set_blob(easy, CURLOPT_CAINFO_BLOB, ferry_tls_ca(tls)) &&
           set_blob(easy, CURLOPT_SSLCERT_BLOB, ferry_tls_cert(tls)) &&
           set_blob(easy, CURLOPT_SSLKEY_BLOB, ferry_tls_key(tls));
}

bool ferry_http_tls_refused(const struct ferry_http_work *work, CURLcode result)
{
    if (tls_of(work) == NULL)
        return false;
    /* libcurl has no code for an alert; OpenSSL's words are all there is. */
    return result == CURLE_SSL_CONNECT_ERROR || result == CURLE_PEER_FAILED_VERIFICATION ||
           strstr(work->curl_error, "alert") != NULL;
}

const char *ferry_http_tls_hint(const struct ferry_http_work *work, CURLcode result)
{
    bool cut = result == CURLE_GOT_NOTHING || result == CURLE_RECV_ERROR ||
               result == CURLE_SEND_ERROR;

    if (work->call->party == FERRY_HTTP_STRANGER)
        return "";
    if (tls_of(work) == NULL)
        return cut || result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_WEIRD_SERVER_REPLY
                   ? "; if the peer uses TLS, set tls.cert, tls.key and tls.ca here, too"
                   : "";
    if (result == CURLE_PEER_FAILED_VERIFICATION)
        return "; its certificate must come from a CA in tls.ca, be valid now, and name the "
               "address "
               "that it is asked at (tls.verify_names)";
    if (result == CURLE_SSL_CONNECT_ERROR)
        return "; set tls.cert, tls.key and tls.ca there as they are here";
    return cut ? "; if it does not accept our certificate (tls.cert), its log says so" : "";
}
