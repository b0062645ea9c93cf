/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which process an engine belongs to. A child of fork() has none of the engine's threads, and its
 * locks may have been held at that moment, so every call in it is refused before it touches either.
 *
 * The answer has to be cheap, since submit asks as well: one page per engine that the kernel hands
 * to a child zeroed (MADV_WIPEONFORK, Linux 4.14). Where that is missing the pids are compared. No
 * pthread_atfork() handlers: they would outlive the library's welcome in the host program.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "runtime/runtime.h"

/* Engines that were closed in a child: reachable, so that leak checkers see whose they are. */
static struct {
    pthread_mutex_t mutex;
    struct ferry_engine *engines[16];
    uint32_t count;
} graveyard = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum ferry_status ferry_fork_mark_open(struct ferry_engine *engine)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    engine->pid = getpid();
    if (map == MAP_FAILED)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "engine: no memory for a page");
    if (madvise(map, page, MADV_WIPEONFORK) != 0) {
        munmap(map, page);
        return FERRY_OK;
    }
    engine->fork_mark = map;
    atomic_store(engine->fork_mark, 1);
    return FERRY_OK;
}

void ferry_fork_mark_close(struct ferry_engine *engine)
{
    if (engine->fork_mark != NULL)
        munmap((void *)engine->fork_mark, (size_t)sysconf(_SC_PAGESIZE));
    engine->fork_mark = NULL;
}

bool ferry_engine_forked(const struct ferry_engine *engine)
{
    if (engine->fork_mark != NULL)
        return atomic_load_explicit(engine->fork_mark, memory_order_relaxed) == 0;
    return engine->pid != getpid();
}

enum ferry_status ferry_engine_enter(const struct ferry_engine *engine)
{
    if (FERRY_UNLIKELY(ferry_engine_forked(engine)))
        return ferry_fail(FERRY_ERR_FORKED,
                          "this engine belongs to process %d, this is process %d: open one after "
                          "fork()",
                          (int)engine->pid, (int)getpid());
    return FERRY_OK;
}

enum ferry_status ferry_engine_enter_blocking(const struct ferry_engine *engine)
{
    enum ferry_status status = ferry_engine_enter(engine);

    if (status == FERRY_OK && ferry_in_callback())
        return ferry_fail(FERRY_ERR_STATE, "a completion callback must not call what blocks");
    return status;
}

/*
 * Nothing is freed: what belongs to threads that do not exist here cannot be taken apart, and the
 * child's copy costs nothing until it is written to.
 */
void ferry_engine_bury(struct ferry_engine *engine)
{
    pthread_mutex_lock(&graveyard.mutex);
    if (graveyard.count < FERRY_ARRAY_LEN(graveyard.engines))
        graveyard.engines[graveyard.count++] = engine;
    pthread_mutex_unlock(&graveyard.mutex);
}
