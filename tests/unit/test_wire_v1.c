/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 codec against the published vectors, every row of the server's decode checks and their
 * order, every truncation and every flipped bit.
 */
#include "test_wire_support.h"

#include "wire/frame.h"
#include "wire/v1.h"

static const char vector_read[] = "4d43545000010100 0000000000000001 1122334455667788"
                                  "00007f0000001000 0000000000001000 0000000000000000";
static const char vector_write[] = "4d43545000010200 0102030405060708 ffffffffffffffff"
                                   "00007f0000002000 0000000000010000 0000000000000000";
static const char vector_ok[] =
    "4d43545000010000 0000000000000001 0000000000001000 0000000000000000";
static const char vector_stale[] = "4d43545000010006 0000000000000001"
                                   "0000000000000000 0000000000000000";
static const char vector_bad_version[] = "4d43545000010001 0000000000000000"
                                         "0000000000000000 0000000000000000";

static void assert_request_equal(const struct ferry_v1_request *a, const struct ferry_v1_request *b)
{
    assert_int_equal(a->opcode, b->opcode);
    assert_true(a->request_id == b->request_id);
    assert_true(a->registration_id == b->registration_id);
    assert_true(a->remote_addr == b->remote_addr);
    assert_true(a->length == b->length);
}

/* Decode from a block of exactly @len bytes; on a refusal nothing may have been written. */
static enum ferry_v1_verdict decode_request(const uint8_t *bytes, size_t len,
                                            struct ferry_v1_request *request_out)
{
    struct ferry_v1_request before;
    uint8_t *copy = wire_exact_copy(bytes, len);

    memset(request_out, 0xA5, sizeof(*request_out));
    memcpy(&before, request_out, sizeof(before));

    enum ferry_v1_verdict verdict = ferry_v1_request_decode(copy, len, request_out);

    if (verdict != FERRY_V1_VALID)
        assert_memory_equal(&before, request_out, sizeof(before));
    free(copy);
    return verdict;
}

static enum ferry_v1_verdict decode_response(const uint8_t *bytes, size_t len,
                                             struct ferry_v1_response *response_out)
{
    struct ferry_v1_response before;
    uint8_t *copy = wire_exact_copy(bytes, len);

    memset(response_out, 0xA5, sizeof(*response_out));
    memcpy(&before, response_out, sizeof(before));

    enum ferry_v1_verdict verdict = ferry_v1_response_decode(copy, len, response_out);

    if (verdict != FERRY_V1_VALID)
        assert_memory_equal(&before, response_out, sizeof(before));
    free(copy);
    return verdict;
}

static void check_request_vector(const char *hex, const struct ferry_v1_request *request)
{
    uint8_t expected[FERRY_V1_REQUEST_SIZE];
    uint8_t *encoded = malloc(FERRY_V1_REQUEST_SIZE);
    struct ferry_v1_request decoded;

    assert_int_equal(wire_unhex(hex, expected, sizeof(expected)), FERRY_V1_REQUEST_SIZE);
    assert_non_null(encoded);
    memset(encoded, 0xEE, FERRY_V1_REQUEST_SIZE);
    ferry_v1_request_encode(request, encoded);
    assert_memory_equal(encoded, expected, FERRY_V1_REQUEST_SIZE);
    assert_int_equal(decode_request(expected, sizeof(expected), &decoded), FERRY_V1_VALID);
    assert_request_equal(&decoded, request);
    free(encoded);
}

static void test_v1_request_vectors_hold_both_ways(void **state)
{
    check_request_vector(vector_read, &(struct ferry_v1_request){
                                          .opcode = FERRY_V1_READ,
                                          .request_id = 1,
                                          .registration_id = 0x1122334455667788,
                                          .remote_addr = 0x7f0000001000,
                                          .length = 4096,
                                      });
    check_request_vector(vector_write, &(struct ferry_v1_request){
                                           .opcode = FERRY_V1_WRITE,
                                           .request_id = 0x0102030405060708,
                                           .registration_id = UINT64_MAX,
                                           .remote_addr = 0x7f0000002000,
                                           .length = 65536,
                                       });
}

