/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Position-dependent test data, and memory with fences.
 *
 * Each byte depends on a seed and on its position, so a block that arrives shifted, swapped with
 * another or from an earlier round differs. A fenced range has bytes of its own before and after
 * it, so a write that leaves the range is seen. Header only, no state, any thread.
 */
#ifndef FERRY_TESTS_SUPPORT_PATTERN_H
#define FERRY_TESTS_SUPPORT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/*
 * ThreadSanitizer does not know that a byte that crossed a socket was ordered by it. Where both
 * ends of a transfer live in one process, looking at the payload would be reported as a race.
 */
#define PATTERN_UNCHECKED __attribute__((no_sanitize_thread))

#define PATTERN_SAME      SIZE_MAX /* pattern_differs(): there is no difference */
#define PATTERN_FENCE     8192u    /* bytes of fence on each side of a range */
#define PATTERN_FENCE_KEY 0x5bd1e9955bd1e995u

/* The eight bytes at position 8 * @index; the finisher of splitmix64. */
static inline uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline unsigned char pattern_byte(uint64_t seed, uint64_t position)
{
    return (unsigned char)(pattern_word(seed, position / 8) >> (8 * (position % 8)));
}

/* Write the bytes of positions @position to @position + @len - 1. */
PATTERN_UNCHECKED static inline void pattern_fill(void *memory, size_t len, uint64_t seed,
                                                  uint64_t position)
{
    unsigned char *at = memory;
    size_t done = 0;

    while (done < len && (position + done) % 8 != 0) {
        at[done] = pattern_byte(seed, position + done);
        done++;
    }
    for (; len - done >= 8; done += 8) {
        uint64_t word = pattern_word(seed, (position + done) / 8);
        memcpy(at + done, &word, 8);
    }
    for (; done < len; done++)
        at[done] = pattern_byte(seed, position + done);
}

/* The offset of the first byte that is not what pattern_fill() writes there, or PATTERN_SAME. */
PATTERN_UNCHECKED static inline size_t pattern_differs(const void *memory, size_t len,
                                                       uint64_t seed, uint64_t position)
{
    const unsigned char *at = memory;
    size_t done = 0;

    while (done < len) {
        bool whole = (position + done) % 8 == 0 && len - done >= 8;
        uint64_t want = pattern_word(seed, (position + done) / 8);
        uint64_t have = 0;
        if (whole)
            memcpy(&have, at + done, 8);
        if (whole && have == want) {
            done += 8;
            continue;
        }
        size_t end = whole ? done + 8 : done + 1;
        for (; done < end; done++) {
            if (at[done] != pattern_byte(seed, position + done))
                return done;
        }
    }
    return PATTERN_SAME;
}

/* A range of memory between two fences; the caller's struct. */
struct fenced {
    unsigned char *data;
    size_t len;
    /* the mapping around it */
    unsigned char *map;
    size_t map_len;
};

/*
 * Map a range of @len bytes at @misalign bytes after a page's start, between fences. False without
 * memory. The range starts as zeroes; fenced_free() gives it back.
 */
static inline bool fenced_alloc(struct fenced *range, size_t len, size_t misalign)
{
    range->map_len = PATTERN_FENCE + misalign + len + PATTERN_FENCE;
    range->map = mmap(NULL, range->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    if (range->map == MAP_FAILED) {
        range->map = NULL;
        return false;
    }
    range->data = range->map + PATTERN_FENCE + misalign;
    range->len = len;
    pattern_fill(range->map, PATTERN_FENCE + misalign, PATTERN_FENCE_KEY, 0);
    pattern_fill(range->data + len, PATTERN_FENCE, PATTERN_FENCE_KEY, 1u << 20);
    return true;
}

/* Whether no byte outside of the range changed since it was mapped. */
static inline bool fenced_intact(const struct fenced *range)
{
    size_t before = (size_t)(range->data - range->map);
    return pattern_differs(range->map, before, PATTERN_FENCE_KEY, 0) == PATTERN_SAME &&
           pattern_differs(range->data + range->len, PATTERN_FENCE, PATTERN_FENCE_KEY, 1u << 20) ==
               PATTERN_SAME;
}

static inline void fenced_free(struct fenced *range)
{
    if (range->map != NULL)
        munmap(range->map, range->map_len);
    memset(range, 0, sizeof(*range));
}

#endif
