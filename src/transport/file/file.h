/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: requests on file segments, between registered memory and backing files of this host.
 *
 * One dispatcher thread cuts requests into pieces and hands them to one of three backends: cuFile
 * where it is installed and takes the file, io_uring, or a pool of threads. Configured under
 * transports.file, transports.gds and transports.io_uring.
 */
#ifndef FERRY_TRANSPORT_FILE_FILE_H
#define FERRY_TRANSPORT_FILE_FILE_H

#include "transport/transport.h"

extern const struct ferry_transport_ops ferry_file_ops;

#endif
