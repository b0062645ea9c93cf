/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry: a transfer engine that moves registered memory between processes, hosts and files.
 *
 * This header includes all of the public interface. Example: examples/read.c.
 */
#ifndef FERRY_FERRY_H
#define FERRY_FERRY_H

#include <ferry/batch.h>
#include <ferry/catalog.h>
#include <ferry/config.h>
#include <ferry/engine.h>
#include <ferry/memory.h>
#include <ferry/segment.h>
#include <ferry/status.h>

#endif
