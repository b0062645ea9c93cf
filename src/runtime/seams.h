/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model rig and the tests may put in the place of the outside world when they open an
 * engine. Everything is borrowed for the engine's life; zeroed members mean "the real thing".
 */
#ifndef FERRY_RUNTIME_SEAMS_H
#define FERRY_RUNTIME_SEAMS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/engine.h>

struct ferry_clock;
struct ferry_net;
struct ferry_random;
struct ferry_reactor_ops;
struct ferry_store;
struct ferry_transport;
struct ferry_urma_seam;

struct ferry_engine_seams {
    const struct ferry_clock *clock;
    struct ferry_random *random;
    struct ferry_net *net;
    const struct ferry_reactor_ops *reactor_ops;
    const struct ferry_urma_seam *urma; /* instead of the built-in adapter of ub */
    struct ferry_store *store;          /* instead of metadata_type; not closed by the engine */
    /*
     * No thread is started and no control server or client opened. The segment name and the
     * advertised address come from the options and the configuration. Whoever opened the engine
     * calls ferry_engine_turn(); calls that block call step() until they are done, and without a
     * step() they return what they would at their deadline.
     */
    bool threadless;
    void (*step)(void *arg);
    void *step_arg;
};

enum ferry_status ferry_engine_open_with(const struct ferry_engine_options *options,
                                         const struct ferry_engine_seams *seams,
                                         struct ferry_engine **engine_out);

/* Threadless engines: one turn of the engine's own worker and of loop's; returns work done. */
uint32_t ferry_engine_turn(struct ferry_engine *engine);

/* An open transport by name, or NULL: for rigs that turn its workers and for tests. */
struct ferry_transport *ferry_engine_transport(struct ferry_engine *engine, const char *name);

#endif
