/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form of fault rules. Pure: no thread, no state, no I/O.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/text.h"
#include "transport/fault/fault.h"

static const char *const action_names[] = {
    [FERRY_FAULT_REFUSE] = "refuse",         [FERRY_FAULT_FAIL] = "fail",
    [FERRY_FAULT_FAIL_AFTER] = "fail_after", [FERRY_FAULT_DELAY] = "delay",
    [FERRY_FAULT_DELAY_END] = "delay_end",   [FERRY_FAULT_DROP] = "drop",
    [FERRY_FAULT_DUPLICATE] = "duplicate",   [FERRY_FAULT_HOLD] = "hold",
};

struct ferry_fault_rule ferry_fault_rule_of(enum ferry_fault_action action)
{
    return (struct ferry_fault_rule){
        .action = action,
        .read = true,
        .write = true,
        .status = FERRY_ERR_PATH_DOWN,
        .every = 1,
        .chance = 100,
    };
}

static bool parse_action(const char *value, struct ferry_fault_rule *rule)
{
    for (size_t i = FERRY_FAULT_REFUSE; i < FERRY_ARRAY_LEN(action_names); i++) {
        if (strcmp(action_names[i], value) == 0) {
            rule->action = (enum ferry_fault_action)i;
            return true;
        }
    }
    return false;
}

static bool parse_op(const char *value, struct ferry_fault_rule *rule)
{
    rule->read = strcmp(value, "write") != 0;
    rule->write = strcmp(value, "read") != 0;
    return strcmp(value, "any") == 0 || !rule->read || !rule->write;
}

static bool parse_status(const char *value, struct ferry_fault_rule *rule)
{
#define TRY_STATUS(name, number, state, text)                                                      \
    if ((number) != 0 && strcmp(value, #name) == 0) {                                              \
        rule->status = FERRY_##name;                                                               \
        return true;                                                                               \
    }
    FERRY_STATUS_TABLE(TRY_STATUS)
#undef TRY_STATUS
    return false;
}

static bool parse_number(const char *value, uint64_t min, uint64_t max, uint64_t *number_out)
{
    return ferry_u64_parse(value, number_out) == FERRY_OK && *number_out >= min &&
           *number_out <= max;
}

static const char *parse_member(const char *key, const char *value, struct ferry_fault_rule *rule)
{
    uint64_t number = 0;

    if (strcmp(key, "do") == 0)
        return parse_action(value, rule) ? NULL
                                         : "refuse, fail, fail_after, delay, delay_end, drop, "
                                           "duplicate or hold";
    if (strcmp(key, "op") == 0)
        return parse_op(value, rule) ? NULL : "read, write or any";
    if (strcmp(key, "status") == 0)
        return parse_status(value, rule) ? NULL : "a status name such as ERR_PATH_DOWN";
    if (strcmp(key, "delay_ms") == 0) {
        if (!parse_number(value, 0, 3600000, &number))
            return "0..3600000";
        rule->delay_ns = number * FERRY_NS_PER_MS;
    } else if (strcmp(key, "skip") == 0) {
        if (!parse_number(value, 0, UINT32_MAX, &number))
            return "0..4294967295";
        rule->skip = (uint32_t)number;
    } else if (strcmp(key, "every") == 0) {
        if (!parse_number(value, 1, UINT32_MAX, &number))
            return "1..4294967295";
        rule->every = (uint32_t)number;
    } else if (strcmp(key, "count") == 0) {
        if (!parse_number(value, 0, UINT32_MAX, &number))
            return "0..4294967295";
        rule->count = (uint32_t)number;
    } else if (strcmp(key, "chance") == 0) {
        if (!parse_number(value, 1, 100, &number))
            return "1..100";
        rule->chance = (uint32_t)number;
    } else {
        return "do, op, status, delay_ms, skip, every, count or chance as the key";
    }
    return NULL;
}

static enum ferry_status parse_rule(char *text, uint32_t index, struct ferry_fault_rule *rule)
{
    char *rest = NULL;

    *rule = ferry_fault_rule_of(FERRY_FAULT_NONE);
    for (char *word = strtok_r(text, ", \t\n", &rest); word != NULL;
         word = strtok_r(NULL, ", \t\n", &rest)) {
        char *equals = strchr(word, '=');
        const char *expected = "key=value";

        if (equals != NULL) {
            *equals = '\0';
            expected = parse_member(word, equals + 1, rule);
            *equals = '=';
        }
        if (expected != NULL)
            return ferry_fail(FERRY_ERR_CONFIG,
                              "transports.fault.rules: rule %u: \"%.64s\": expected %s", index,
                              word, expected);
    }
    if (rule->action == FERRY_FAULT_NONE)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.fault.rules: rule %u does not say what to "
                          "do (do=fail, ...)",
                          index);
    return FERRY_OK;
}

enum ferry_status ferry_fault_rules_parse(const char *text, struct ferry_fault_rule *rules_out,
                                          uint32_t *count_out)
{
    struct ferry_fault_rule rules[FERRY_FAULT_RULES_MAX];
    char copy[4097];
    char *rest = NULL;
    uint32_t count = 0;

    if (strlen(text) >= sizeof(copy))
        return ferry_fail(FERRY_ERR_CONFIG, "transports.fault.rules: longer than %zu bytes",
                          sizeof(copy) - 1);
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *part = strtok_r(copy, ";", &rest); part != NULL; part = strtok_r(NULL, ";", &rest)) {
        enum ferry_status status;

        if (part[strspn(part, ", \t\n")] == '\0')
            continue;
        if (count == FERRY_FAULT_RULES_MAX)
            return ferry_fail(FERRY_ERR_CONFIG, "transports.fault.rules: more than %d rules",
                              FERRY_FAULT_RULES_MAX);
        status = parse_rule(part, count, &rules[count]);
        if (status != FERRY_OK)
            return status;
        count++;
    }
    memcpy(rules_out, rules, count * sizeof(*rules));
    *count_out = count;
    return FERRY_OK;
}
