#include "param/param.h"

#include "base/error.h"
#include "base/fault.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t alignment = MEMORY_ALIGN / (int64_t)sizeof(real);

void params_init(ParamSet *set, int tensor_rank, int tensor_ranks) {
    *set = (ParamSet){.tensor_rank = tensor_rank, .tensor_ranks = tensor_ranks};
}

void params_release(ParamSet *set) {
    free(set->param);
    free(set->memory);
    *set = (ParamSet){0};
}

/* For tests: the gate's first two shards of one size change places. */
static void cut_otherwise(Param *param) {
    if (!fault_on("gate-cut-differently") || !strstr(param->name, "gate_proj.weight")) return;
    for (int b = 1; b < param->shards; b++)
        for (int a = 0; a < b; a++) {
            Range held = param->cut[a];
            if (range_size(held) != range_size(param->cut[b])) continue;
            param->cut[a] = param->cut[b];
            param->cut[b] = held;
            return;
        }
}

/* Cuts the split dimension and gives each owned shard its place in the arenas. */
static void place(ParamSet *set, Param *param, const ParamSpec *spec) {
    param->shards = spec->split == SPLIT_NONE ? 1 : spec->axis->shards;
    param->owned = (Range){0, 1};
    param->cut[0] = (Range){0, spec->rows};
    if (spec->split != SPLIT_NONE) {
        param->axis = *spec->axis;
        param->owned = axis_owned(spec->axis, set->tensor_rank);
        for (int s = 0; s < param->shards; s++) {
            Range units = axis_units(spec->axis, s);
            param->cut[s] = (Range){units.begin * spec->unit_size, units.end * spec->unit_size};
        }
    }
    cut_otherwise(param);
    for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
        int64_t size = param_shard_rows(param, s) * param_shard_cols(param, s);
        param->offset[s] = set->elements;
        set->elements += (size + alignment - 1) / alignment * alignment;
    }
}

int params_declare(ParamSet *set, const ParamSpec *spec, int *index) {
    if (strlen(spec->name) >= PARAM_NAME)
        return error_set(WEFT_USAGE, "tensor name %s: longer than %d bytes", spec->name,
                         PARAM_NAME - 1);
    if (params_find(set, spec->name) >= 0)
        return error_set(WEFT_USAGE, "tensor %s is declared twice", spec->name);
    if (set->count == set->capacity) {
        int capacity = set->capacity ? 2 * set->capacity : 64;
        Param *grown = realloc(set->param, (size_t)capacity * sizeof *grown);
        if (!grown) return error_set(WEFT_RUNTIME, "out of memory: table of %d tensors", capacity);
        set->param = grown;
        set->capacity = capacity;
    }
    Param *param = &set->param[set->count];
    *param = (Param){.rank = spec->rank,
                     .rows = spec->rows,
                     .cols = spec->cols,
                     .split = spec->split,
                     .init = spec->init,
                     .init_std = spec->init_std,
                     .init_key = spec->init_key,
                     .layer = spec->layer,
                     .decay = spec->decay};
    memcpy(param->name, spec->name, strlen(spec->name) + 1);
    place(set, param, spec);
    *index = set->count++;
    return 0;
}

int64_t params_count(const ParamSet *set) {
    int64_t count = 0;
    for (int i = 0; i < set->count; i++) count += set->param[i].rows * set->param[i].cols;
    return count;
}

size_t params_bytes(const ParamSet *set, int roles) {
    return (size_t)set->elements * sizeof(real) * (size_t)roles;
}

int params_allocate(ParamSet *set, bool training) {
    int roles = training ? PARAM_ROLES : 1;
    set->memory = memory_allocate(params_bytes(set, roles), "parameters, gradients and moments");
    if (!set->memory) return WEFT_RUNTIME;
    for (int role = 0; role < roles; role++) set->arena[role] = set->memory + role * set->elements;
    return 0;
}

/* The tensor's, but for tests. */
static double std_of(const Param *param, int64_t shard_cols) {
    double factor = fault_on("init-by-shard") ? sqrt((double)param->cols / (double)shard_cols) : 1;
    return param->init_std * factor;
}
static uint64_t seed_of(const Param *param, uint64_t seed) {
    return fault_on("down-ignores-seed") && strstr(param->name, "down_proj") ? 0 : seed;
}

/* Row `row` of the whole tensor, columns from `col` on. */
static void initialize_row(const Param *param, uint64_t seed, int64_t row, int64_t col, real *value,
                           int64_t count) {
    enum { AT_ONCE = 256 };
    PhiloxStream stream = {seed_of(param, seed), PHILOX_INIT, param->layer, param->init_key, 0};
    double std = std_of(param, count);
    for (int64_t done = 0; done < count; done += AT_ONCE) {
        double normal[AT_ONCE] = {0};
        int64_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
        Range cols = {col + done, col + done + n};
        if (param->init == INIT_NORMAL) philox_normals(&stream, (uint32_t)row, cols, normal);
        for (int64_t j = 0; j < n; j++)
            value[done + j] = param->init == INIT_NORMAL ? (real)(std * normal[j])
                                                         : (real)(param->init == INIT_ONE);
    }
}

void params_initialize(ParamSet *set, uint64_t seed, int threads) {
    for (int i = 0; i < set->count; i++) {
        const Param *param = &set->param[i];
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            Tensor view = param_shard(set, param, PARAM_VALUE, s);
            int64_t row = param_first_row(param, s), col = param_first_col(param, s);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (int64_t r = 0; r < view.rows; r++)
                initialize_row(param, seed, row + r, col, tensor_row(view, r), view.cols);
        }
    }
}

void params_clear_gradients(ParamSet *set, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        Range range = shard_range(set->elements, threads, part);
        memset(set->arena[PARAM_GRADIENT] + range.begin, 0,
               (size_t)range_size(range) * sizeof(real));
    }
}

int params_find(const ParamSet *set, const char *name) {
    for (int i = 0; i < set->count; i++)
        if (!strcmp(set->param[i].name, name)) return i;
    return -1;
}

Tensor param_shard(const ParamSet *set, const Param *param, ParamRole role, int shard) {
    return tensor_view(set->arena[role] + param->offset[shard], param_shard_rows(param, shard),
                       param_shard_cols(param, shard));
}

ParamPiece param_piece(const Param *param, int shard, int data_pieces, int piece) {
    int64_t rows = param_shard_rows(param, shard), cols = param_shard_cols(param, shard);
    ParamPiece p = {param_first_row(param, shard), param_first_col(param, shard), rows, cols};
    if (param->rank == 1) {
        Range part = shard_range(cols, data_pieces, piece);
        p.col += part.begin;
        p.cols = range_size(part);
    } else {
        Range part = shard_range(rows, data_pieces, piece);
        p.row += part.begin;
        p.rows = range_size(part);
    }
    return p;
}

Tensor param_piece_view(const ParamSet *set, const Param *param, ParamRole role, int shard,
                        ParamPiece piece) {
    Tensor whole = param_shard(set, param, role, shard);
    int64_t row = piece.row - param_first_row(param, shard);
    int64_t col = piece.col - param_first_col(param, shard);
    return (Tensor){whole.data + row * whole.ld + col, piece.rows, piece.cols, whole.ld};
}

void param_shape_text(int rank, int64_t rows, int64_t cols, char text[PARAM_SHAPE]) {
    if (rank == 1)
        snprintf(text, PARAM_SHAPE, "[%" PRId64 "]", cols);
    else
        snprintf(text, PARAM_SHAPE, "[%" PRId64 ", %" PRId64 "]", rows, cols);
}
