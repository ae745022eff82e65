#include "run/bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "run/identity.h"
#include "run/session.h"
#include "run/trainer.h"

#include <omp.h>
#include <stdlib.h>

enum { PAIRS = 9, SIDE = 2048, CALLS = 2 };

/* One square product per thread, all threads and ranks at once: floating-point operations per
 * second and core. */
static double gemm_rate(Trainer *trainer, const real *a, real *c) {
    comm_barrier(trainer->grid, GROUP_GRID);
    double start = clock_seconds();
#pragma omp parallel num_threads(trainer->threads)
    {
        real *mine = c + (int64_t)omp_get_thread_num() * SIDE * SIDE;
        for (int i = 0; i < CALLS; i++)
            gemm_call(&(GemmCall){GEMM_NT, SIDE, SIDE, SIDE, a, SIDE, a, SIDE, 1, 0, mine, SIDE});
    }
    comm_barrier(trainer->grid, GROUP_GRID);
    return CALLS * 2.0 * SIDE * SIDE * SIDE / (clock_seconds() - start);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *what, double *value, double unit, const char *name) {
    qsort(value, PAIRS, sizeof *value, compare);
    log_print("%-28s %8.3f %s  (%.3f .. %.3f)\n", what, value[PAIRS / 2] / unit, name,
              value[0] / unit, value[PAIRS - 1] / unit);
}

static int measure(Trainer *trainer, const real *a, real *c) {
    double gemm[PAIRS], step[PAIRS], fraction[PAIRS], communication[PAIRS];
    int cores = trainer->threads * trainer->grid->tp * trainer->grid->dp;
    const Config *config = &trainer->config;
    double operations = 6 * model_forward_products(&trainer->model.config) *
                        (double)(config->train.global_batch * config->model.context);
    gemm_rate(trainer, a, c);
    for (int i = -1; i < PAIRS; i++) { /* the first step warms up */
        StepReport report;
        if (i >= 0) gemm[i] = gemm_rate(trainer, a, c);
        int status = trainer_step(trainer, &report);
        if (status) return status;
        log_info(i < 0 ? "warmed up" : "pair %d of %d", i + 1, PAIRS);
        if (i < 0) continue;
        step[i] = report.seconds;
        fraction[i] = operations / report.seconds / (gemm[i] * cores);
        communication[i] = report.communication / report.seconds;
    }
    log_print("%s\n", identity_text());
    log_print("%d pairs: median (least .. most)\n", PAIRS);
    print_row("gemm 2048, one call a core", gemm, 1e9, "GF/s per core");
    print_row("training step", step, 1, "s");
    print_row("step / gemm on all cores", fraction, 1, "of the rate");
    print_row("share of communication", communication, 1, "of the step");
    return 0;
}

static int bench_on_grid(const Config *config, Grid *grid, int threads) {
    Trainer trainer;
    int status = trainer_open(&trainer, config, grid, threads, true);
    real *a = memory_allocate((size_t)SIDE * SIDE * sizeof(real), "bench matrices");
    real *c = memory_allocate((size_t)threads * SIDE * SIDE * sizeof(real), "bench matrices");
    if (!status) status = comm_agree(grid, GROUP_GRID, a && c ? 0 : WEFT_RUNTIME);
    for (int64_t i = 0; !status && i < SIDE * SIDE; i++) a[i] = (real)(i % 97) / 97 - (real)0.5;
    if (!status) status = trainer_survey(&trainer);
    if (!status) status = measure(&trainer, a, c);
    free(a);
    free(c);
    if (!status || error_is_agreed()) trainer_close(&trainer);
    return status;
}

int bench_run(const Config *config, int tp, int dp, Grid *grid) {
    Session session;
    int status = session_open(&session, grid, config, tp, dp);
    if (status) return status;
    int result = grid->surplus ? 0 : bench_on_grid(config, grid, session.threads);
    if (result && !error_is_agreed()) return result;
    return session_close(&session, result);
}
