#include "run/replay.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/proof_file.h"
#include "checkpoint/publish.h"
#include "checkpoint/verify.h"
#include "run/identity.h"
#include "run/record.h"
#include "run/state.h"
#include "run/trainer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which checkpoint ---- */

static int no_proof(const char *directory) {
    Config config;
    const char *why = "it was made with checkpoint.proof_steps = 0";
    if (state_config(directory, &config) || config.checkpoint.proof_steps > 0)
        why = "no step was trained after it, or the run was killed before the proof was complete";
    return error_set(WEFT_INPUT, "%s has no " PROOF_FILE ": %s", directory, why);
}

/* Of a run directory's checkpoints; *newest is the one whose lack of a proof is told. */
static int find_newest(const char *run_dir, const char *newest, char found[FILES_PATH]) {
    int64_t *steps;
    int count, bad = 0, status = publish_list(run_dir, &steps, &count);
    if (status) return status;
    for (int i = count - 1; i >= 0; i--) {
        status = publish_path(run_dir, steps[i], found);
        if (status) goto done;
        if (!proof_file_exists(found)) continue;
        if (!verify_directory(found, false)) goto done;
        log_info("%s: skipped: %s", found, error_message());
        bad++;
    }
    status = bad ? error_set(WEFT_INPUT, "%s: no checkpoint with a " PROOF_FILE " is good", run_dir)
                 : no_proof(newest);
done:
    free(steps);
    return status;
}

/* On the first rank. */
static int find(const char *path, char found[FILES_PATH]) {
    char newest[FILES_PATH];
    int64_t step;
    int status = checkpoint_newest(path, newest, &step);
    if (status) return status;
    if (!newest[0]) return error_set(WEFT_INPUT, "%s: there is no checkpoint in it", path);
    if (step >= 0) return find_newest(path, newest, found);
    return proof_file_exists(newest) ? checkpoint_find(newest, true, found, FILES_PATH)
                                     : no_proof(newest);
}

static const char *text_of(const json_t *proof, const char *key) {
    return json_string_value(json_object_get(proof, key));
}

static int read_proof(Replay *replay) {
    int status = proof_file_read(replay->directory, &replay->proof);
    if (status) return status;
    config_defaults(&replay->config);
    status = config_read_text(&replay->config, text_of(replay->proof, "config"), PROOF_FILE);
    if (status) return error_prefix(WEFT_INPUT, "%s: ", replay->directory);
    replay->config.run.threads = 0; /* the layout is another */
    return 0;
}

int replay_open(Replay *replay, Grid *grid, const char *path) {
    memset(replay, 0, sizeof *replay);
    int status = grid->world_rank == 0 ? find(path, replay->directory) : 0;
    status = comm_agree(grid, GROUP_WORLD, status);
    if (status) return status;
    comm_broadcast(grid, GROUP_WORLD, replay->directory, FILES_PATH, 0);
    return comm_agree(grid, GROUP_WORLD, read_proof(replay));
}

void replay_close(Replay *replay) {
    json_decref(replay->proof);
    replay->proof = NULL;
}

int replay_check(const Replay *replay, const Config *config) {
    char *changes = record_config_changes(config, &replay->config);
    int status =
        changes ? error_set(WEFT_USAGE, "--set would make other steps than those of the proof:\n%s",
                            changes)
                : 0;
    free(changes);
    return status;
}

/* ---- comparing ---- */

/* On the first rank. */
typedef struct {
    const json_t *proof;
    const char *name; /* of the step directory */
    double tolerance, largest;
    bool failed;
    char reason[1024];
} Verdict;

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static double relative(double a, double b) {
    if (same_number(a, b)) return 0;
    double size = fmax(fabs(a), fabs(b));
    return isfinite(a) && isfinite(b) ? fabs(a - b) / size : INFINITY;
}

