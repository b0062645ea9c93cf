/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables that a configuration is made of: the engine's own, then one per transport of this
 * build. Any thread; no state.
 */
#include "base/assert.h"
#include "base/compiler.h"
#include "config/engine_options.h"
#include "config/option.h"
#include "transport/transport.h"

/* Of all transports together. */
#define MORE_TABLES_MAX 16

enum ferry_status ferry_config_create(struct ferry_config **config_out)
{
    const struct ferry_transport_ops *ops[FERRY_TRANSPORTS_MAX];
    const struct ferry_option_table *tables[1 + FERRY_TRANSPORTS_MAX + MORE_TABLES_MAX];
    uint32_t transport_count = ferry_transports(ops);
    size_t count = 0;

    tables[count++] = &ferry_engine_option_table;
    for (uint32_t i = 0; i < transport_count; i++) {
        if (ops[i]->options != NULL)
            tables[count++] = ops[i]->options;
        for (size_t k = 0; ops[i]->more_options != NULL && ops[i]->more_options[k] != NULL; k++) {
            FERRY_ASSERT(count < FERRY_ARRAY_LEN(tables));
            tables[count++] = ops[i]->more_options[k];
        }
    }
    return ferry_config_create_with(tables, count, config_out);
}
