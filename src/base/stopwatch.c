#include "base/stopwatch.h"

#include "base/clock.h"

#include <assert.h>
#include <stddef.h>

static const struct {
    const char *name;
    StepPart products; /* where its matrix products belong */
} parts[STEP_PARTS] = {
    [STEP_REST] = {"rest", STEP_REST},
    [STEP_DATA] = {"data", STEP_DATA},
    [STEP_EMBEDDING] = {"embedding or input", STEP_EMBEDDING},
    [STEP_NORM] = {"norms", STEP_NORM},
    [STEP_ATTENTION_PRODUCTS] = {"attention products", STEP_ATTENTION_PRODUCTS},
    [STEP_ATTENTION] = {"attention heads", STEP_ATTENTION_PRODUCTS},
    [STEP_FFN_PRODUCTS] = {"ffn products", STEP_FFN_PRODUCTS},
    [STEP_FFN] = {"activation", STEP_FFN_PRODUCTS},
    [STEP_RESIDUAL] = {"residual and dropout", STEP_RESIDUAL},
    [STEP_HEAD_PRODUCTS] = {"head products", STEP_HEAD_PRODUCTS},
    [STEP_HEAD] = {"loss", STEP_HEAD_PRODUCTS},
    [STEP_EXCHANGE] = {"communication", STEP_EXCHANGE},
    [STEP_GRADIENT] = {"gradient tree", STEP_GRADIENT},
    [STEP_GRADIENT_NORM] = {"gradient norm", STEP_GRADIENT_NORM},
    [STEP_OPTIMIZER] = {"AdamW", STEP_OPTIMIZER},
};

const char *stopwatch_part_name(StepPart part) { return parts[part].name; }

/* Up to now the time belongs to the innermost part. */
static void account(Stopwatch *watch) {
    double now = clock_seconds();
    watch->seconds[watch->part[watch->depth]] += now - watch->since;
    watch->since = now;
}

void stopwatch_start(Stopwatch *watch) {
    *watch = (Stopwatch){.part = {STEP_REST}};
    watch->since = clock_seconds();
}

void stopwatch_stop(Stopwatch *watch) { account(watch); }

void stopwatch_begin(Stopwatch *watch, StepPart part) {
    if (!watch) return;
    assert(watch->depth + 1 < STOPWATCH_DEPTH);
    account(watch);
    watch->part[++watch->depth] = part;
}

StepPart stopwatch_part(const Stopwatch *watch) {
    return watch ? watch->part[watch->depth] : STEP_REST;
}

StepPart stopwatch_products(const Stopwatch *watch) {
    return parts[stopwatch_part(watch)].products;
}

void stopwatch_begin_products(Stopwatch *watch) {
    stopwatch_begin(watch, stopwatch_products(watch));
}

void stopwatch_end(Stopwatch *watch) {
    if (!watch) return;
    assert(watch->depth > 0);
    account(watch);
    watch->depth--;
}

double stopwatch_aside(const Stopwatch *watch) { return watch ? clock_seconds() : 0; }

void stopwatch_add(const Stopwatch *watch, StopwatchAside *aside, double since) {
    if (!watch) return;
    long long taken = (long long)(1e9 * (clock_seconds() - since));
    atomic_fetch_add_explicit(&aside->nanoseconds, taken, memory_order_relaxed);
}

double stopwatch_move(Stopwatch *watch, StopwatchAside *aside, int threads, StepPart from,
                      StepPart to) {
    if (!watch) return 0;
    double seconds = 1e-9 * (double)atomic_exchange(&aside->nanoseconds, 0) / threads;
    watch->seconds[from] -= seconds;
    watch->seconds[to] += seconds;
    return seconds;
}
