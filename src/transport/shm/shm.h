/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm: the way between two engines of one user on one host. One copy, no socket on the way.
 *
 * What it trusts, how peers meet and what a copy may touch: docs/design/shm.md.
 */
#ifndef FERRY_TRANSPORT_SHM_SHM_H
#define FERRY_TRANSPORT_SHM_SHM_H

#include "transport/transport.h"

/* Of no number that is published elsewhere: other decoders do not see it (metadata/document.h). */
#define FERRY_SHM_WIRE_ID (FERRY_DOCUMENT_OWN_ID_MIN + 1)

extern const struct ferry_transport_ops ferry_shm_ops;

#endif
