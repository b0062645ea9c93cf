/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies that engines send each other over the control plane, and the paths they go to. Pure
 * functions, any thread.
 *
 * Known keys are strict: type, presence and length. Unknown keys are ignored, so that a later
 * engine can say more. Texts are UTF-8 without NUL.
 */
#ifndef FERRY_CONTROL_MESSAGE_H
#define FERRY_CONTROL_MESSAGE_H

#include <stddef.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_CONTROL_PATH_METRICS      "/metrics"
#define FERRY_CONTROL_PATH_METRICS_JSON "/metrics.json"
#define FERRY_CONTROL_PATH_SEGMENT      "/v1/segment"
#define FERRY_CONTROL_PATH_PROCESS      "/v1/process"
#define FERRY_CONTROL_PATH_TRANSPORTS   "/v1/transports"
#define FERRY_CONTROL_PATH_VERSION      "/v1/version"
#define FERRY_CONTROL_PATH_HEALTH       "/health"
#define FERRY_CONTROL_PATH_NOTIFY       "/v1/notify"
#define FERRY_CONTROL_PATH_GOODBYE      "/v1/goodbye"
#define FERRY_CONTROL_PATH_CHALLENGE    "/v1/challenge"

#define FERRY_NOTIFY_SENDER_MAX  255
#define FERRY_NOTIFY_NAME_MAX    255
#define FERRY_NOTIFY_MESSAGE_MAX 4095
#define FERRY_GOODBYE_NAME_MAX   255
#define FERRY_INCARNATION_LEN    32
#define FERRY_HEALTH_STATE_MAX   15
#define FERRY_HEALTH_CLOSING     "closing" /* the name is about to be free */

/*
 * Bytes of the longest body: every byte may be written as six ("\u001f"), and a peer may add space
 * and keys of its own. A server's body_max.
 */
#define FERRY_CONTROL_BODY_MAX (64u << 10)

struct ferry_notify_body {
    char sender[FERRY_NOTIFY_SENDER_MAX + 1]; /* the sender's segment name; may be "" */
    char name[FERRY_NOTIFY_NAME_MAX + 1];
    char message[FERRY_NOTIFY_MESSAGE_MAX + 1];
};

/* A peer leaves: its description and its connections are void from now on. */
struct ferry_goodbye_body {
    char segment[FERRY_GOODBYE_NAME_MAX + 1];    /* not empty */
    char incarnation[FERRY_INCARNATION_LEN + 1]; /* 32 lower-case hex digits */
};

/* What an engine says about itself: which segment it is, and whether it serves it. */
struct ferry_health_body {
    char state[FERRY_HEALTH_STATE_MAX + 1];   /* "ok", "starting", "closing"; later ones may come */
    char segment[FERRY_GOODBYE_NAME_MAX + 1]; /* not empty */
    char incarnation[FERRY_INCARNATION_LEN + 1]; /* 32 lower-case hex digits */
};

/*
 * JSON text, malloc'd and NUL-terminated. ERR_INVALID: a text is no UTF-8, or not of the form
 * above; ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_notify_encode(const struct ferry_notify_body *body,
                                                    char **text_out, size_t *len_out);
FERRY_CHECKED enum ferry_status ferry_goodbye_encode(const struct ferry_goodbye_body *body,
                                                     char **text_out, size_t *len_out);
FERRY_CHECKED enum ferry_status ferry_health_encode(const struct ferry_health_body *body,
                                                    char **text_out, size_t *len_out);

/* ERR_PROTOCOL with the path of the wrong key in the text; ERR_TOO_LARGE; ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_notify_decode(const char *text, size_t len,
                                                    struct ferry_notify_body *body_out);
/* Hex digits of both cases are accepted, the output is lower case. */
FERRY_CHECKED enum ferry_status ferry_goodbye_decode(const char *text, size_t len,
                                                     struct ferry_goodbye_body *body_out);
FERRY_CHECKED enum ferry_status ferry_health_decode(const char *text, size_t len,
                                                    struct ferry_health_body *body_out);

#endif
