/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS under the control server: GnuTLS, driven by libmicrohttpd. A client without a certificate
 * that a CA of ours has signed fails in the handshake, before a byte of a request is decrypted.
 * Server thread only, but for the options, which are for the daemon's start.
 */
#include <stdio.h>
#include <stdlib.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "control/request_private.h"

#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3"

/* GnuTLS calls back with a session of its own and nothing of ours. */
static _Thread_local struct ferry_control_server *running;

void ferry_control_tls_thread(struct ferry_control_server *server)
{
    running = server;
}

void ferry_control_tls_options(const struct ferry_control_server *server,
                               struct MHD_OptionItem items[FERRY_CONTROL_TLS_OPTIONS])
{
    const struct ferry_tls *tls = ferry_access_tls(server->options.access);
    size_t count = 0;

    if (tls != NULL) {
        items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0,
                                                 ferry_tls_cert(tls)->text};
        items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0,
                                                 ferry_tls_key(tls)->text};
        items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0,
                                                 ferry_tls_ca(tls)->text};
        items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0,
                                                 (void *)(uintptr_t)PRIORITIES};
    }
    items[count] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
}

static void note_trouble(gnutls_session_t session, unsigned status)
{
    gnutls_datum_t text = {0};
    int fd = gnutls_transport_get_int(session);

    if (running == NULL || gnutls_certificate_verification_status_print(
                               status, GNUTLS_CRT_X509, &text, 0) != GNUTLS_E_SUCCESS)
        return;
    for (struct ferry_list *link = running->connections.next; link != &running->connections;
         link = link->next) {
        struct ferry_control_connection *connection = FERRY_CONTAINER_OF(
            link, struct ferry_control_connection, link);

        if (connection->fd == fd)
            snprintf(connection->tls_trouble, sizeof(connection->tls_trouble), "%s", text.data);
    }
    gnutls_free(text.data);
}

/* Chain, dates and purpose; a client's name is nobody's business. */
static int verify(gnutls_session_t session)
{
    gnutls_typed_vdata_st purpose = {
        .type = GNUTLS_DT_KEY_PURPOSE_OID,
        .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT,
    };
    unsigned status = 0;

    if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) != GNUTLS_E_SUCCESS)
        return GNUTLS_E_CERTIFICATE_ERROR;
    if (status == 0)
        return 0;
    note_trouble(session, status);
    /* Neither GnuTLS nor libmicrohttpd tells the client by itself. */
    gnutls_alert_send(session, GNUTLS_AL_FATAL,
                      (status & GNUTLS_CERT_EXPIRED) != 0            ? GNUTLS_A_CERTIFICATE_EXPIRED
                      : (status & GNUTLS_CERT_SIGNER_NOT_FOUND) != 0 ? GNUTLS_A_UNKNOWN_CA
                                                                     : GNUTLS_A_BAD_CERTIFICATE);
    return GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR;
}

void ferry_control_tls_started(const struct ferry_control_server *server,
                               struct MHD_Connection *mhd_connection)
{
    const union MHD_ConnectionInfo *info;

    if (ferry_access_tls(server->options.access) == NULL)
        return;
    info = MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL)
        return; /* no session: its handshake cannot succeed */
    gnutls_certificate_server_set_request(info->tls_session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_function(info->tls_session, verify);
}

void ferry_control_tls_closed(struct ferry_control_server *server,
                              struct MHD_Connection *mhd_connection,
                              const struct ferry_control_connection *connection)
{
    if (ferry_access_tls(server->options.access) == NULL || connection->asked)
        return;
    ferry_control_note(server, mhd_connection,
                       connection->tls_trouble[0] != '\0' ? FERRY_REFUSAL_TLS
                                                          : FERRY_REFUSAL_NO_TLS,
                       connection->tls_trouble);
}