static void check_response_vector(const char *hex, const struct ferry_v1_response *response)
{
    uint8_t expected[FERRY_V1_RESPONSE_SIZE];
    uint8_t *encoded = malloc(FERRY_V1_RESPONSE_SIZE);
    struct ferry_v1_response decoded;

    assert_int_equal(wire_unhex(hex, expected, sizeof(expected)), FERRY_V1_RESPONSE_SIZE);
    assert_non_null(encoded);
    memset(encoded, 0xEE, FERRY_V1_RESPONSE_SIZE);
    ferry_v1_response_encode(response, encoded);
    assert_memory_equal(encoded, expected, FERRY_V1_RESPONSE_SIZE);
    assert_int_equal(decode_response(expected, sizeof(expected), &decoded), FERRY_V1_VALID);
    assert_int_equal(decoded.status, response->status);
    assert_true(decoded.request_id == response->request_id);
    assert_true(decoded.committed_bytes == response->committed_bytes);
    free(encoded);
}

static void test_v1_response_vectors_hold_both_ways(void **state)
{
    check_response_vector(vector_ok, &(struct ferry_v1_response){FERRY_V1_OK, 1, 4096});
    check_response_vector(vector_stale,
                          &(struct ferry_v1_response){FERRY_V1_STALE_REGISTRATION, 1, 0});
    check_response_vector(vector_bad_version,
                          &(struct ferry_v1_response){FERRY_V1_BAD_VERSION, 0, 0});
}

/* One row of the server's decode table: how to cause it, what it is, what it answers. */
struct request_row {
    size_t offset;
    uint8_t bytes[8];
    size_t len;
    enum ferry_v1_verdict verdict;
    enum ferry_v1_status status;
};

/* In check order. */
static const struct request_row request_rows[] = {
    {0, {0x4d, 0x43, 0x54, 0x51}, 4, FERRY_V1_NOT_V1, FERRY_V1_INTERNAL_ERROR},
    {4, {0, 2}, 2, FERRY_V1_OTHER_VERSION, FERRY_V1_BAD_VERSION},
    {7, {1}, 1, FERRY_V1_RESERVED_SET, FERRY_V1_INTERNAL_ERROR},
    {6, {3}, 1, FERRY_V1_OPCODE_UNKNOWN, FERRY_V1_BAD_OPCODE},
    {32, {0}, 8, FERRY_V1_LENGTH_BAD, FERRY_V1_BAD_LENGTH},
};
#define REQUEST_ROW_COUNT (sizeof(request_rows) / sizeof(request_rows[0]))

/* A frame with several faults gets the answer of the first check, as the reference gives it. */
static void test_v1_request_checks_run_in_the_published_order(void **state)
{
    for (uint32_t faults = 0; faults < 1u << REQUEST_ROW_COUNT; faults++) {
        uint8_t bytes[FERRY_V1_REQUEST_SIZE];
        enum ferry_v1_verdict expected = FERRY_V1_VALID;
        enum ferry_v1_status status = FERRY_V1_OK;
        struct ferry_v1_request request;

        wire_unhex(vector_read, bytes, sizeof(bytes));
        for (size_t i = REQUEST_ROW_COUNT; i-- > 0;) {
            const struct request_row *row = &request_rows[i];

            if ((faults & 1u << i) == 0)
                continue;
            memcpy(bytes + row->offset, row->bytes, row->len);
            expected = row->verdict;
            status = row->status;
        }

        enum ferry_v1_verdict verdict = decode_request(bytes, sizeof(bytes), &request);

        assert_int_equal(verdict, expected);
        assert_int_equal(ferry_v1_verdict_status(verdict), status);
    }
}

static enum ferry_v1_verdict decode_request_with(size_t offset, uint8_t value)
{
    uint8_t bytes[FERRY_V1_REQUEST_SIZE];
    struct ferry_v1_request request;

    wire_unhex(vector_read, bytes, sizeof(bytes));
    bytes[offset] = value;
    return decode_request(bytes, sizeof(bytes), &request);
}

