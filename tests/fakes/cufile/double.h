/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test may ask of the stand-in for cuFile besides the library's own symbols, looked up in
 * the loaded object by name. The script is words of key=value, separated by commas; the variable
 * FERRY_CUFILE_DOUBLE gives the first one.
 *
 *   version=N             what cuFileGetVersion says (1090)
 *   max_direct_kib=N      largest entry, as in the properties (1024)
 *   batch_cap=N           entries of a batch, as in the properties (128)
 *   driver_err=N          cuFileDriverOpen fails; any further call ends the process
 *   register_err=N        cuFileHandleRegister fails and writes rubbish into the handle
 *   buf_err=N             cuFileBufRegister fails
 *   delay_ms=N            each batch starts so late
 *   order=reverse         events of a batch come in the reverse order
 *   poll_one=1            one event a poll
 *   silent_polls=N        no event in the first N polls of a batch; -1: none ever
 *   duplicate=1           each event comes twice
 *   stray=1               an event with an unknown cookie comes first, and one with cookie 0
 *   late=1                after each event one that says "pending" comes
 *   entry=N               the following three mean entry N of each batch only (all)
 *   status=N              the status of its event
 *   ret=short|zero|over|negative   its count
 *   getstatus=once|always cuFileBatchIOGetStatus fails: the second poll, or every one
 *   over=1                cuFileBatchIOGetStatus says that it has filled more than there was room
 *   submit=before|half    cuFileBatchIOSubmit fails before anything, or after half was started
 *   submit_block_ms=N     it blocks; -1: until ferry_cufile_double_release()
 *   cancel=error|events|silent     what a cancel does (silent: no event comes after it)
 *   dma_ms=N              after a cancel or a destroy entries are written for so long
 *   destroy_ms=N          cuFileBatchIODestroy takes so long
 *   setup_every=N         every N-th cuFileBatchIOSetUp fails
 *   stall_ms=N            an entry at file offset 0 takes so long
 *   full=1                a WRITE fails the way a full disk looks: an error of one poll, then
 * nothing
 */
#ifndef FERRY_TESTS_FAKES_CUFILE_DOUBLE_H
#define FERRY_TESTS_FAKES_CUFILE_DOUBLE_H

#include <stdint.h>

#define FERRY_CUFILE_DOUBLE_SCRIPT  "ferry_cufile_double_script"
#define FERRY_CUFILE_DOUBLE_COUNTS  "ferry_cufile_double_counts"
#define FERRY_CUFILE_DOUBLE_RELEASE "ferry_cufile_double_release"

struct cufile_double_counts {
    uint64_t driver_opens, driver_closes;
    uint64_t setups, destroys;
    uint64_t submits, entries, cancels, polls;
    uint64_t files_registered, files_deregistered;
    uint64_t buffers_registered, buffers_deregistered;
    uint64_t violations;       /* rules of the library that the caller broke */
    char violation[128];       /* the first of them */
    uint64_t last_base_offset; /* of the last entry that was given a registered base */
    uint64_t registered_entries;
    uint64_t bytes;
};

typedef void cufile_double_script_fn(const char *text);
typedef void cufile_double_counts_fn(struct cufile_double_counts *counts_out);
typedef void cufile_double_release_fn(void);

#endif
