/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of this host; see host_names.h. Any thread, no state; asks the system for its name.
 */
#include "metadata/host_names.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

bool ferry_host_name_ok(const char *host)
{
    size_t len = strlen(host);

    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)host[i] < 0x20 || host[i] == 0x7f || host[i] == ',')
            return false;
    }
    return len > 0 && len <= FERRY_FILE_HOST_MAX;
}

bool ferry_host_names_has(const struct ferry_host_names *names, const char *host)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], host) == 0)
            return true;
    }
    return false;
}

static void add(struct ferry_host_names *names, const char *name)
{
    if (!ferry_host_names_has(names, name))
        strcpy(names->names[names->count++], name);
}

/* "node7:1234" to "node7", "[::1]:1234" to "[::1]"; anything else stays what it is. */
static bool cut_port(char *name)
{
    char *colon = strrchr(name, ':');

    if (colon == NULL || colon == name || colon[1] == '\0' ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    /* Two colons and no bracket: an IPv6 literal without a port. */
    if (colon[-1] != ']' && memchr(name, ':', (size_t)(colon - name)) != NULL)
        return false;
    *colon = '\0';
    return true;
}

static enum ferry_status add_both(struct ferry_host_names *names, const char *text, size_t len)
{
    char name[FERRY_FILE_HOST_MAX + 1];

    if (len <= FERRY_FILE_HOST_MAX) {
        memcpy(name, text, len);
        name[len] = '\0';
    }
    if (len > FERRY_FILE_HOST_MAX || !ferry_host_name_ok(name))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "host_name: \"%.*s\" is no name of a host; expected 1..%d bytes without "
                          "control characters",
                          (int)(len < 100 ? len : 100), text, FERRY_FILE_HOST_MAX);
    add(names, name);
    if (cut_port(name))
        add(names, name);
    return FERRY_OK;
}

enum ferry_status ferry_host_names_parse(const char *list, struct ferry_host_names *names_out)
{
    struct ferry_host_names names = {0};
    char system_name[FERRY_FILE_HOST_MAX + 1] = "";

    if (list[0] == '\0') {
        if (gethostname(system_name, sizeof(system_name)) != 0 ||
            memchr(system_name, '\0', sizeof(system_name)) == NULL || system_name[0] == '\0')
            return ferry_fail(FERRY_ERR_IO, "this host has no usable name; set host_name");
        list = system_name;
    }
    for (size_t count = 0;; count++) {
        size_t len = strcspn(list, ",");
        enum ferry_status status;

        if (count == FERRY_HOST_NAMES_MAX)
            return ferry_fail(FERRY_ERR_CONFIG, "host_name: more than %d names",
                              FERRY_HOST_NAMES_MAX);
        status = add_both(&names, list, len);
        if (status != FERRY_OK)
            return status;
        if (list[len] == '\0')
            break;
        list += len + 1;
    }
    *names_out = names;
    return FERRY_OK;
}

const char *ferry_host_names_first(const struct ferry_host_names *names)
{
    return names->names[0];
}
