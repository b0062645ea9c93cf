/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common parts of transports' attributes; see attr.h. Pure; any thread.
 */
#include "transport/attr.h"

#include <string.h>

#include "base/error.h"

bool ferry_attr_put_head(struct json_object *object, const char *protocol, uint64_t version)
{
    return ferry_json_put_string(object, "protocol", protocol) &&
           ferry_json_put_u64(object, "version", version);
}

enum ferry_status ferry_attr_check_head(const struct ferry_json *root, const char *protocol,
                                        uint64_t version)
{
    enum ferry_status status = ferry_json_as_object(root);
    const char *found;
    uint64_t number;

    if (status == FERRY_OK)
        status = ferry_json_string(root, "protocol", 64, &found);
    if (status != FERRY_OK)
        return status;
    if (strcmp(found, protocol) != 0)
        return ferry_json_fail(root, "protocol is \"%s\", expected \"%s\"", found, protocol);
    return ferry_json_u64(root, "version", version, version, &number);
}

enum ferry_status ferry_attr_finish(struct json_object *object, bool complete, size_t len_max,
                                    char **attr_out)
{
    enum ferry_status status = FERRY_ERR_NO_MEMORY;
    size_t len;

    if (complete)
        status = ferry_json_print(object, len_max, attr_out, &len);
    else
        ferry_fail(FERRY_ERR_NO_MEMORY, "out of memory for a transport's attribute");
    json_object_put(object);
    return status;
}
