#include "run/loop.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/publish.h"
#include "run/directory.h"
#include "run/drift.h"
#include "run/state.h"

#include <math.h>
#include <string.h>

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* For tests: one ulp on one replica of a norm gain. */
static void nudge(const Trainer *trainer) {
    if (!fault_on("nudge")) return;
    const ParamSet *set = &trainer->model.set;
    const Param *gain = &set->param[params_find(set, "model.norm.weight")];
    real *value = param_shard(set, gain, PARAM_VALUE, 0).data;
    *value = (real)nextafterf((float)*value, 2.0F);
}

static int evaluate(Trainer *trainer, StepReport *report) {
    const Config *config = &trainer->config;
    double start = clock_seconds();
    report->evaluated = dataset_eval_batches(&trainer->data, 0) > 0 &&
                        (due(config->eval.every, trainer->step) ||
                         (trainer->step == config->train.steps && config->eval.every));
    int status = 0;
    if (report->evaluated) status = trainer_evaluate(trainer, &report->held_out);
    report->evaluation = clock_seconds() - start;
    return status;
}

/* One round of all ranks: the strongest wish, whether anybody still writes, and the largest rank's
 * memory. */
static void vote(Loop *loop, int64_t *peak_bytes) {
    int64_t most[] = {triggers_wish(&loop->triggers), saver_is_busy(loop->saver),
                      memory_peak_resident()};
    comm_max_int64(loop->trainer.grid, GROUP_GRID, most, 3);
    loop->wish = most[0];
    loop->any_busy = most[1] != 0;
    *peak_bytes = most[2];
}

/* After a step: drift, evaluation, metrics. */
static int finish_step(Loop *loop, StepReport *report) {
    Trainer *trainer = &loop->trainer;
    nudge(trainer);
    int status = 0;
    if (due(trainer->config.train.drift_every, trainer->step))
        status = drift_check(trainer->grid, &trainer->model.set);
    if (!status) status = evaluate(trainer, report);
    if (status) return status;
    triggers_step(&loop->triggers, report->seconds + report->evaluation, 0);
    vote(loop, &report->peak_bytes);
    if (trainer->grid->world_rank == 0) {
        status = metrics_write(&loop->metrics, report);
        if (!status) metrics_progress(&loop->metrics, report);
    }
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

/* A save may fail without ending the run, if the config says so and it isn't the last. */
static int settle(const Loop *loop, int status, int64_t step, bool final) {
    if (!status || final || strcmp(loop->trainer.config.checkpoint.on_error, "warn")) return status;
    log_warn("the checkpoint of step %lld is not saved: %s; the run goes on (checkpoint.on_error)",
             (long long)step, error_message());
    error_clear();
    return 0;
}

/* Goes on with the save under way: by a stage, or to its end. */
static int go_on(Loop *loop, bool to_the_end, bool final) {
    if (!saver_is_under_way(loop->saver)) return 0;
    watch_phase(loop->trainer.grid->watch, PHASE_SAVE);
    int status = to_the_end ? saver_finish(loop->saver) : saver_advance(loop->saver);
    if (saver_is_under_way(loop->saver)) return status;
    triggers_step(&loop->triggers, 0, clock_seconds() - loop->save_start);
    proofs_published(loop->proofs, saver_step(loop->saver), status == 0);
    return settle(loop, status, saver_step(loop->saver), final);
}

/* Once its line is in the metrics, so that a checkpoint never lacks one. */
static int save(Loop *loop, double held_out, bool final) {
    Trainer *trainer = &loop->trainer;
    char directory[FILES_PATH];
    const char *run_dir = trainer->config.run.dir;
    int status = go_on(loop, true, false);
    if (status) return status;
    status = publish_path(run_dir, trainer->step, directory);
    if (!status && trainer->grid->world_rank == 0)
        status = directory_check_claim(run_dir, loop->claim);
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (status) return status;
    watch_phase(trainer->grid->watch, PHASE_SAVE);
    loop->save_start = clock_seconds();
    triggers_saved(&loop->triggers);
    status = state_save(trainer, loop->saver, held_out);
    if (status) return settle(loop, status, trainer->step, final);
    status = proofs_begin(loop->proofs, trainer, directory);
    if (!status && (final || !trainer->config.checkpoint.async)) status = go_on(loop, true, final);
    return status;
}

/* Saves that are due, and those under way. */
static int save_step(Loop *loop, const StepReport *report) {
    const Trainer *trainer = &loop->trainer;
    double start = clock_seconds();
    bool final = trainer->step == loop->last || triggers_wants_stop(loop->wish);
    bool wanted = final || triggers_wants_save(loop->wish) ||
                  due(trainer->config.checkpoint.every, trainer->step);
    int status = 0;
    if (wanted)
        status = save(loop, report->evaluated ? report->held_out.loss : NAN, final);
    else if (!loop->any_busy)
        status = go_on(loop, false, false);
    loop->stall = clock_seconds() - start;
    if (!status && wanted && !final && triggers_wants_save(loop->wish))
        log_info("saving step %lld: %s", (long long)trainer->step, triggers_reason(loop->wish));
    return status;
}

static int take_step(Loop *loop) {
    Trainer *trainer = &loop->trainer;
    StepReport report = {.checkpoint = loop->stall};
    fault_set_step(trainer->step);
    watch_step(trainer->grid->watch, trainer->step + 1);
    stats_begin(loop->stats, trainer);
    int status = trainer_step(trainer, &report);
    if (!status) status = stats_end(loop->stats, trainer, &report.stats);
    if (!status) status = finish_step(loop, &report);
    json_decref(report.stats);
    if (!status) status = proofs_step(loop->proofs, trainer, &report);
    if (!status) status = save_step(loop, &report);
    return status;
}

/* A save that has begun is brought to its end, whatever else has failed; the first error is told.
 */
static int finish_saves(Loop *loop, int status) {
    ErrorState failure;
    if (status && !error_is_agreed()) return status;
    error_keep(&failure);
    int saving = go_on(loop, true, true);
    if (!status) return saving;
    if (saving) log_error("%s", error_message());
    error_restore(&failure);
    return status;
}

int loop_run(Loop *loop) {
    Trainer *trainer = &loop->trainer;
    int64_t unused;
    int status = 0;
    if (trainer->step >= loop->last)
        log_info("already at step %lld, nothing to train", (long long)trainer->step);
    else
        vote(loop, &unused);
    while (trainer->step < loop->last && !triggers_wants_stop(loop->wish) && !status)
        status = take_step(loop);
    return finish_saves(loop, status);
}
