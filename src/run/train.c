#include "run/train.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "config/width.h"
#include "run/directory.h"
#include "run/loop.h"
#include "run/session.h"
#include "run/state.h"

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

static void tell_width(const Config *config) {
    char text[256];
    if (!strcmp(config->ffn.width, "explicit")) return;
    width_describe(config, text, sizeof text);
    log_info("%s", text);
}

static void tell_start(const Trainer *trainer) {
    const Model *model = &trainer->model;
    tell_width(&trainer->config);
    log_info("%lld parameters; %lld training and %lld held-out %s; %lld samples an epoch",
             (long long)params_count(&model->set), (long long)trainer->data.train_items,
             (long long)trainer->data.held_items, dataset_items(&trainer->data),
             (long long)trainer->data.order.samples);
    if (trainer->grid->tp > 1)
        log_info("sums over tensor ranks by %s", exchange_transport(model->exchange_ffn));
    if (trainer->grid->dp > 1)
        log_info("sums over data ranks by %s", exchange_transport(trainer->exchange));
}

/* The step that this start ends with. */
static int64_t last_step(const Config *config, const TrainOptions *options) {
    return options->stop_at ? options->stop_at : config->train.steps;
}

/* Memory and files that the loop works with; the state is set. Collective. */
static int open_loop(Loop *loop, const char *resumed_from) {
    Trainer *trainer = &loop->trainer;
    const Config *config = &trainer->config;
    CheckpointPlaces places = state_places(config, trainer->grid->tp, trainer->grid->dp);
    int status = saver_open(&loop->saver, trainer->grid, &trainer->model.set, &places);
    if (status) return status;
    loop->proofs = proofs_open(trainer);
    status = stats_open(&loop->stats, trainer);
    if (!status && trainer->grid->world_rank == 0) {
        status = write_config(config);
        if (!status)
            status =
                metrics_open(&loop->metrics, config->run.dir, trainer->step, config->log.every);
    }
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (status) return status;
    bool ours = resumed_from[0] && directory_holds(config->run.dir, resumed_from);
    comm_broadcast(trainer->grid, GROUP_GRID, &ours, sizeof ours, 0);
    if (!ours) return 0; /* into another run's checkpoint nothing is written */
    status = proofs_begin(loop->proofs, trainer, resumed_from);
    if (!status) proofs_published(loop->proofs, trainer->step, true);
    return status;
}

/* What a first save may take, until one has been seen. */
static double guess_save(const Trainer *trainer) {
    const double slow_disk = 200e6; /* bytes per second */
    return 3 * (double)params_count(&trainer->model.set) * sizeof(real) / slow_disk;
}

static void close_loop(Loop *loop) {
    stats_close(loop->stats);
    proofs_close(loop->proofs);
    saver_close(loop->saver);
    trainer_close(&loop->trainer);
}

static void tell_end(const Loop *loop, Hash128 fingerprint) {
    const Trainer *trainer = &loop->trainer;
    const char *why = triggers_wants_stop(loop->wish) ? triggers_reason(loop->wish) : "--stop-at";
    char text[HASH_TEXT];
    hash_format(fingerprint, text);
    if (trainer->step == 0)
        log_info("stopped before the first step (%s); --resume auto starts the run", why);
    else if (trainer->step < trainer->config.train.steps)
        log_info(
            "stopped at step %lld of %lld (%s), which is saved in %s; --resume auto continues, "
            "on any number of ranks",
            (long long)trainer->step, (long long)trainer->config.train.steps, why,
            trainer->config.run.dir);
    log_print("fingerprint %s step %lld\n", text, (long long)trainer->step);
}

/* On the ranks of the grid. */
static int train_on_grid(const Config *config, const TrainOptions *options, Grid *grid, int threads,
                         int claim) {
    Loop loop = {.claim = claim, .last = last_step(config, options)};
    Hash128 fingerprint;
    char resumed_from[FILES_PATH] = "";
    triggers_open(&loop.triggers, config->train.max_minutes, config->checkpoint.minutes,
                  grid->world_rank == 0);
    watch_phase(grid->watch, PHASE_STARTUP);
    int status = trainer_open(&loop.trainer, config, grid, threads, true);
    watch_phase(grid->watch, PHASE_LOAD);
    if (!status && options->resume)
        status = state_resume(&loop.trainer, options->resume, resumed_from);
    if (!status) status = trainer_survey(&loop.trainer);
    if (!status) status = open_loop(&loop, resumed_from);
    if (!status) {
        triggers_step(&loop.triggers, 0, guess_save(&loop.trainer));
        tell_start(&loop.trainer);
        status = loop_run(&loop);
    }
    metrics_close(&loop.metrics);
    if (!status) status = state_fingerprint(&loop.trainer, &fingerprint);
    if (!status) tell_end(&loop, fingerprint);
    if (!status || error_is_agreed()) close_loop(&loop);
    return status;
}

int train_run(const Config *config, const TrainOptions *options, Grid *grid) {
    Session session;
    int claim = -1;
    int status = session_open(&session, grid, config, options->tp, options->dp);
    if (status) return status;
    status = start_directory(grid, config, options, &claim);
    if (!status && !grid->surplus)
        status = train_on_grid(config, options, grid, session.threads, claim);
    if (!status || error_is_agreed()) status = session_close(&session, status);
    directory_leave(claim);
    return status;
}