/* How many doubles lie between two positive ones. */
static uint64_t ulps(double a, double b) {
    uint64_t bits[2];
    memcpy(&bits[0], &a, sizeof a);
    memcpy(&bits[1], &b, sizeof b);
    return bits[0] > bits[1] ? bits[0] - bits[1] : bits[1] - bits[0];
}

static void describe_distance(double there, double here, char *text, size_t capacity) {
    if (same_number(there, here))
        snprintf(text, capacity, "equal");
    else if (there > 0 && here > 0 && ulps(there, here) < 1000)
        snprintf(text, capacity, "%d ulp", (int)ulps(there, here));
    else
        snprintf(text, capacity, "%.1e", relative(there, here));
}

static void print_header(void) {
    log_print("%8s  %-18s  %-18s  %-10s  %-10s  %s\n", "step", "loss there", "loss here",
              "difference", "grad norm", "state");
}

static void print_row(const Verdict *verdict, const json_t *there, const json_t *here) {
    char loss[32], norm[32];
    double a = record_number(there, "loss"), b = record_number(here, "loss");
    describe_distance(a, b, loss, sizeof loss);
    describe_distance(record_number(there, "grad_norm"), record_number(here, "grad_norm"), norm,
                      sizeof norm);
    log_print("%8lld  %-18.16g  %-18.16g  %-10s  %-10s  %s\n",
              (long long)json_integer_value(json_object_get(there, "step")), a, b, loss, norm,
              verdict->tolerance > 0                     ? "not compared"
              : record_equal(there, here, "fingerprint") ? "equal"
                                                         : "differs");
}

static void fail(Verdict *verdict, const json_t *there, const char *reason) {
    if (verdict->failed) return;
    verdict->failed = true;
    snprintf(verdict->reason, sizeof verdict->reason, "step %lld%s: %s",
             (long long)json_integer_value(json_object_get(there, "step")),
             json_object_get(there, "loss") ? "" : ", the checkpoint as it is loaded", reason);
}

/* Bit by bit: steps, and states in either mode. */
static void compare_exactly(Verdict *verdict, const json_t *there, const json_t *here) {
    char reason[512];
    if (record_difference(there, here, reason, sizeof reason)) fail(verdict, there, reason);
}

/* The learning rate is a function of the step alone, but for the last bits of the library's
 * cosine. */
static void compare_closely(Verdict *verdict, const json_t *there, const json_t *here) {
    const struct {
        const char *key;
        double tolerance;
    } numbers[] = {
        {"lr", 16 * DBL_EPSILON}, {"loss", verdict->tolerance}, {"grad_norm", verdict->tolerance}};
    char reason[512];
    if (!record_equal(there, here, "samples")) compare_exactly(verdict, there, here);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double a = record_number(there, numbers[i].key), b = record_number(here, numbers[i].key);
        double distance = relative(a, b);
        if (i > 0 && distance > verdict->largest) verdict->largest = distance;
        if (distance <= numbers[i].tolerance) continue;
        snprintf(reason, sizeof reason, "%s %.9g, here %.9g: %.1e relative, %.1e is allowed",
                 numbers[i].key, a, b, distance, numbers[i].tolerance);
        fail(verdict, there, reason);
    }
}

static void print_verdict(const Verdict *verdict, const Grid *grid) {
    size_t count = json_array_size(json_object_get(verdict->proof, "steps"));
    if (verdict->failed) {
        log_print("replay: fail: %s (%zu step%s after %s, on tp %d x dp %d)\n", verdict->reason,
                  count, count == 1 ? "" : "s", verdict->name, grid->tp, grid->dp);
        return;
    }
    log_print("replay: pass: %zu step%s after %s repeated %s on tp %d x dp %d", count,
              count == 1 ? "" : "s", verdict->name,
              verdict->tolerance > 0 ? "closely" : "bit for bit", grid->tp, grid->dp);
    if (verdict->tolerance > 0)
        log_print(": loss and norm within %.1e relative, %g is allowed; fingerprints aren't "
                  "compared",
                  verdict->largest, verdict->tolerance);
    log_print("\n");
}