static void test_v1_request_refuses_every_other_byte_of_the_constant_fields(void **state)
{
    for (unsigned value = 0; value < 256; value++) {
        uint8_t v = (uint8_t)value;

        assert_int_equal(decode_request_with(0, v), v == 0x4d ? FERRY_V1_VALID : FERRY_V1_NOT_V1);
        assert_int_equal(decode_request_with(3, v), v == 0x50 ? FERRY_V1_VALID : FERRY_V1_NOT_V1);
        assert_int_equal(decode_request_with(4, v),
                         v == 0 ? FERRY_V1_VALID : FERRY_V1_OTHER_VERSION);
        assert_int_equal(decode_request_with(5, v),
                         v == 1 ? FERRY_V1_VALID : FERRY_V1_OTHER_VERSION);
        assert_int_equal(decode_request_with(6, v),
                         v == 1 || v == 2 ? FERRY_V1_VALID : FERRY_V1_OPCODE_UNKNOWN);
        assert_int_equal(decode_request_with(7, v),
                         v == 0 ? FERRY_V1_VALID : FERRY_V1_RESERVED_SET);
        for (size_t at = 40; at < 48; at++) {
            assert_int_equal(decode_request_with(at, v),
                             v == 0 ? FERRY_V1_VALID : FERRY_V1_RESERVED_SET);
        }
    }
}

static enum ferry_v1_verdict decode_range(uint64_t addr, uint64_t length)
{
    struct ferry_v1_request request = {FERRY_V1_READ, 7, 9, addr, length};
    uint8_t bytes[FERRY_V1_REQUEST_SIZE];
    struct ferry_v1_request decoded;

    wire_unhex(vector_read, bytes, sizeof(bytes));
    for (int i = 0; i < 8; i++) {
        bytes[24 + i] = (uint8_t)(addr >> (56 - 8 * i));
        bytes[32 + i] = (uint8_t)(length >> (56 - 8 * i));
    }

    enum ferry_v1_verdict verdict = decode_request(bytes, sizeof(bytes), &decoded);

    if (verdict == FERRY_V1_VALID) {
        assert_true(decoded.remote_addr == request.remote_addr);
        assert_true(decoded.length == request.length);
    }
    return verdict;
}

/* The end of the range may be 2^64 - 1 and nothing above. */
static void test_v1_request_range_edges(void **state)
{
    assert_int_equal(decode_range(0, 0), FERRY_V1_LENGTH_BAD);
    assert_int_equal(decode_range(UINT64_MAX, 0), FERRY_V1_LENGTH_BAD);
    assert_int_equal(decode_range(0, 1), FERRY_V1_VALID);
    assert_int_equal(decode_range(0, UINT64_MAX), FERRY_V1_VALID);
    assert_int_equal(decode_range(1, UINT64_MAX), FERRY_V1_LENGTH_BAD);
    assert_int_equal(decode_range(1, UINT64_MAX - 1), FERRY_V1_VALID);
    assert_int_equal(decode_range(UINT64_MAX - 1, 1), FERRY_V1_VALID);
    assert_int_equal(decode_range(UINT64_MAX, 1), FERRY_V1_LENGTH_BAD);
    assert_int_equal(decode_range(UINT64_MAX - 4096, 4096), FERRY_V1_VALID);
    assert_int_equal(decode_range(UINT64_MAX - 4095, 4096), FERRY_V1_LENGTH_BAD);
    assert_int_equal(decode_range(UINT64_MAX, UINT64_MAX), FERRY_V1_LENGTH_BAD);
    assert_int_equal(decode_range(1ULL << 63, 1ULL << 63), FERRY_V1_LENGTH_BAD);
}

