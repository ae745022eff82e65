/* The update of all parameters and the gradient norm against a stream over the same arrays. */
#include "bench/bench.h"
#include "bench/figure.h"
#include "bench/stream.h"

#include "base/clock.h"
#include "base/error.h"
#include "run/setup.h"
#include "run/trainer.h"

typedef struct {
    Trainer trainer;
    Series update, stream, ratio, norm, norm_ratio;
    int64_t updates;
} AdamwBench;

/* Gradients of a usual size, so that no moment becomes denormal. */
static void fill_gradient(ParamSet *set) {
    real *gradient = set->arena[PARAM_GRADIENT];
    for (int64_t i = 0; i < set->elements; i++) gradient[i] = (real)(i % 101 - 50) * (real)1e-4;
}

static void take_pair(AdamwBench *bench, bool counts) {
    Trainer *trainer = &bench->trainer;
    ParamSet *set = &trainer->model.set;
    double elements = (double)set->elements, start;
    comm_barrier(trainer->grid, GROUP_GRID);
    start = clock_seconds();
    adamw_update(&trainer->adamw, set, ++bench->updates, 1e-6, 1, trainer->threads);
    double update = 7 * elements * sizeof(real) / (clock_seconds() - start);
    comm_barrier(trainer->grid, GROUP_GRID);
    double stream =
        stream_rate(trainer->threads, set->elements, set->arena[PARAM_GRADIENT],
                    set->arena[PARAM_VALUE], set->arena[PARAM_MOMENT1], set->arena[PARAM_MOMENT2]);
    comm_barrier(trainer->grid, GROUP_GRID);
    start = clock_seconds();
    gradient_norm(&trainer->norm, set, trainer->grid, trainer->threads);
    double norm = elements * sizeof(real) / (clock_seconds() - start);
    if (!counts) return;
    series_add(&bench->update, update);
    series_add(&bench->stream, stream);
    series_add(&bench->norm, norm);
    series_add(&bench->ratio, update / stream);
    series_add(&bench->norm_ratio, norm / stream);
}

int bench_adamw(const Bench *bench) {
    AdamwBench adamw = {.updates = 0};
    int status = trainer_open(&adamw.trainer, bench->config, bench->grid, bench->threads, true);
    if (status) {
        if (error_is_agreed()) trainer_close(&adamw.trainer);
        return status;
    }
    fill_gradient(&adamw.trainer.model.set);
    for (int i = -1; i < bench->pairs; i++) take_pair(&adamw, i >= 0); /* the first warms up */
    const char *unit = "GB/s a rank, 4 reads and 3 writes";
    series_print(&adamw.update, "AdamW", 1e9, unit);
    series_print(&adamw.stream, "stream in place", 1e9, unit);
    series_print(&adamw.ratio, "AdamW / stream", 1, "of its bytes/s");
    series_print(&adamw.norm, "gradient norm", 1e9, "GB/s a rank, 1 read");
    series_print(&adamw.norm_ratio, "gradient norm / stream", 1, "of its bytes/s");
    trainer_close(&adamw.trainer);
    return 0;
}
