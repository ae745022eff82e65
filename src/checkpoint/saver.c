#include "checkpoint/saver.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/task.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"
#include "checkpoint/stage.h"
#include "checkpoint/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum { IDLE, WRITING, PUBLISHING } Progress;

struct Saver {
    Grid *grid;
    Stage stage;
    Progress progress;
    Task task;
    CheckpointState state; /* its JSON blocks are this saver's own */
    char run_dir[FILES_PATH], aside[FILES_PATH];
};

static bool is_first(const Saver *saver) { return group_rank(saver->grid, GROUP_GRID) == 0; }

int saver_open(Saver **out, Grid *grid, const ParamSet *set, const CheckpointPlaces *places) {
    Saver *saver = calloc(1, sizeof *saver);
    int status = saver ? stage_open(&saver->stage, set, places, grid->tensor_rank, grid->data_rank)
                       : error_set(WEFT_RUNTIME, "out of memory: saving");
    if (saver) saver->grid = grid;
    status = comm_agree(grid, GROUP_GRID, status);
    if (status) {
        saver_close(saver);
        saver = NULL;
    }
    *out = saver;
    return status;
}

size_t saver_bytes(const Saver *saver) { return saver->stage.bytes; }

int saver_bytes_predicted(const ParamSet *set, const CheckpointPlaces *places, int tensor_rank,
                          int data_rank, size_t *bytes) {
    Catalog catalog;
    int status = catalog_from_shapes(&catalog, set, CATALOG_ROLES, places->tensor_files.shards,
                                     places->data_files.shards);
    *bytes = status ? 0 : stage_bytes(&catalog, places, tensor_rank, data_rank);
    catalog_release(&catalog);
    return status;
}

static void drop_state(Saver *saver) {
    json_decref((json_t *)saver->state.function);
    json_decref((json_t *)saver->state.details);
    json_decref((json_t *)saver->state.origin);
    saver->state.function = saver->state.details = saver->state.origin = NULL;
}

void saver_close(Saver *saver) {
    if (!saver) return;
    task_finish(&saver->task);
    drop_state(saver);
    stage_close(&saver->stage);
    free(saver);
}

/* The threads outlive the caller's blocks. */
static int take_state(Saver *saver, const CheckpointState *state) {
    drop_state(saver);
    saver->state = *state;
    saver->state.function = json_deep_copy(state->function);
    saver->state.details = json_deep_copy(state->details);
    saver->state.origin = json_deep_copy(state->origin);
    bool good = saver->state.function && !saver->state.details == !state->details &&
                !saver->state.origin == !state->origin;
    return good ? 0 : error_set(WEFT_RUNTIME, "out of memory: manifest");
}

static int check_space(const Saver *saver) {
    int64_t needed = catalog_disk_bytes(&saver->stage.catalog);
    int64_t free_space = files_free_space(saver->run_dir);
    if (free_space < 0 || free_space >= needed) return 0;
    return error_set(WEFT_RUNTIME,
                     "%s: No space left on device for a checkpoint: it takes %.1f MB, %.1f MB are "
                     "free; make room",
                     saver->run_dir, (double)needed / 1e6, (double)free_space / 1e6);
}

static int prepare(Saver *saver, const CheckpointState *state, const char *run_dir) {
    int status = 0;
    if (strlen(run_dir) >= sizeof saver->run_dir)
        return error_set(WEFT_USAGE, "path too long: %s", run_dir);
    memcpy(saver->run_dir, run_dir, strlen(run_dir) + 1);
    status = publish_aside(run_dir, state->step, saver->aside);
    if (!status) status = take_state(saver, state);
    if (status || !is_first(saver)) return status;
    status = check_space(saver);
    return status ? status : publish_begin(run_dir, state->step, saver->aside);
}

/* The end of a save. Of one that failed no debris is left, and its message as it is. */
static int end(Saver *saver, int status) {
    ErrorState failure;
    saver->progress = IDLE;
    drop_state(saver);
    if (!status || !is_first(saver) || !saver->aside[0]) return status;
    error_keep(&failure);
    files_remove_tree(saver->aside);
    error_restore(&failure);
    return status;
}

static int write_files(void *context) {
    Saver *saver = context;
    return stage_write(&saver->stage, saver->aside);
}

int saver_begin(Saver *saver, const CheckpointState *state, const char *run_dir) {
    Grid *grid = saver->grid;
    saver->aside[0] = '\0';
    int status = comm_agree(grid, GROUP_GRID, prepare(saver, state, run_dir));
    if (status) return end(saver, status);
    stage_begin(&saver->stage, state->step);
    comm_move(grid, GROUP_TENSOR, saver->stage.move, saver->stage.moves);
    saver->progress = WRITING;
    status = comm_agree(grid, GROUP_GRID, task_start(&saver->task, write_files, saver));
    if (!status) return 0;
    task_finish(&saver->task);
    comm_barrier(grid, GROUP_GRID); /* nobody writes any more */
    return end(saver, status);
}

bool saver_is_under_way(const Saver *saver) { return saver->progress != IDLE; }

int64_t saver_step(const Saver *saver) { return saver->stage.step; }

bool saver_is_busy(Saver *saver) { return !task_is_done(&saver->task); }

/* Once all files are there: the view, the manifest, the rename. */
static int publish(void *context) {
    Saver *saver = context;
    const CheckpointState *state = &saver->state;
    Catalog *catalog = &saver->stage.catalog;
    Hash128 identity;
    for (int64_t i = 0; i < catalog->entries; i++)
        catalog->entry[i].digest = saver->stage.digest[i];
    int status = fault_point_of(PHASE_PUBLISH, saver->stage.step - 1);
    if (!status)
        status =
            fingerprint_identity(catalog, state->function, state->step, state->tokens, &identity);
    if (!status) status = view_write(catalog, saver->aside);
    if (status) return status;
    json_t *manifest = manifest_assemble(catalog, state, hash_add(identity, saver->stage.elements));
    if (!manifest) return WEFT_RUNTIME;
    status = manifest_write(manifest, saver->aside);
    if (!status) status = publish_finish(saver->run_dir, state->step, saver->aside);
    if (!status) status = publish_prune(saver->run_dir, state->step, &state->retention);
    json_decref(manifest);
    return status;
}

int saver_advance(Saver *saver) {
    Grid *grid = saver->grid;
    if (saver->progress == IDLE) return 0;
    int status = comm_agree(grid, GROUP_GRID, task_finish(&saver->task));
    if (status || saver->progress == PUBLISHING) return end(saver, status);
    comm_assemble(grid, GROUP_GRID, saver->stage.digest, 2 * saver->stage.catalog.entries);
    comm_sum_hash(grid, GROUP_GRID, &saver->stage.elements);
    saver->progress = PUBLISHING;
    if (is_first(saver)) status = task_start(&saver->task, publish, saver);
    status = comm_agree(grid, GROUP_GRID, status);
    return status ? end(saver, status) : 0;
}

int saver_finish(Saver *saver) {
    int status = 0;
    while (!status && saver_is_under_way(saver)) status = saver_advance(saver);
    return status;
}
