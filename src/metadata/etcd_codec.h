/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What etcd's JSON gateway is asked and how it answers (API v3, etcd 3.4 and later): bodies are
 * built and replies are read here, and nowhere else. Pure; any thread. Private to metadata/.
 *
 * The gateway writes 64-bit numbers as strings, leaves out whatever is zero, false or empty, and
 * takes and gives bytes in base64. A reply is foreign input: everything is checked, bounded, and
 * refused with ERR_METADATA.
 */
#ifndef FERRY_METADATA_ETCD_CODEC_H
#define FERRY_METADATA_ETCD_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "base/text.h"

/* Bytes of a reply, and of a token. */
#define FERRY_ETCD_REPLY_MAX  (96u << 20)
#define FERRY_ETCD_TOKEN_SIZE 2048
/* Bytes of a prefix of keys. */
#define FERRY_ETCD_KEY_MAX 1024

/* An entry, or none. */
struct ferry_etcd_entry {
    bool found;
    char *value; /* malloc'd, NUL behind it; NULL if not found or not asked for */
    size_t value_len;
    uint64_t revision; /* mod_revision */
};

/* What a transaction takes for granted before it does what it is for. */
enum ferry_etcd_compare {
    FERRY_ETCD_ABSENT,   /* the key does not exist */
    FERRY_ETCD_REVISION, /* its mod_revision is number */
    FERRY_ETCD_LEASE,    /* it is attached to the lease number */
};

struct ferry_etcd_put {
    const char *key;
    const char *value;
    size_t value_len;
    uint64_t lease; /* 0: none */
};

/* Bodies, onto a heap text; the caller looks at the text for memory. */
void ferry_etcd_range_body(struct ferry_text *body, const char *key);
/*
 * Up to @limit keys that begin with @prefix, which ends in a slash, and come after the @after_len
 * bytes of @after (NULL for the first ones).
 */
void ferry_etcd_keys_body(struct ferry_text *body, const char *prefix, const char *after,
                          size_t after_len, uint32_t limit);
void ferry_etcd_put_body(struct ferry_text *body, const struct ferry_etcd_put *put);
void ferry_etcd_delete_body(struct ferry_text *body, const char *key);
/* Compare, and then put; otherwise say what is there. */
void ferry_etcd_put_if_body(struct ferry_text *body, enum ferry_etcd_compare compare,
                            uint64_t number, const struct ferry_etcd_put *put);
/* Compare, and then delete; otherwise say what is there. */
void ferry_etcd_delete_if_body(struct ferry_text *body, enum ferry_etcd_compare compare,
                               uint64_t number, const char *key);
void ferry_etcd_grant_body(struct ferry_text *body, uint64_t ttl_s);
void ferry_etcd_keepalive_body(struct ferry_text *body, uint64_t lease);
void ferry_etcd_authenticate_body(struct ferry_text *body, const char *user, const char *password);
/* @revision: of the first event wanted; 0 is from now on. */
void ferry_etcd_watch_body(struct ferry_text *body, const char *key, uint64_t revision);

/* Replies. entry_out->value is the caller's. */
FERRY_CHECKED enum ferry_status ferry_etcd_read_range(const char *reply, size_t len,
                                                      struct ferry_etcd_entry *entry_out);
/*
 * Append to @names what comes after @prefix in each key, and a newline; keys with control
 * characters are left out. @last_out: the last key, malloc'd, NUL behind it; NULL if there are no
 * more.
 */
FERRY_CHECKED enum ferry_status ferry_etcd_read_keys(const char *reply, size_t len,
                                                     const char *prefix, struct ferry_text *names,
                                                     char **last_out, size_t *last_len_out);
/* The revision of the store after a put. */
FERRY_CHECKED enum ferry_status ferry_etcd_read_put(const char *reply, size_t len,
                                                    uint64_t *revision_out);
/* @done: the comparison held; then entry_out->revision is the new one. Else what is there. */
FERRY_CHECKED enum ferry_status ferry_etcd_read_txn(const char *reply, size_t len, bool *done_out,
                                                    struct ferry_etcd_entry *entry_out);
FERRY_CHECKED enum ferry_status ferry_etcd_read_grant(const char *reply, size_t len,
                                                      uint64_t *lease_out, uint64_t *ttl_s_out);
/* 0: the lease is gone. */
FERRY_CHECKED enum ferry_status ferry_etcd_read_keepalive(const char *reply, size_t len,
                                                          uint64_t *ttl_s_out);
FERRY_CHECKED enum ferry_status ferry_etcd_read_token(const char *reply, size_t len,
                                                      char token_out[FERRY_ETCD_TOKEN_SIZE]);

struct ferry_etcd_news {
    bool created;  /* watching has begun */
    bool canceled; /* and has ended, because of compaction or by the server */
    bool events;   /* something changed */
    uint64_t revision;
};

/* One line of a watch. */
FERRY_CHECKED enum ferry_status ferry_etcd_read_news(const char *line, size_t len,
                                                     struct ferry_etcd_news *news_out);

/*
 * Why etcd refuses: its sentence, and the code of gRPC; -1 if the reply does not say. Never fails.
 */
void ferry_etcd_read_refusal(const char *reply, size_t len, int *code_out, char *text, size_t size);

#define FERRY_ETCD_CODE_CANCELED        1
#define FERRY_ETCD_CODE_DEADLINE        4
#define FERRY_ETCD_CODE_NOT_FOUND       5
#define FERRY_ETCD_CODE_PRECONDITION    9
#define FERRY_ETCD_CODE_UNAVAILABLE     14
#define FERRY_ETCD_CODE_UNAUTHENTICATED 16

#endif
