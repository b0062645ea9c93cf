/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the attributes that transports publish in a segment document have in common: JSON text that
 * begins with a protocol and its version. Pure; any thread.
 */
#ifndef FERRY_TRANSPORT_ATTR_H
#define FERRY_TRANSPORT_ATTR_H

#include "base/json.h"

/* Say which protocol in which version. False: no memory. */
FERRY_CHECKED bool ferry_attr_put_head(struct json_object *object, const char *protocol,
                                       uint64_t version);

/* It is an object of this protocol and version; else ERR_INVALID, with text. */
FERRY_CHECKED enum ferry_status ferry_attr_check_head(const struct ferry_json *root,
                                                      const char *protocol, uint64_t version);

/*
 * Print @object, malloc'd, and drop it, which may be NULL. Not @complete: something did not fit
 * into memory while it was made. With text: ERR_NO_MEMORY; ERR_TOO_LARGE beyond @len_max bytes.
 */
FERRY_CHECKED enum ferry_status ferry_attr_finish(struct json_object *object, bool complete,
                                                  size_t len_max, char **attr_out);

#endif
