/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files of access control, read whole when an engine opens. Blocks on the file system; no
 * text holds a byte of what is in a file.
 */
#ifndef FERRY_ACCESS_SECRET_FILE_H
#define FERRY_ACCESS_SECRET_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <ferry/status.h>

#include "base/compiler.h"

/*
 * Read at most @size - 1 bytes of the regular file that the setting @name points to, and end them
 * with a NUL. @secret: refuse it if it belongs to somebody else, or if anybody but its owner may
 * read or write it.
 * ERR_CONFIG with the setting's name, the path and the remedy in the text.
 */
FERRY_CHECKED enum ferry_status ferry_secret_file_read(const char *name, const char *path,
                                                       bool secret, char *buf, size_t size,
                                                       size_t *len_out);

/* Zeroed pages that core dumps leave out, for what nobody should see; NULL without memory. */
void *ferry_secret_alloc(size_t size);
/* Wipes them and gives them back. NULL is harmless. */
void ferry_secret_free(void *memory, size_t size);

#endif
