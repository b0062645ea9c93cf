/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage: values of one source are checked and collected, then take effect together or not at
 * all. One thread at a time per configuration.
 */
#include "config/setting.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

enum ferry_status ferry_stage_init(struct ferry_stage *stage, struct ferry_config *config,
                                   enum ferry_config_origin origin, const char *label)
{
    struct ferry_staged *staged = calloc(config->count > 0 ? config->count : 1, sizeof(*staged));

    if (staged == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
    *stage = (struct ferry_stage){
        .config = config,
        .origin = origin,
        .label = label,
        .staged = staged,
    };
    return FERRY_OK;
}

enum ferry_status ferry_stage_put(struct ferry_stage *stage, const struct ferry_setting *setting,
                                  struct ferry_value *value, const char *detail)
{
    struct ferry_staged *staged = &stage->staged[setting - stage->config->settings];

    FERRY_ASSERT(setting >= stage->config->settings);
    FERRY_ASSERT(setting < stage->config->settings + stage->config->count);
    if (staged->set) {
        ferry_value_fini(value);
        return ferry_fail(FERRY_ERR_CONFIG, "%s%s%s: given twice", stage->label,
                          stage->label[0] != '\0' ? ": " : "", setting->name);
    }
    staged->detail = strdup(detail);
    if (staged->detail == NULL) {
        ferry_value_fini(value);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
    }
    staged->value = *value;
    staged->set = true;
    *value = (struct ferry_value){0};
    return FERRY_OK;
}

void ferry_stage_commit(struct ferry_stage *stage)
{
    for (size_t i = 0; i < stage->config->count; i++) {
        struct ferry_setting *setting = &stage->config->settings[i];
        struct ferry_staged *staged = &stage->staged[i];

        /* Of two sources of one origin the later wins. */
        if (!staged->set || stage->origin < setting->origin)
            continue;
        ferry_value_fini(&setting->value);
        free(setting->origin_detail);
        setting->value = staged->value;
        setting->origin = stage->origin;
        setting->origin_detail = staged->detail;
        *staged = (struct ferry_staged){0};
    }
    ferry_stage_fini(stage);
}

void ferry_stage_fini(struct ferry_stage *stage)
{
    for (size_t i = 0; stage->staged != NULL && i < stage->config->count; i++) {
        ferry_value_fini(&stage->staged[i].value);
        free(stage->staged[i].detail);
    }
    free(stage->staged);
    *stage = (struct ferry_stage){0};
}
