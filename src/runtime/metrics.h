/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of an engine as text: what the control server answers to those who scrape it.
 */
#ifndef FERRY_RUNTIME_METRICS_H
#define FERRY_RUNTIME_METRICS_H

#include <stddef.h>

#include "runtime/exposition.h"

struct ferry_engine;
struct ferry_metrics;

/* ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_metrics_open(struct ferry_metrics **metrics_out);
/* Accepts NULL. */
void ferry_metrics_close(struct ferry_metrics *metrics);

/*
 * Any thread; takes the locks of transports, waits for nobody else. The text is malloc'd; its size
 * does not grow with the number of peers beyond a bound. ERR_NO_MEMORY, ERR_TOO_LARGE.
 */
FERRY_CHECKED enum ferry_status ferry_metrics_print(struct ferry_engine *engine,
                                                    enum ferry_exposition_form form,
                                                    char **text_out, size_t *len_out);

#endif
