/* The training step against BLAS, and where its time goes. */
#include "base/error.h"
#include "base/log.h"
#include "bench/figure.h"
#include "bench/yardstick.h"
#include "bench/bench.h"
#include "run/trainer.h"

#include <stdio.h>

typedef struct {
    Trainer trainer;
    Yardstick yardstick;
    Stopwatch stopwatch;
    double operations, head, heads; /* of a step: all, the head's, those in attention heads */
    Series each, whole, step, fraction, communication, without_head, head_fraction;
    Series share[STEP_PARTS], sum, pointwise, tokens;
} StepBench;

/* Of the heads backward does more than twice the forward's products: it computes scores again. */
static void count_operations(StepBench *bench) {
    const ModelConfig *model = &bench->trainer.model.config;
    const Config *config = &bench->trainer.config;
    double rows = (double)(config->train.global_batch * config->model.context);
    bench->operations = 6 * rows * model_forward_products(model);
    bench->head = 6 * rows * model_products(model).head;
    if (model->kind == MODEL_DECODER)
        bench->heads = 7 * rows * (double)(model->layers * model->ffn.d_model * model->context);
}

/* What isn't products, communication or the optimizer: pointwise work, norms, the loss, and of the
 * heads what their products would leave at BLAS's rate: softmax, rotation, and whatever their
 * products are slower. */
static double pointwise_seconds(const StepBench *bench, double best) {
    const double *seconds = bench->stopwatch.seconds;
    double heads = seconds[STEP_ATTENTION] - bench->heads / best;
    return seconds[STEP_FFN] + seconds[STEP_NORM] + seconds[STEP_RESIDUAL] + seconds[STEP_HEAD] +
           (heads > 0 ? heads : 0);
}

static void add_step(StepBench *bench, YardstickRates rates, const StepReport *report) {
    const double *part = bench->stopwatch.seconds;
    double best = rates.best, sum = 0, seconds = report->seconds;
    double head = part[STEP_HEAD_PRODUCTS] + part[STEP_HEAD];
    for (int p = 0; p < STEP_PARTS; p++) {
        series_add(&bench->share[p], part[p] / seconds);
        sum += part[p];
    }
    series_add(&bench->sum, sum / seconds);
    series_add(&bench->each, rates.each);
    series_add(&bench->whole, rates.whole);
    series_add(&bench->step, seconds);
    series_add(&bench->tokens, (double)report->step_tokens / seconds);
    series_add(&bench->fraction, bench->operations / seconds / best);
    series_add(&bench->communication, report->communication / seconds);
    series_add(&bench->head_fraction, bench->head / head / best);
    series_add(&bench->without_head, (bench->operations - bench->head) / (seconds - head) / best);
    series_add(&bench->pointwise, pointwise_seconds(bench, best) / seconds);
}

static void print(const StepBench *bench) {
    series_print(&bench->each, "gemm 2048, one call a core", 1e9, "GF/s per core");
    if (series_figure(&bench->whole).median > 0)
        series_print(&bench->whole, "gemm 2048, one call on all cores", 1e9, "GF/s per core");
    series_print(&bench->step, "training step", 1, "s");
    series_print(&bench->fraction, "step / gemm on all cores", 1, "of the rate");
    series_print(&bench->communication, "share of communication", 1, "of the step");
    series_print(&bench->tokens, "throughput", 1, "tokens/s");
    series_print(&bench->head_fraction, "head alone / gemm on all cores", 1, "of the rate");
    series_print(&bench->without_head, "step without head / gemm on all cores", 1, "of the rate");
    series_print(&bench->pointwise, "pointwise, norms, softmax, loss", 1, "of the step");
    for (int p = 0; p < STEP_PARTS; p++) {
        char what[64];
        snprintf(what, sizeof what, "part: %s", stopwatch_part_name((StepPart)p));
        series_print(&bench->share[p], what, 1, "of the step");
    }
    series_print(&bench->sum, "parts together", 1, "of the step");
}

/* With a stopwatch from the start to the end of the step. */
static int take_step(StepBench *bench, StepReport *report) {
    Trainer *trainer = &bench->trainer;
    *report = (StepReport){0};
    comm_barrier(trainer->grid, GROUP_GRID);
    stopwatch_start(&bench->stopwatch);
    trainer_watch(trainer, &bench->stopwatch);
    int status = trainer_step(trainer, report);
    trainer_watch(trainer, NULL);
    stopwatch_stop(&bench->stopwatch);
    return status;
}

/* Each step between two looks at the yardstick, the first as a warm-up. */
static int measure(StepBench *bench, int pairs) {
    StepReport report;
    int status = take_step(bench, &report);
    log_info("warmed up");
    YardstickRates before = yardstick_square_rates(&bench->yardstick);
    for (int i = 0; i < pairs && !status; i++) {
        status = take_step(bench, &report);
        if (status) return status;
        YardstickRates after = yardstick_square_rates(&bench->yardstick);
        add_step(bench, yardstick_mean(before, after), &report);
        before = after;
        log_info("pair %d of %d", i + 1, pairs);
    }
    if (!status) print(bench);
    return status;
}

int bench_step(const Bench *bench) {
    StepBench step = {.operations = 0};
    Trainer *trainer = &step.trainer;
    int status = trainer_open(trainer, bench->config, bench->grid, bench->threads, true);
    if (!status) status = yardstick_open(&step.yardstick, bench->grid, bench->threads, NULL, 0);
    if (!status) status = trainer_survey(trainer);
    if (!status) {
        count_operations(&step);
        status = measure(&step, bench->pairs);
    }
    yardstick_close(&step.yardstick);
    if (!status || error_is_agreed()) trainer_close(trainer);
    return status;
}
