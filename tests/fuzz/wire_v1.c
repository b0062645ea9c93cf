/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz the v1 codec: both decoders see every input. What decodes must encode to the same bytes, and
 * a response must map to a status of the engine whatever it answers.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "wire/v1.h"

static void try_request(const uint8_t *data, size_t size)
{
    struct ferry_v1_request request;
    uint8_t bytes[FERRY_V1_REQUEST_SIZE];
    enum ferry_v1_verdict verdict = ferry_v1_request_decode(data, size, &request);

    FUZZ_REQUIRE((verdict == FERRY_V1_TRUNCATED) == (size < FERRY_V1_REQUEST_SIZE));
    FUZZ_REQUIRE((ferry_v1_verdict_status(verdict) == FERRY_V1_OK) == (verdict == FERRY_V1_VALID));
    FUZZ_REQUIRE(ferry_v1_verdict_text(verdict)[0] != '\0');
    if (verdict != FERRY_V1_VALID)
        return;
    FUZZ_REQUIRE(request.opcode == FERRY_V1_READ || request.opcode == FERRY_V1_WRITE);
    FUZZ_REQUIRE(request.length > 0);
    FUZZ_REQUIRE(request.remote_addr + request.length > request.remote_addr);
    FUZZ_REQUIRE(ferry_wire_classify(data) == FERRY_WIRE_V1);
    ferry_v1_request_encode(&request, bytes);
    FUZZ_REQUIRE(memcmp(bytes, data, sizeof(bytes)) == 0);
}

static void try_response(const uint8_t *data, size_t size)
{
    struct ferry_v1_response response;
    uint8_t bytes[FERRY_V1_RESPONSE_SIZE];

    if (ferry_v1_response_decode(data, size, &response) != FERRY_V1_VALID)
        return;
    FUZZ_REQUIRE((unsigned)response.status <= FERRY_V1_STATUS_MAX);
    ferry_v1_response_encode(&response, bytes);
    FUZZ_REQUIRE(memcmp(bytes, data, sizeof(bytes)) == 0);

    struct ferry_v1_request request = {FERRY_V1_READ, response.request_id, 1, 4096,
                                       response.committed_bytes};
    bool success = response.status == FERRY_V1_OK;

    FUZZ_REQUIRE((ferry_v1_response_check(&response, &request) == FERRY_OK) == success);
    request.opcode = FERRY_V1_WRITE;
    FUZZ_REQUIRE((ferry_v1_response_check(&response, &request) == FERRY_OK) == success);
    request.request_id++;
    FUZZ_REQUIRE(ferry_v1_response_check(&response, &request) != FERRY_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_request(data, size);
    try_response(data, size);
    return 0;
}
