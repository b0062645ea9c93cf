/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path health and speed. Runs on the path's worker; decides nothing but pauses.
 */
#include "transport/device/rail.h"

#include "base/clock.h"

/* A new sample weighs a fifth; shorter spans than this are added to the next one. */
#define SAMPLE_SHARE  5
#define SAMPLE_NS_MIN (20 * FERRY_NS_PER_US)
#define DOUBLINGS_MAX 16

const char *ferry_device_class_name(enum ferry_device_class class)
{
    static const char *const names[FERRY_DEVICE_CLASS_COUNT] = {
        "fine",   "local_device", "remote_path", "endpoint",
        "memory", "timeout",      "canceled",    "unknown"};

    return (unsigned)class < FERRY_DEVICE_CLASS_COUNT ? names[class] : "?";
}

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

static uint64_t average(uint64_t old, uint64_t sample)
{
    if (old == 0)
        return sample;
    return sample > old ? old + (sample - old) / SAMPLE_SHARE : old - (old - sample) / SAMPLE_SHARE;
}

bool ferry_device_rail_usable(struct ferry_device_rail *rail, uint64_t now_ns)
{
    if (get(&rail->paused_until_ns) == 0)
        return true;
    if (now_ns < get(&rail->paused_until_ns))
        return false;
    set(&rail->paused_until_ns, 0);
    rail->window_errors = 0;
    count(&rail->recoveries, 1);
    return true;
}

void ferry_device_rail_success(struct ferry_device_rail *rail, uint64_t bytes, uint64_t latency_ns,
                               uint64_t now_ns)
{
    (void)now_ns;
    rail->sample_bytes += bytes;
    set(&rail->latency_ns, average(get(&rail->latency_ns), latency_ns > 0 ? latency_ns : 1));
    rail->pauses_in_row = 0;
    rail->window_errors = 0;
    count(&rail->completions, 1);
    count(&rail->completed_bytes, bytes);
}

void ferry_device_rail_sample(struct ferry_device_rail *rail, bool idle_before, uint64_t now_ns)
{
    uint64_t span;

    /* A time without work says nothing about speed. */
    if (idle_before || rail->sampled_ns == 0) {
        rail->sampled_ns = now_ns;
        rail->sample_bytes = 0;
        return;
    }
    span = now_ns - rail->sampled_ns;
    if (rail->sample_bytes == 0 || span < SAMPLE_NS_MIN)
        return;
    /* In double: bytes times a billion does not fit into 64 bits. */
    set(&rail->bytes_per_s,
        average(get(&rail->bytes_per_s),
                (uint64_t)((double)rail->sample_bytes * (double)FERRY_NS_PER_S / (double)span) +
                    1));
    rail->sampled_ns = now_ns;
    rail->sample_bytes = 0;
}

bool ferry_device_rail_error(struct ferry_device_rail *rail,
                             const struct ferry_device_rail_options *options,
                             enum ferry_device_class class, uint64_t now_ns)
{
    uint64_t pause_ns = options->cooldown_ns;

    count(&rail->errors[class], 1);
    if (class != FERRY_DEVICE_PATH && class != FERRY_DEVICE_TIMEOUT)
        return false;
    if (rail->window_errors == 0 || now_ns - rail->window_began_ns > options->window_ns) {
        rail->window_began_ns = now_ns;
        rail->window_errors = 0;
    }
    if (++rail->window_errors < options->errors_max || get(&rail->paused_until_ns) != 0)
        return false;
    for (uint32_t i = 0; i < rail->pauses_in_row && pause_ns < options->cooldown_ns_max; i++)
        pause_ns *= 2;
    if (pause_ns > options->cooldown_ns_max)
        pause_ns = options->cooldown_ns_max;
    if (rail->pauses_in_row < DOUBLINGS_MAX)
        rail->pauses_in_row++;
    set(&rail->paused_until_ns, ferry_deadline_ns(now_ns, pause_ns));
    count(&rail->pauses, 1);
    return true;
}