/* ---- repeating ---- */

static void tell_start(const Replay *replay, const Trainer *trainer, double tolerance) {
    const json_t *proof = replay->proof;
    const char *identity = text_of(proof, "identity"), *layout = text_of(proof, "layout");
    char here[64];
    size_t count = json_array_size(json_object_get(proof, "steps"));
    log_info("repeating %zu step%s after %s, made on %s", count, count == 1 ? "" : "s",
             replay->directory, layout);
    if (tolerance > 0) return;
    if (strcmp(identity, identity_text()))
        log_info("made by (%s), this is (%s): bits may differ; --tolerance 1e-4 compares closely",
                 identity, identity_text());
    snprintf(here, sizeof here, "tp %d x dp %d", trainer->grid->tp, trainer->grid->dp);
    if (strcmp(trainer->config.grid.reduction, "exact") && strcmp(layout, here))
        log_info("grid.reduction = %s: bits depend on the layout, which was %s; --tolerance 1e-4 "
                 "compares closely",
                 trainer->config.grid.reduction, layout);
}

static int check_data(const Replay *replay, const Trainer *trainer) {
    Hash128 there;
    int status = hash_parse(text_of(replay->proof, "data"), &there);
    if (!status && !hash_equal(there, trainer->data_digest))
        status = error_set(WEFT_INPUT,
                           "%s isn't the data that the steps were made from; --set data.train=FILE "
                           "names another",
                           trainer->config.data.train);
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

static int repeat_step(Trainer *trainer, Verdict *verdict, const json_t *there) {
    StepReport report = {0};
    json_t *here = NULL;
    fault_set_step(trainer->step);
    watch_step(trainer->grid->watch, trainer->step);
    int status = trainer_step(trainer, &report);
    if (!status) status = record_step(trainer, &report, &here);
    if (status || !here) return status;
    print_row(verdict, there, here);
    if (verdict->tolerance > 0)
        compare_closely(verdict, there, here);
    else
        compare_exactly(verdict, there, here);
    json_decref(here);
    return 0;
}

static int check_start(Trainer *trainer, Verdict *verdict) {
    json_t *here;
    int status = record_state(trainer, &here);
    if (here) compare_exactly(verdict, json_object_get(verdict->proof, "start"), here);
    json_decref(here);
    if (!status && verdict->failed) status = error_set(WEFT_CHECK, "%s", verdict->reason);
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

static int repeat(Trainer *trainer, Verdict *verdict) {
    const json_t *steps = json_object_get(verdict->proof, "steps"), *there;
    size_t i;
    int status = check_start(trainer, verdict);
    if (!status) print_header();
    json_array_foreach((json_t *)steps, i, there) {
        if (status) break;
        status = repeat_step(trainer, verdict, there);
    }
    if (status && status != WEFT_CHECK) return status;
    print_verdict(verdict, trainer->grid);
    if (verdict->failed) status = error_set(WEFT_CHECK, "%s", verdict->reason);
    return comm_agree(trainer->grid, GROUP_GRID, status);
}

int replay_run(const Replay *replay, const Config *config, const Session *session,
               double tolerance) {
    Trainer trainer;
    const char *slash = strrchr(replay->directory, '/');
    Verdict verdict = {.proof = replay->proof,
                       .name = slash ? slash + 1 : replay->directory,
                       .tolerance = tolerance};
    int status = trainer_open(&trainer, config, session->grid, session->threads, true);
    if (!status) status = check_data(replay, &trainer);
    if (!status) status = state_load(&trainer, replay->directory);
    if (!status) {
        tell_start(replay, &trainer, tolerance);
        status = repeat(&trainer, &verdict);
    }
    if (!status || error_is_agreed()) trainer_close(&trainer);
    return status;
}
