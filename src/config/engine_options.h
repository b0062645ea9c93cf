/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table of the engine itself: settings at the top level of a configuration.
 */
#ifndef FERRY_CONFIG_ENGINE_OPTIONS_H
#define FERRY_CONFIG_ENGINE_OPTIONS_H

#include "config/option.h"

extern const struct ferry_option_table ferry_engine_option_table;

#endif