static void test_v1_truncated_frames_are_refused_at_every_length(void **state)
{
    uint8_t bytes[FERRY_V1_REQUEST_SIZE + 1];
    struct ferry_v1_request request;
    struct ferry_v1_response response;

    memset(bytes, 0, sizeof(bytes));
    wire_unhex(vector_write, bytes, sizeof(bytes));
    for (size_t len = 0; len < FERRY_V1_REQUEST_SIZE; len++)
        assert_int_equal(decode_request(bytes, len, &request), FERRY_V1_TRUNCATED);
    assert_int_equal(decode_request(bytes, FERRY_V1_REQUEST_SIZE, &request), FERRY_V1_VALID);
    bytes[FERRY_V1_REQUEST_SIZE] =
        0xFF; /* the first payload byte is none of the decoder's business */
    assert_int_equal(decode_request(bytes, sizeof(bytes), &request), FERRY_V1_VALID);

    wire_unhex(vector_ok, bytes, sizeof(bytes));
    for (size_t len = 0; len < FERRY_V1_RESPONSE_SIZE; len++)
        assert_int_equal(decode_response(bytes, len, &response), FERRY_V1_TRUNCATED);
    assert_int_equal(decode_response(bytes, FERRY_V1_RESPONSE_SIZE, &response), FERRY_V1_VALID);
}

