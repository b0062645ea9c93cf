/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables that a configuration is made of: the engine's own, then one per transport of this
 * build. Any thread; no state.
 */
#include "config/engine_options.h"
#include "config/option.h"
#include "transport/transport.h"

enum ferry_status ferry_config_create(struct ferry_config **config_out)
{
    const struct ferry_transport_ops *ops[FERRY_TRANSPORTS_MAX];
    const struct ferry_option_table *tables[1 + FERRY_TRANSPORTS_MAX];
    uint32_t transport_count = ferry_transports(ops);
    size_t count = 0;

    tables[count++] = &ferry_engine_option_table;
    for (uint32_t i = 0; i < transport_count; i++) {
        if (ops[i]->options != NULL)
            tables[count++] = ops[i]->options;
    }
    return ferry_config_create_with(tables, count, config_out);
}
