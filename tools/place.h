/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in a segment `ferry cp` reads or writes:
 *
 *     [ferry://]NAME/[INDEX][+OFFSET]     buffer INDEX (0 if left out), ordered by address
 *     [ferry://]NAME/@ADDRESS             an address of the peer, decimal or 0x...
 *     file://PATH                         a file as a segment, from its beginning
 *
 * Without ferry:// a text is such a place only if NAME has the form HOST:PORT; else it is a file.
 */
#ifndef FERRY_TOOLS_PLACE_H
#define FERRY_TOOLS_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/ferry.h>

#define FERRY_PLACE_HELP "NAME[/[INDEX][+OFFSET]] or ferry://NAME/@ADDRESS"

struct ferry_place {
    char name[4200]; /* a path fits */
    bool absolute;
    uint64_t addr;  /* absolute */
    uint64_t index; /* else */
    uint64_t offset;
};

/* What a text of the command line is. */
enum ferry_place_kind {
    FERRY_PLACE_FILE,
    FERRY_PLACE_SEGMENT,
    FERRY_PLACE_WRONG, /* it says ferry:// and cannot be read */
};

enum ferry_place_kind ferry_place_parse(const char *text, struct ferry_place *place_out);

/*
 * The address of the place and the bytes from there to the end of its buffer. False after a
 * message: no such buffer, beyond its end, or not @writable though it must be.
 */
bool ferry_place_resolve(struct ferry_engine *engine, uint64_t segment,
                         const struct ferry_place *place, bool writable, uint64_t *addr_out,
                         uint64_t *room_out);

#endif
