/* Whole steps: the exact reduction against the classic one, two trainers in turn. */
#include "base/error.h"
#include "base/log.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "run/trainer.h"

#include <stdio.h>

typedef struct {
    Trainer exact, allreduce;
    Series ratio, seconds, exact_waits, allreduce_waits;
} ReductionBench;

static int take_pair(ReductionBench *bench, bool counts) {
    StepReport exact = {0}, allreduce = {0};
    comm_barrier(bench->exact.grid, GROUP_GRID);
    int status = trainer_step(&bench->exact, &exact);
    if (status) return status;
    comm_barrier(bench->exact.grid, GROUP_GRID);
    status = trainer_step(&bench->allreduce, &allreduce);
    if (status || !counts) return status;
    series_add(&bench->seconds, exact.seconds);
    series_add(&bench->ratio, exact.seconds / allreduce.seconds);
    series_add(&bench->exact_waits, exact.communication / exact.seconds);
    series_add(&bench->allreduce_waits, allreduce.communication / allreduce.seconds);
    return 0;
}

static int measure(ReductionBench *bench, int pairs, int all) {
    int status = take_pair(bench, false);
    for (int i = 0; i < pairs && !status; i++) {
        status = take_pair(bench, true);
        log_info("pair %d of %d", bench->ratio.count, all);
    }
    return status;
}

static void print(const ReductionBench *bench) {
    series_print(&bench->seconds, "step, exact", 1, "s");
    series_print(&bench->ratio, "step, exact / allreduce", 1, "times its time");
    series_print(&bench->exact_waits, "share of communication, exact", 1, "of the step");
    series_print(&bench->allreduce_waits, "share of communication, allreduce", 1, "of the step");
}

static int open_trainer(Trainer *trainer, const Bench *bench, const char *reduction) {
    Config config = *bench->config;
    snprintf(config.grid.reduction, sizeof config.grid.reduction, "%s", reduction);
    int status = trainer_open(trainer, &config, bench->grid, bench->threads, true);
    return status ? status : trainer_survey(trainer);
}

/* So many pairs; who is opened first may get other pages of memory. */
static int measure_with(ReductionBench *reduction, const Bench *bench, bool exact_first,
                        int pairs) {
    Trainer *trainer[] = {&reduction->exact, &reduction->allreduce};
    static const char *const name[] = {"exact", "allreduce"};
    int first = exact_first ? 0 : 1;
    int status = open_trainer(trainer[first], bench, name[first]);
    if (!status) status = open_trainer(trainer[!first], bench, name[!first]);
    if (!status) status = measure(reduction, pairs, bench->pairs);
    if (status && !error_is_agreed()) return status;
    if (trainer[!first]->grid) trainer_close(trainer[!first]);
    trainer_close(trainer[first]);
    return status;
}

int bench_reduction(const Bench *bench) {
    ReductionBench reduction = {.ratio = {.count = 0}};
    if (bench->grid->tp * bench->grid->dp < 2) {
        error_set(WEFT_USAGE, "--part reduction: sums over ranks want two or more of them "
                              "(launch/local -n 2 --command bench)");
        error_set_agreed(true);
        return WEFT_USAGE;
    }
    int half = bench->pairs / 2;
    int status = measure_with(&reduction, bench, true, bench->pairs - half);
    if (!status) status = measure_with(&reduction, bench, false, half);
    if (!status) print(&reduction);
    return status;
}
