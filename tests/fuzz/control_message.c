/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz the bodies of the control plane. The first byte of the input chooses the message. What
 * decodes keeps its bounds and its form, and encodes to a text that decodes to the same.
 */
#include "fuzz.h"

#include <string.h>

#include "control/message.h"

static void check_notify(const char *text, size_t len)
{
    struct ferry_notify_body body;
    struct ferry_notify_body again;
    char *printed;
    size_t printed_len;

    memset(&body, 0, sizeof(body));
    memset(&again, 0, sizeof(again));
    if (ferry_notify_decode(text, len, &body) != FERRY_OK)
        return;
    FUZZ_REQUIRE(memchr(body.sender, '\0', sizeof(body.sender)) != NULL);
    FUZZ_REQUIRE(memchr(body.name, '\0', sizeof(body.name)) != NULL);
    FUZZ_REQUIRE(memchr(body.message, '\0', sizeof(body.message)) != NULL);
    FUZZ_REQUIRE(ferry_notify_encode(&body, &printed, &printed_len) == FERRY_OK);
    FUZZ_REQUIRE(printed_len == strlen(printed));
    FUZZ_REQUIRE(printed_len <= FERRY_CONTROL_BODY_MAX);
    FUZZ_REQUIRE(ferry_notify_decode(printed, printed_len, &again) == FERRY_OK);
    FUZZ_REQUIRE(strcmp(body.sender, again.sender) == 0);
    FUZZ_REQUIRE(strcmp(body.name, again.name) == 0);
    FUZZ_REQUIRE(strcmp(body.message, again.message) == 0);
    free(printed);
}

static void check_goodbye(const char *text, size_t len)
{
    struct ferry_goodbye_body body;
    struct ferry_goodbye_body again;
    char *printed;
    size_t printed_len;

    if (ferry_goodbye_decode(text, len, &body) != FERRY_OK)
        return;
    FUZZ_REQUIRE(memchr(body.segment, '\0', sizeof(body.segment)) != NULL);
    FUZZ_REQUIRE(body.segment[0] != '\0');
    FUZZ_REQUIRE(body.incarnation[FERRY_INCARNATION_LEN] == '\0');
    FUZZ_REQUIRE(strspn(body.incarnation, "0123456789abcdef") == FERRY_INCARNATION_LEN);
    FUZZ_REQUIRE(ferry_goodbye_encode(&body, &printed, &printed_len) == FERRY_OK);
    FUZZ_REQUIRE(ferry_goodbye_decode(printed, printed_len, &again) == FERRY_OK);
    FUZZ_REQUIRE(strcmp(body.segment, again.segment) == 0);
    FUZZ_REQUIRE(strcmp(body.incarnation, again.incarnation) == 0);
    free(printed);
}

/* A health reply decides whether a segment name is free: one of another engine must not hold it. */
static void check_health(const char *text, size_t len)
{
    struct ferry_health_body body;
    struct ferry_health_body again;
    char *printed;
    size_t printed_len;

    if (ferry_health_decode(text, len, &body) != FERRY_OK)
        return;
    FUZZ_REQUIRE(memchr(body.segment, '\0', sizeof(body.segment)) != NULL);
    FUZZ_REQUIRE(body.incarnation[FERRY_INCARNATION_LEN] == '\0');
    FUZZ_REQUIRE(ferry_health_encode(&body, &printed, &printed_len) == FERRY_OK);
    FUZZ_REQUIRE(ferry_health_decode(printed, printed_len, &again) == FERRY_OK);
    FUZZ_REQUIRE(strcmp(body.segment, again.segment) == 0);
    FUZZ_REQUIRE(strcmp(body.incarnation, again.incarnation) == 0);
    free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;

    if (size == 0)
        return 0;
    switch (data[0] % 3) {
    case 0:
        check_notify(text, size - 1);
        break;
    case 1:
        check_goodbye(text, size - 1);
        break;
    default:
        check_health(text, size - 1);
    }
    return 0;
}
