/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ground on which every transport meets the same tests: an initiator with fenced memory of its
 * own, and a target whose fenced memory it reads and writes through the public interface.
 *
 *   loop, fault:    one engine, the target is its own segment
 *   ub-table, ub-native: two engines in this process, on the simulated UB fabric
 *   hp_tcp-<reactor>: two engines in this process, over loopback, each with its control plane
 *   shm-<memory>-<reactor>: two engines in this process; the target's memory is brought by the test
 *     or allocated by the engine
 *   file-<backend>: one engine and a file; the target's memory is a mapping of it
 *
 * All functions are for the test's thread.
 */
#ifndef FERRY_TESTS_CONTRACT_TRANSPORT_RIG_H
#define FERRY_TESTS_CONTRACT_TRANSPORT_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/ferry.h>

#include "support/pattern.h"
#include "support/test.h"

#define RIG_LENGTH   (8u << 20) /* bytes of each side's memory */
#define RIG_MISALIGN 40u        /* the memory starts that far into a page */

struct rig_kind {
    const char *name;      /* argument of the test program */
    const char *transport; /* what a task has to say it ran on */
    const char *reactor;
    bool remote;   /* two engines */
    bool fault;    /* decorated */
    bool split;    /* the transport takes no lists of pieces: the runtime splits them */
    bool can_skip; /* this host may lack what it needs */
    bool tls;      /* access control: both engines have a certificate */
    bool key;      /* access control: both engines share a key */
    bool file;     /* the target is a file: no registrations, no permissions, no peer */
    const char *const *settings; /* of the kind, NULL-terminated pairs; may be NULL */
    bool alloc;                  /* the target's memory is the engine's, and shared */
    bool ub;                     /* on the simulated UB fabric */
    bool native;                 /* by way of urma_native.c */
};

struct rig {
    const struct rig_kind *kind;
    struct ferry_engine *initiator;
    struct ferry_engine *target; /* the same engine if the kind is not remote */
    uint64_t segment;
    struct fenced local;
    struct fenced remote;
    uint64_t batch; /* 64 slots */
    char path[64];  /* of the file */
};

#define RIG_BATCH 64u

const struct rig_kind *rig_find_kind(const char *name);
/* Exit with 77 and a line of reason if this build or this host lacks what the kind needs. */
void rig_skip_if_missing(const struct rig_kind *kind);

/* @settings: pairs of name and value, NULL-terminated, for both engines; may be NULL. */
void rig_open(struct rig *rig, const struct rig_kind *kind, const char *const *settings);
/* Also checks the fences. Parts that a test closed already are NULL or 0. */
void rig_close(struct rig *rig);

/* An engine as the rig makes them. */
struct ferry_engine *rig_engine(const struct rig_kind *kind, const char *const *settings);

void rig_register(struct ferry_engine *engine, void *addr, uint64_t length,
                  enum ferry_permission permission);

/* What the remote_offset of a position in the target is. */
uint64_t rig_remote(const struct rig *rig, uint64_t offset);

/* A request between offsets of the two memories. */
struct ferry_request rig_request(const struct rig *rig, enum ferry_opcode opcode,
                                 uint64_t local_offset, uint64_t remote_offset, uint64_t length);

/* Run one and return the status with which it ended or was refused. */
enum ferry_status rig_run(struct rig *rig, const struct ferry_request *request);

/* Fill one side with the pattern of a seed, the other with that of another. */
void rig_fill(struct rig *rig, uint64_t local_seed, uint64_t remote_seed);

/* [offset, offset + length) of a range holds what position @from of the seed's pattern on says. */
void rig_expect(const struct fenced *range, uint64_t offset, uint64_t length, uint64_t seed,
                uint64_t from);

struct ferry_task_status rig_task(struct ferry_engine *engine, uint64_t batch, uint32_t task);
struct ferry_batch_status rig_batch(struct ferry_engine *engine, uint64_t batch);

/* From now on the devices of ub say nothing of jetties that fail by themselves. */
void rig_mute_events(bool on);

#endif