static void test_v1_response_rows(void **state)
{
    uint8_t good[FERRY_V1_RESPONSE_SIZE];
    struct ferry_v1_response response;

    wire_unhex(vector_ok, good, sizeof(good));
    for (uint32_t status = 0; status <= UINT16_MAX; status++) {
        good[6] = (uint8_t)(status >> 8);
        good[7] = (uint8_t)status;

        enum ferry_v1_verdict verdict = ferry_v1_response_decode(good, sizeof(good), &response);

        assert_int_equal(verdict, status <= 8 ? FERRY_V1_VALID : FERRY_V1_STATUS_UNKNOWN);
        if (status <= 8)
            assert_int_equal(response.status, status);
    }
    wire_unhex(vector_ok, good, sizeof(good));
    for (size_t at = 0; at < sizeof(good); at++) {
        for (int bit = 0; bit < 8; bit++) {
            enum ferry_v1_verdict expected = FERRY_V1_VALID;

            if (at < 4)
                expected = FERRY_V1_NOT_V1;
            else if (at < 6)
                expected = FERRY_V1_OTHER_VERSION;
            else if (at == 6 || (at == 7 && bit >= 4))
                expected = FERRY_V1_STATUS_UNKNOWN;
            else if (at >= 24)
                expected = FERRY_V1_RESERVED_SET;
            good[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(decode_response(good, sizeof(good), &response), expected);
            good[at] ^= (uint8_t)(1u << bit);
        }
    }
    assert_int_equal(ferry_v1_verdict_status(FERRY_V1_STATUS_UNKNOWN), FERRY_V1_INTERNAL_ERROR);
}

/* What decodes re-encodes to the same bytes, so no bit of a valid frame is lost or ignored. */
static void test_v1_random_requests_round_trip(void **state)
{
    struct wire_random random = wire_random_init(__func__);

    for (int i = 0; i < 200000; i++) {
        uint64_t addr = wire_random_edgy(&random);
        uint64_t room = UINT64_MAX - addr;
        uint64_t length = wire_random_edgy(&random);
        struct ferry_v1_request request = {
            .opcode = wire_random_below(&random, 2) == 0 ? FERRY_V1_READ : FERRY_V1_WRITE,
            .request_id = wire_random_edgy(&random),
            .registration_id = wire_random_edgy(&random),
            .remote_addr = addr,
            .length = length == 0 ? 1 : length,
        };
        struct ferry_v1_request decoded;
        uint8_t bytes[FERRY_V1_REQUEST_SIZE];

        memset(bytes, 0xA5, sizeof(bytes));
        ferry_v1_request_encode(&request, bytes);

        enum ferry_v1_verdict verdict = ferry_v1_request_decode(bytes, sizeof(bytes), &decoded);

        if (request.length > room) {
            assert_int_equal(verdict, FERRY_V1_LENGTH_BAD);
            continue;
        }
        assert_int_equal(verdict, FERRY_V1_VALID);
        assert_request_equal(&decoded, &request);

        uint8_t mutated[FERRY_V1_REQUEST_SIZE];

        memcpy(mutated, bytes, sizeof(bytes));
        mutated[wire_random_below(&random, sizeof(bytes))] = (uint8_t)wire_random_u64(&random);
        if (ferry_v1_request_decode(mutated, sizeof(mutated), &decoded) == FERRY_V1_VALID) {
            ferry_v1_request_encode(&decoded, bytes);
            assert_memory_equal(bytes, mutated, sizeof(bytes));
        }
    }
}

static void test_v1_random_responses_round_trip(void **state)
{
    struct wire_random random = wire_random_init(__func__);

    for (int i = 0; i < 100000; i++) {
        struct ferry_v1_response response = {
            .status = (enum ferry_v1_status)wire_random_below(&random, FERRY_V1_STATUS_MAX + 1),
            .request_id = wire_random_edgy(&random),
            .committed_bytes = wire_random_edgy(&random),
        };
        struct ferry_v1_response decoded;
        uint8_t bytes[FERRY_V1_RESPONSE_SIZE];

        memset(bytes, 0xA5, sizeof(bytes));
        ferry_v1_response_encode(&response, bytes);
        assert_int_equal(ferry_v1_response_decode(bytes, sizeof(bytes), &decoded), FERRY_V1_VALID);
        assert_int_equal(decoded.status, response.status);
        assert_true(decoded.request_id == response.request_id);
        assert_true(decoded.committed_bytes == response.committed_bytes);
    }
}

static enum ferry_status check_answer(enum ferry_v1_opcode opcode, enum ferry_v1_status status,
                                      uint64_t id, uint64_t committed)
{
    struct ferry_v1_request request = {opcode, 5, 6, 4096, 100};
    struct ferry_v1_response response = {status, id, committed};

    return ferry_v1_response_check(&response, &request);
}

static void test_v1_answer_must_be_the_requests_own(void **state)
{
    for (int op = FERRY_V1_READ; op <= FERRY_V1_WRITE; op++) {
        enum ferry_v1_opcode opcode = (enum ferry_v1_opcode)op;
        enum ferry_status unproven = opcode == FERRY_V1_WRITE ? FERRY_ERR_OUTCOME_UNKNOWN
                                                              : FERRY_ERR_PROTOCOL;

        assert_int_equal(check_answer(opcode, FERRY_V1_OK, 5, 100), FERRY_OK);
        assert_int_equal(check_answer(opcode, FERRY_V1_OK, 6, 100), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_OK, 0, 100), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_OK, 5, 99), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_OK, 5, 101), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_OK, 5, 0), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_STALE_REGISTRATION, 5, 0),
                         FERRY_ERR_STALE_KEY);
        assert_int_equal(check_answer(opcode, FERRY_V1_STALE_REGISTRATION, 5, 1), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_STALE_REGISTRATION, 4, 0), unproven);
        /* A lease failure always carries the real id; only undecodable requests get id 0. */
        assert_int_equal(check_answer(opcode, FERRY_V1_STALE_REGISTRATION, 0, 0), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_RANGE_REJECTED, 0, 0), unproven);
        assert_int_equal(check_answer(opcode, FERRY_V1_BAD_VERSION, 0, 0), FERRY_ERR_REFUSED);
        assert_int_equal(check_answer(opcode, FERRY_V1_BAD_OPCODE, 0, 0), FERRY_ERR_REFUSED);
        assert_int_equal(check_answer(opcode, FERRY_V1_BAD_LENGTH, 0, 0), FERRY_ERR_REFUSED);
        assert_int_equal(check_answer(opcode, FERRY_V1_INTERNAL_ERROR, 0, 0), FERRY_ERR_REFUSED);
        assert_int_equal(check_answer(opcode, FERRY_V1_BAD_LENGTH, 5, 0), FERRY_ERR_REFUSED);
    }
    assert_int_equal(check_answer(FERRY_V1_READ, FERRY_V1_INTERNAL_ERROR, 5, 0), FERRY_ERR_REFUSED);
    assert_int_equal(check_answer(FERRY_V1_WRITE, FERRY_V1_INTERNAL_ERROR, 5, 0),
                     FERRY_ERR_OUTCOME_UNKNOWN);
}

