/* checkpoint_save and the fingerprint of the live state. */
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"
#include "checkpoint/stage.h"
#include "checkpoint/view.h"

#include <stdio.h>

static bool is_root(const Grid *grid) { return group_rank(grid, GROUP_GRID) == 0; }

/* This rank's part of the fingerprint's elements: what its data rank answers for, of the shards it
 * owns; a replicated tensor is the first tensor rank's. */
static Hash128 live_elements(const Grid *grid, const ParamSet *set, const CheckpointState *state,
                             const Catalog *catalog) {
    Hash128 sum = {0, 0};
    for (int64_t i = 0; i < catalog->entries; i++) {
        const CatalogEntry *entry = &catalog->entry[i];
        const Param *param = &set->param[entry->tensor];
        int owner = param->split == SPLIT_NONE ? 0 : axis_owner(&param->axis, entry->t);
        if (owner != grid->tensor_rank ||
            axis_owner(&state->data_files, entry->d) != grid->data_rank)
            continue;
        Tensor view =
            param_piece_view(set, param, catalog_roles[entry->role].role, entry->t, entry->piece);
        sum = hash_add(sum, fingerprint_piece(&catalog->tensor[entry->tensor], entry->role,
                                              entry->piece, view.data, view.ld));
    }
    return sum;
}

int checkpoint_fingerprint(Grid *grid, const ParamSet *set, const CheckpointState *state,
                           Hash128 *fingerprint) {
    Catalog catalog;
    Hash128 sum = {0, 0}, identity = {0, 0};
    int status = catalog_from_params(&catalog, set, state->grid_tensor, state->grid_data);
    if (!status && is_root(grid))
        status =
            fingerprint_identity(&catalog, state->function, state->step, state->tokens, &identity);
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) {
        sum = hash_add(live_elements(grid, set, state, &catalog), identity);
        comm_sum_hash(grid, GROUP_GRID, &sum);
    }
    *fingerprint = sum;
    catalog_release(&catalog);
    return status;
}

/* The first rank's part once all files are there: the view, the manifest, the rename. */
static int publish(Stage *stage, const CheckpointState *state, const char *run_dir,
                   const char *aside, int keep) {
    Hash128 fingerprint;
    Catalog *catalog = &stage->catalog;
    for (int64_t i = 0; i < catalog->entries; i++) catalog->entry[i].digest = stage->digest[i];
    int status =
        fingerprint_identity(catalog, state->function, state->step, state->tokens, &fingerprint);
    if (status) return status;
    fingerprint = hash_add(fingerprint, stage->elements);
    status = view_write(catalog, aside);
    if (status) return status;
    json_t *manifest = manifest_assemble(catalog, state, fingerprint);
    if (!manifest) return WEFT_RUNTIME;
    status = manifest_write(manifest, aside);
    if (!status) status = publish_finish(run_dir, state->step, aside);
    if (!status) publish_prune(run_dir, state->step, keep);
    json_decref(manifest);
    return status;
}

/* Leaves no debris behind a failed save, and the message of the failure as it is. */
static void discard(const char *aside) {
    char message[2048];
    bool agreed = error_is_agreed();
    snprintf(message, sizeof message, "%s", error_message());
    files_remove_tree(aside);
    error_set(WEFT_RUNTIME, "%s", message);
    error_set_agreed(agreed);
}

int checkpoint_save(Grid *grid, const ParamSet *set, const CheckpointState *state,
                    const char *run_dir, int keep) {
    Stage stage = {0};
    char aside[FILES_PATH] = "";
    int status = publish_aside(run_dir, state->step, aside);
    if (!status) status = stage_open(&stage, set, state, grid);
    if (!status && is_root(grid)) status = publish_begin(run_dir, state->step, aside);
    status = comm_agree(grid, GROUP_GRID, status);
    if (status) goto done;
    comm_move(grid, GROUP_TENSOR, stage.move, stage.moves);
    status = comm_agree(grid, GROUP_GRID, stage_write(&stage, aside));
    if (status) goto done;
    comm_assemble(grid, GROUP_GRID, stage.digest, 2 * stage.catalog.entries);
    comm_sum_hash(grid, GROUP_GRID, &stage.elements);
    if (is_root(grid)) status = publish(&stage, state, run_dir, aside, keep);
    status = comm_agree(grid, GROUP_GRID, status);
done:
    if (status && is_root(grid)) discard(aside);
    stage_close(&stage);
    return status;
}
