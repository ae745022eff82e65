/* publish_prune: which checkpoints stay. */
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/publish.h"
#include "checkpoint/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a checkpoint's step, from its manifest; infinite when none was taken there. */
static double held_out_loss(const char *run_dir, int64_t step) {
    char path[FILES_PATH];
    json_t *manifest = NULL;
    double loss = INFINITY;
    if (!publish_path(run_dir, step, path) && !checkpoint_manifest(path, &manifest)) {
        const json_t *told = json_object_get(json_object_get(manifest, "origin"), "held_out_loss");
        if (json_is_number(told)) loss = json_number_value(told);
    }
    json_decref(manifest);
    return loss;
}

/* The step with the lowest held-out loss, the earliest of equals; -1 when none has one. */
static int64_t best_step(const char *run_dir, const int64_t *steps, int count) {
    double lowest = INFINITY;
    int64_t best = -1;
    for (int i = 0; i < count; i++) {
        double loss = held_out_loss(run_dir, steps[i]);
        if (!(loss < lowest)) continue;
        lowest = loss;
        best = steps[i];
    }
    return best;
}

/* Before anything is deleted: as the bytes are in the files now. */
static int check_new(const char *run_dir, int64_t step) {
    char path[FILES_PATH];
    int status = publish_path(run_dir, step, path);
    if (!status && verify_digests(path))
        status =
            error_set(WEFT_RUNTIME, "%s: read back, it isn't good, so older checkpoints stay: %s",
                      path, error_message());
    return status;
}

/* Out of sight at once: a reader finds a whole checkpoint or none. */
static void remove_step(const char *run_dir, int64_t step) {
    char path[FILES_PATH], aside[FILES_PATH];
    int failed = publish_path(run_dir, step, path) || publish_aside(run_dir, step, aside);
    if (!failed) failed = files_remove_tree(rename(path, aside) ? path : aside);
    if (failed) log_warn("%s", error_message());
}

int publish_prune(const char *run_dir, int64_t step, const CheckpointRetention *retention) {
    int64_t *steps;
    int count, older = 0, removed = 0, status = 0;
    publish_recover(run_dir);
    if (retention->keep <= 0 || publish_list(run_dir, &steps, &count)) return 0;
    while (older < count && steps[older] < step) older++;
    int64_t best = -1;
    int doomed = older - (retention->keep - 1);
    if (doomed > 0 && retention->keep_best) best = best_step(run_dir, steps, older + 1);
    for (int i = 0; !status && i < doomed; i++) {
        bool stays = steps[i] == best ||
                     (retention->keep_every > 0 && steps[i] % retention->keep_every == 0);
        if (stays) continue;
        if (removed++ == 0) status = check_new(run_dir, step);
        if (!status) remove_step(run_dir, steps[i]);
    }
    free(steps);
    return status;
}
