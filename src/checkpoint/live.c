/* The fingerprint of the live state and its parts: nothing is copied, each rank hashes in place
 * what it answers for. */
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"

#include <stdlib.h>
#include <string.h>

/* Of the shards that a rank owns, its data rank's pieces; a replicated tensor is the first tensor
 * rank's. */
static bool answers_for(const Grid *grid, const ParamSet *set, const CheckpointState *state,
                        const CatalogEntry *entry) {
    const Param *param = &set->param[entry->tensor];
    int owner = param->split == SPLIT_NONE ? 0 : axis_owner(&param->axis, entry->t);
    return owner == grid->tensor_rank &&
           axis_owner(&state->places.data_files, entry->d) == grid->data_rank;
}

static Hash128 live_piece(const ParamSet *set, const Catalog *catalog, const CatalogEntry *entry) {
    Tensor view = param_piece_view(set, &set->param[entry->tensor], catalog_roles[entry->role].role,
                                   entry->t, entry->piece);
    return fingerprint_piece(&catalog->tensor[entry->tensor], entry->role, entry->piece, view.data,
                             view.ld);
}

/* This rank's share of each part, by role and tensor. `hash`: room for one an entry, so that
 * threads take pieces as they come. */
static void live_parts(const Grid *grid, const ParamSet *set, const CheckpointState *state,
                       const Catalog *catalog, Hash128 *hash, Hash128 *part) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < catalog->entries; i++)
        if (answers_for(grid, set, state, &catalog->entry[i]))
            hash[i] = live_piece(set, catalog, &catalog->entry[i]);
    for (int64_t i = 0; i < catalog->entries; i++) {
        const CatalogEntry *entry = &catalog->entry[i];
        Hash128 *sum = &part[entry->role * catalog->tensors + entry->tensor];
        *sum = hash_add(*sum, hash[i]);
    }
}

int checkpoint_parts(Grid *grid, const ParamSet *set, const CheckpointState *state, Hash128 *parts,
                     Hash128 *fingerprint) {
    Catalog catalog;
    int status = catalog_from_params(&catalog, set, state->grid_tensor, state->grid_data);
    int count = status ? 0 : catalog.roles * catalog.tensors;
    /* One more: what isn't elements is the first rank's share. */
    Hash128 *sum = calloc((size_t)count + 1, sizeof *sum);
    Hash128 *hash = status ? NULL : calloc((size_t)catalog.entries + 1, sizeof *hash);
    if (!status && !(sum && hash)) status = error_set(WEFT_RUNTIME, "out of memory: fingerprint");
    if (!status && group_rank(grid, GROUP_GRID) == 0)
        status = fingerprint_identity(&catalog, state->function, state->step, state->tokens,
                                      &sum[count]);
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) {
        live_parts(grid, set, state, &catalog, hash, sum);
        comm_sum_hashes(grid, GROUP_GRID, sum, count + 1);
        if (parts) memcpy(parts, sum, (size_t)count * sizeof *parts);
        *fingerprint = sum[count];
        for (int i = 0; i < count; i++) *fingerprint = hash_add(*fingerprint, sum[i]);
    }
    free(sum);
    free(hash);
    catalog_release(&catalog);
    return status;
}

int checkpoint_fingerprint(Grid *grid, const ParamSet *set, const CheckpointState *state,
                           Hash128 *fingerprint) {
    return checkpoint_parts(grid, set, state, NULL, fingerprint);
}
