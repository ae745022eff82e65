#include "base/watch.h"

#include "base/error.h"
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NESTED_MAX = 4 };

struct Watch {
    int rank;
    double seconds;
    pthread_t thread;
    pthread_mutex_t mutex; /* of `closing` */
    pthread_cond_t wake;
    bool closing;
    /* What the watched thread alone writes. */
    atomic_uint signs;
    atomic_llong step; /* 0: none has begun */
    atomic_int phase;
    struct {
        _Atomic(const char *) what, whom;
    } nested[NESTED_MAX];
    atomic_int depth;
};

/* Phases in which a rank may wait for a disk, or for another that does. */
static const bool patient[PHASE_COUNT] = {
    [PHASE_STARTUP] = true,
    [PHASE_DATA] = true,
    [PHASE_LOAD] = true,
    [PHASE_SAVE] = true,
};

static double limit_of(Watch *watch) {
    return watch->seconds * (patient[atomic_load(&watch->phase)] ? 10 : 1);
}

static double within(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

static double grace_of(double limit) { return within(limit / 10, 1, 30); }

/* In one write, past the streams: the watched thread may hang in one and hold its lock; so there is
 * no flushing at the end either (log and metrics flush what they print). A full pipe that nobody
 * reads must not stop the watch: then the line is lost. */
static void say(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line) length = sizeof line - 1;
    struct pollfd pipe = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&pipe, 1, 0) != 1 || !(pipe.revents & POLLOUT)) return;
    if (write(STDERR_FILENO, line, (size_t)length) != length) return;
}

static void say_hung(Watch *watch, double limit) {
    char step[32] = "before the first step", where[200] = "in no collective";
    long long number = atomic_load(&watch->step);
    int depth = atomic_load(&watch->depth);
    if (number) snprintf(step, sizeof step, "step %lld", number);
    if (depth > 0) {
        int inner = (depth < NESTED_MAX ? depth : NESTED_MAX) - 1;
        snprintf(where, sizeof where, "waiting in %s over %s",
                 atomic_load(&watch->nested[inner].what), atomic_load(&watch->nested[inner].whom));
    }
    say("weft: error: rank %d: no progress for %g s: %s, phase %s, %s; ends the job in %g s "
        "(train.hang_timeout)\n",
        watch->rank, limit, step, phase_names[atomic_load(&watch->phase)], where, grace_of(limit));
}

/* Sleeps for the time given. False when the watch is being closed. */
static bool sleep_on(Watch *watch, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    long nanoseconds = until.tv_nsec + (long)(seconds * 1e9);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->closing && pthread_cond_timedwait(&watch->wake, &watch->mutex, &until) == 0) {
    }
    bool goes_on = !watch->closing;
    pthread_mutex_unlock(&watch->mutex);
    return goes_on;
}

/* Counts its own naps, not the clock's time: those of a process that was stopped don't count. */
static void *look_after(void *argument) {
    Watch *watch = argument;
    double nap = within(watch->seconds / 20, 0.01, 1), idle = 0;
    unsigned seen = 0;
    bool said = false;
    while (sleep_on(watch, nap)) {
        unsigned signs = atomic_load(&watch->signs);
        if (signs != seen) {
            if (said) say("weft: rank %d: goes on\n", watch->rank);
            seen = signs;
            idle = 0;
            said = false;
            continue;
        }
        idle += nap;
        double limit = limit_of(watch);
        if (idle >= limit && !said) say_hung(watch, limit);
        said = said || idle >= limit;
        if (idle >= limit + grace_of(limit)) _exit(-WEFT_RUNTIME);
    }
    return NULL;
}

/* Signals stay with the thread that trains. */
static int start(Watch *watch) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&watch->thread, NULL, look_after, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

Watch *watch_open(int rank, double seconds) {
    if (seconds <= 0) return NULL;
    Watch *watch = calloc(1, sizeof *watch);
    if (!watch) {
        log_warn("out of memory: nothing will end this job if it hangs");
        return NULL;
    }
    watch->rank = rank;
    watch->seconds = seconds;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&watch->mutex, NULL);
    int failed = start(watch);
    if (!failed) return watch;
    log_warn("can't start a thread (%s): nothing will end this job if it hangs", strerror(failed));
    free(watch);
    return NULL;
}

void watch_close(Watch *watch) {
    if (!watch) return;
    pthread_mutex_lock(&watch->mutex);
    watch->closing = true;
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->wake);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

/* There is one writer: a load and a store will do, and cost less than an atomic addition. */
static void sign(Watch *watch) {
    unsigned signs = atomic_load_explicit(&watch->signs, memory_order_relaxed);
    atomic_store_explicit(&watch->signs, signs + 1, memory_order_release);
}

void watch_step(Watch *watch, int64_t step) {
    if (!watch) return;
    atomic_store_explicit(&watch->step, step, memory_order_relaxed);
    sign(watch);
}

void watch_phase(Watch *watch, Phase phase) {
    if (!watch) return;
    atomic_store_explicit(&watch->phase, (int)phase, memory_order_relaxed);
    sign(watch);
}

void watch_enter(Watch *watch, const char *what, const char *whom) {
    if (!watch) return;
    int depth = atomic_load_explicit(&watch->depth, memory_order_relaxed);
    if (depth < NESTED_MAX) {
        atomic_store_explicit(&watch->nested[depth].what, what, memory_order_relaxed);
        atomic_store_explicit(&watch->nested[depth].whom, whom, memory_order_relaxed);
    }
    atomic_store_explicit(&watch->depth, depth + 1, memory_order_release);
    sign(watch);
}

void watch_leave(Watch *watch) {
    if (!watch) return;
    int depth = atomic_load_explicit(&watch->depth, memory_order_relaxed);
    atomic_store_explicit(&watch->depth, depth - 1, memory_order_release);
    sign(watch);
}
