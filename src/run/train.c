#include "run/train.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/log.h"
#include "run/directory.h"
#include "run/drift.h"
#include "run/session.h"
#include "run/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int write_config(const Config *config) {
    char path[FILES_PATH], *text = config_format(config);
    int status = text ? files_join(path, sizeof path, config->run.dir, "config.ini")
                      : error_set(WEFT_RUNTIME, "out of memory: config");
    if (!status) status = files_write(path, text, strlen(text));
    free(text);
    return status;
}

static int check_stop(const Config *config, const TrainOptions *options) {
    if (options->stop_at <= config->train.steps) return 0;
    return error_set(WEFT_USAGE, "--stop-at %lld: the run ends at train.steps = %lld",
                     (long long)options->stop_at, (long long)config->train.steps);
}

/* What rank 0 does alone, agreed upon by all. */
static int start_directory(Grid *grid, const Config *config, const TrainOptions *options,
                           int *claim) {
    int status = check_stop(config, options);
    if (!status && grid->world_rank == 0)
        status = directory_claim(config->run.dir, options->resume != NULL, claim);
    return comm_agree(grid, GROUP_WORLD, status);
}

static void tell_start(const Trainer *trainer) {
    const Model *model = &trainer->model;
    log_info("%lld parameters; %lld training and %lld held-out tokens; %lld samples an epoch",
             (long long)params_count(&model->set), (long long)trainer->data.train_tokens,
             (long long)trainer->data.held_tokens, (long long)trainer->data.order.samples);
    if (trainer->grid->tp > 1)
        log_info("sums over tensor ranks by %s", exchange_transport(model->exchange_ffn));
    if (trainer->grid->dp > 1)
        log_info("sums over data ranks by %s", exchange_transport(trainer->exchange));
}

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* For tests: one ulp on one replica of a norm gain. */
static void nudge(const Trainer *trainer) {
    if (!fault_on("nudge")) return;
    const ParamSet *set = &trainer->model.set;
    const Param *gain = &set->param[params_find(set, "model.norm.weight")];
    real *value = param_shard(set, gain, PARAM_VALUE, 0).data;
    *value = (real)nextafterf((float)*value, 2.0F);
}

/* After a step: drift, evaluation, metrics. Collective. 0 or a negative code. */
static int finish_step(Trainer *trainer, Metrics *metrics, StepReport *report) {
    const Config *config = &trainer->config;
    int64_t step = trainer->step;
    nudge(trainer);
    int status = 0;
    if (due(config->train.drift_every, step))
        status = drift_check(trainer->grid, &trainer->model.set);
    if (status) return status;
    double start = clock_seconds();
    report->evaluated =
        trainer->data.held_tokens > 1 &&
        (due(config->eval.every, step) || (step == config->train.steps && config->eval.every));
    if (report->evaluated)
        status = trainer_evaluate(trainer, &report->held_out, &report->held_tokens);
    if (status) return status;
    report->evaluation = clock_seconds() - start;
    report->peak_bytes = memory_peak_resident();
    comm_max_int64(trainer->grid, GROUP_GRID, &report->peak_bytes, 1);
    if (trainer->grid->world_rank == 0) status = metrics_write(metrics, report);
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

/* The step that this start ends with. */
static int64_t last_step(const Trainer *trainer, const TrainOptions *options) {
    return options->stop_at ? options->stop_at : trainer->config.train.steps;
}

/* After its line is in the metrics, so that a checkpoint never lacks one. */
static int save_step(Trainer *trainer, const TrainOptions *options, double *seconds) {
    *seconds = 0;
    if (!due(trainer->config.checkpoint.every, trainer->step) &&
        trainer->step != last_step(trainer, options))
        return 0;
    double start = clock_seconds();
    int status = state_save(trainer);
    *seconds = clock_seconds() - start;
    return status;
}

static int loop(Trainer *trainer, const TrainOptions *options, Metrics *metrics) {
    int64_t last = last_step(trainer, options);
    double saving = 0;
    int status = 0;
    if (trainer->step >= last)
        log_info("already at step %lld, nothing to train: %s is %lld", (long long)trainer->step,
                 options->stop_at ? "--stop-at" : "train.steps", (long long)last);
    while (trainer->step < last && !status) {
        fault_set_step(trainer->step);
        StepReport report = {.checkpoint = saving};
        status = trainer_step(trainer, &report);
        if (!status) status = finish_step(trainer, metrics, &report);
        if (!status && trainer->grid->world_rank == 0) metrics_progress(metrics, &report);
        if (!status) status = save_step(trainer, options, &saving);
    }
    return status;
}

static void tell_end(Trainer *trainer, Hash128 fingerprint) {
    char text[HASH_TEXT];
    hash_format(fingerprint, text);
    if (trainer->step < trainer->config.train.steps)
        log_info("stopped at step %lld of %lld; --resume auto continues, on any number of ranks",
                 (long long)trainer->step, (long long)trainer->config.train.steps);
    log_print("fingerprint %s step %lld\n", text, (long long)trainer->step);
}

/* On the ranks of the grid. */
static int train_on_grid(const Config *config, const TrainOptions *options, Grid *grid,
                         int threads) {
    Trainer trainer;
    Metrics metrics = {0};
    int status = trainer_open(&trainer, config, grid, threads, true);
    if (!status && options->resume) status = state_resume(&trainer, options->resume);
    if (!status) {
        int alone = 0;
        if (grid->world_rank == 0) alone = write_config(config);
        if (grid->world_rank == 0 && !alone)
            alone = metrics_open(&metrics, config->run.dir, trainer.step, config->log.every);
        status = comm_agree(grid, GROUP_GRID, alone);
    }
    if (!status) {
        tell_start(&trainer);
        status = loop(&trainer, options, &metrics);
    }
    metrics_close(&metrics);
    Hash128 fingerprint;
    if (!status) status = state_fingerprint(&trainer, &fingerprint);
    if (!status) tell_end(&trainer, fingerprint);
    if (!status || error_is_agreed()) trainer_close(&trainer);
    return status;
}

int train_run(const Config *config, const TrainOptions *options, Grid *grid) {
    Session session;
    int claim = -1;
    int status = session_open(&session, grid, config, options->tp, options->dp);
    if (!status) status = start_directory(grid, config, options, &claim);
    if (status) return status;
    status = grid->surplus ? 0 : train_on_grid(config, options, grid, session.threads);
    if (!status || error_is_agreed()) status = session_close(&session, status);
    directory_leave(claim);
    return status;
}
