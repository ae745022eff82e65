/* checkpoint_load: a rank's shards out of whatever pieces the checkpoint has. */
#include "base/error.h"
#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *directory;
    ParamSet *set;
    json_t *manifest;
    Catalog catalog;
    int roles;  /* of the catalog's, that are wanted */
    int *param; /* by the catalog's tensor: its index in the set */
    real *piece;
} Load;

/* The tensor's place in the set; for tests that of the other branch. */
static int find_param(const ParamSet *set, const char *name) {
    const char *gate = strstr(name, ".gate_proj."), *up = strstr(name, ".up_proj."),
               *found = gate ? gate : up;
    char other[2 * PARAM_NAME];
    if (!found || !fault_on("gate-up-swapped-on-load")) return params_find(set, name);
    snprintf(other, sizeof other, "%.*s.%s_proj.%s", (int)(found - name), name,
             gate ? "up" : "gate", strrchr(name, '.') + 1);
    int index = params_find(set, other);
    return index < 0 ? params_find(set, name) : index;
}

static int match_tensor(Load *load, int i) {
    const CatalogTensor *tensor = &load->catalog.tensor[i];
    int index = find_param(load->set, tensor->name);
    if (index < 0)
        return error_set(WEFT_INPUT, "%s: tensor %s isn't in the configured model", load->directory,
                         tensor->name);
    const Param *param = &load->set->param[index];
    if (param->rank != tensor->rank || param->rows != tensor->rows || param->cols != tensor->cols)
        return error_set(WEFT_INPUT,
                         "%s: tensor %s is [%" PRId64 ", %" PRId64 "], the configured model's is "
                         "[%" PRId64 ", %" PRId64 "]",
                         load->directory, tensor->name, tensor->rows, tensor->cols, param->rows,
                         param->cols);
    load->param[i] = index;
    return 0;
}

/* For tests: a bias that isn't there counts as zeros. */
static bool leaves_zeros(const ParamSet *set, int i) {
    const Param *param = &set->param[i];
    if (!fault_on("bias-zero-filled") || !strstr(param->name, ".bias")) return false;
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        Tensor shard = param_shard(set, param, PARAM_VALUE, s);
        memset(shard.data, 0, (size_t)(shard.rows * shard.cols) * sizeof(real));
    }
    return true;
}

/* Both hold the same tensors, in whatever order. */
static int match_tensors(Load *load) {
    int status = 0;
    load->param = calloc((size_t)load->catalog.tensors + 1, sizeof *load->param);
    if (!load->param) return error_set(WEFT_RUNTIME, "out of memory: list of tensors");
    for (int i = 0; !status && i < load->catalog.tensors; i++) status = match_tensor(load, i);
    for (int i = 0; !status && i < load->set->count; i++)
        if (catalog_find(&load->catalog, load->set->param[i].name) < 0 &&
            !leaves_zeros(load->set, i))
            status = error_set(WEFT_INPUT, "%s: tensor %s of the configured model is missing",
                               load->directory, load->set->param[i].name);
    load->roles = load->set->arena[PARAM_MOMENT1] ? CATALOG_ROLES : 1;
    if (!status && load->roles > load->catalog.roles)
        status = error_set(WEFT_INPUT, "%s: has no optimizer moments: training can't go on from it",
                           load->directory);
    return status;
}

static Range overlap(int64_t a, int64_t a_size, int64_t b, int64_t b_size) {
    Range common = {a > b ? a : b, a + a_size < b + b_size ? a + a_size : b + b_size};
    return common;
}

/* What a piece and an owned shard have in common, in rows and columns of the whole tensor. */
static bool shard_overlap(const Param *param, int shard, const ParamPiece *piece, Range *rows,
                          Range *cols) {
    *rows = overlap(piece->row, piece->rows, param_first_row(param, shard),
                    param_shard_rows(param, shard));
    *cols = overlap(piece->col, piece->cols, param_first_col(param, shard),
                    param_shard_cols(param, shard));
    return range_size(*rows) > 0 && range_size(*cols) > 0;
}

static bool is_needed(const Load *load, const CatalogEntry *entry) {
    const Param *param = &load->set->param[load->param[entry->tensor]];
    Range rows, cols;
    if (entry->role >= load->roles) return false;
    for (int s = (int)param->owned.begin; s < param->owned.end; s++)
        if (shard_overlap(param, s, &entry->piece, &rows, &cols)) return true;
    return false;
}

static void copy_piece(const Load *load, const CatalogEntry *entry) {
    const Param *param = &load->set->param[load->param[entry->tensor]];
    const ParamPiece *piece = &entry->piece;
    Range rows, cols;
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        if (!shard_overlap(param, s, piece, &rows, &cols)) continue;
        Tensor shard = param_shard(load->set, param, catalog_roles[entry->role].role, s);
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const real *from = load->piece + (row - piece->row) * piece->cols - piece->col;
            real *to =
                tensor_row(shard, row - param_first_row(param, s)) - param_first_col(param, s);
            memcpy(to + cols.begin, from + cols.begin, (size_t)range_size(cols) * sizeof *to);
        }
    }
}

/* Reads what this rank needs of one file, whole pieces at a time, so that digests can be checked.
 */
static int load_file(const Load *load, int t, int d) {
    Hdf5File file = {.id = -1};
    Range entries = catalog_file_entries(&load->catalog, t, d);
    int status = 0;
    for (int64_t i = entries.begin; !status && i < entries.end; i++) {
        const CatalogEntry *entry = &load->catalog.entry[i];
        if (!is_needed(load, entry)) continue;
        if (file.id < 0) status = store_open(&file, load->directory, t, d);
        if (!status) status = store_read(&file, &load->catalog, entry, load->piece);
        if (!status) copy_piece(load, entry);
    }
    hdf5_close(&file);
    return status;
}

static int load_here(Load *load) {
    int status = manifest_open(load->directory, &load->manifest, &load->catalog);
    if (!status) status = match_tensors(load);
    if (status) return status;
    int64_t largest = store_largest_piece(&load->catalog, load->directory);
    load->piece =
        memory_allocate((size_t)largest * sizeof(real), "the largest piece of a checkpoint");
    if (!load->piece) return WEFT_RUNTIME;
    for (int t = 0; !status && t < load->catalog.grid_tensor; t++)
        for (int d = 0; !status && d < load->catalog.grid_data; d++) status = load_file(load, t, d);
    return status;
}

int checkpoint_load(Grid *grid, ParamSet *set, const char *directory) {
    Load load = {.directory = directory, .set = set};
    int status = load_here(&load);
    free(load.piece);
    free(load.param);
    json_decref(load.manifest);
    catalog_release(&load.catalog);
    return comm_agree(grid, GROUP_GRID, status);
}