static void test_v1_statuses_map_to_the_engines_and_back(void **state)
{
    static const enum ferry_status engine[] = {
        [FERRY_V1_OK] = FERRY_OK,
        [FERRY_V1_BAD_VERSION] = FERRY_ERR_REFUSED,
        [FERRY_V1_BAD_OPCODE] = FERRY_ERR_REFUSED,
        [FERRY_V1_BAD_LENGTH] = FERRY_ERR_REFUSED,
        [FERRY_V1_RANGE_REJECTED] = FERRY_ERR_RANGE,
        [FERRY_V1_PERMISSION_DENIED] = FERRY_ERR_PERMISSION,
        [FERRY_V1_STALE_REGISTRATION] = FERRY_ERR_STALE_KEY,
        [FERRY_V1_SHUTTING_DOWN] = FERRY_ERR_PEER_CLOSING,
        [FERRY_V1_INTERNAL_ERROR] = FERRY_ERR_REFUSED,
    };

    for (uint32_t i = 0; i <= FERRY_V1_STATUS_MAX; i++) {
        enum ferry_v1_status status = (enum ferry_v1_status)i;

        assert_int_equal(ferry_v1_status_map(status), engine[i]);
        if (engine[i] != FERRY_ERR_REFUSED)
            assert_int_equal(ferry_v1_status_of(engine[i]), status);
    }
    assert_int_equal(ferry_v1_status_map((enum ferry_v1_status)9), FERRY_ERR_PROTOCOL);
    assert_int_equal(ferry_v1_status_of(FERRY_ERR_CLOSING), FERRY_V1_SHUTTING_DOWN);
    assert_int_equal(ferry_v1_status_of(FERRY_ERR_TOO_LARGE), FERRY_V1_BAD_LENGTH);
    assert_int_equal(ferry_v1_status_of(FERRY_ERR_NO_MEMORY), FERRY_V1_INTERNAL_ERROR);
    for (uint32_t i = FERRY_V1_VALID; i <= FERRY_V1_STATUS_UNKNOWN; i++) {
        const char *text = ferry_v1_verdict_text((enum ferry_v1_verdict)i);

        assert_true(strlen(text) > 0);
        assert_string_not_equal(text, "unknown verdict");
    }
    assert_string_equal(ferry_v1_verdict_text((enum ferry_v1_verdict)99), "unknown verdict");
}

static void test_first_four_bytes_tell_the_codec(void **state)
{
    static const uint8_t v1[] = {'M', 'C', 'T', 'P'};
    static const uint8_t ferry[] = {'F', 'R', 'R', 'Y'};

    assert_int_equal(ferry_wire_classify(v1), FERRY_WIRE_V1);
    assert_int_equal(ferry_wire_classify(ferry), FERRY_WIRE_FERRY);
    for (int bit = 0; bit < 32; bit++) {
        uint8_t a[4];
        uint8_t b[4];

        memcpy(a, v1, sizeof(a));
        memcpy(b, ferry, sizeof(b));
        a[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(ferry_wire_classify(a), FERRY_WIRE_UNKNOWN);
        assert_int_equal(ferry_wire_classify(b), FERRY_WIRE_UNKNOWN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1_request_vectors_hold_both_ways),
        cmocka_unit_test(test_v1_response_vectors_hold_both_ways),
        cmocka_unit_test(test_v1_request_checks_run_in_the_published_order),
        cmocka_unit_test(test_v1_request_refuses_every_other_byte_of_the_constant_fields),
        cmocka_unit_test(test_v1_request_range_edges),
        cmocka_unit_test(test_v1_truncated_frames_are_refused_at_every_length),
        cmocka_unit_test(test_v1_response_rows),
        cmocka_unit_test(test_v1_random_requests_round_trip),
        cmocka_unit_test(test_v1_random_responses_round_trip),
        cmocka_unit_test(test_v1_answer_must_be_the_requests_own),
        cmocka_unit_test(test_v1_statuses_map_to_the_engines_and_back),
        cmocka_unit_test(test_first_four_bytes_tell_the_codec),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
