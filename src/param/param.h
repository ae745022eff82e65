/* The parameter set: every tensor of a model, declared once. Optimizer, checkpoint, fingerprint,
 * plan and tests iterate it, so that no tensor is ever listed twice.
 *
 *     params_init(&set, grid sizes, my tensor rank);
 *     params_declare(&set, &spec, &index) ...      // no memory yet: `plan` stops here
 *     params_allocate(&set); params_initialize(&set, seed);
 *
 * A tensor is a matrix [rows, cols] (a vector has one row). It is split along rows or cols into
 * logical shards of whole units (unit_size rows or cols each), or replicated. This rank holds a
 * contiguous run of shards, each as its own contiguous block. Values, gradients and the two moments
 * are four arenas with the same offsets. */
#ifndef WEFT_PARAM_PARAM_H
#define WEFT_PARAM_PARAM_H

#include "base/memory.h"
#include "tensor/philox.h"
#include "tensor/shard.h"
#include "tensor/tensor.h"

#include <stdbool.h>

#define PARAM_NAME 96

typedef enum { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS } Split;

typedef enum { INIT_ZERO, INIT_ONE, INIT_NORMAL } InitKind;

typedef struct {
    const char *name;   /* Hugging Face's, e.g. "model.layers.0.mlp.gate_proj.weight" */
    int rank;           /* 1: vector [cols]; 2: matrix [rows, cols] */
    int64_t rows, cols; /* global; rows = 1 for a vector */
    Split split;
    const AxisLayout *axis; /* of the split dimension in units; NULL when replicated */
    int64_t unit_size;      /* rows or cols per unit */
    InitKind init;
    double init_std;          /* for INIT_NORMAL */
    uint32_t init_key, layer; /* Philox coordinates of the initial values: unique per tensor */
    bool decay;               /* weight decay applies (matrices) */
} ParamSpec;

typedef struct {
    char name[PARAM_NAME];
    int rank;
    int64_t rows, cols;
    Split split;
    int shards; /* logical shards; 1 when replicated */
    Range
        cut[SHARD_MAX]; /* rows or cols of each shard (not only owned ones); replicated: all rows */
    Range owned;        /* shards on this rank; replicated: [0, 1) */
    AxisLayout axis;    /* who owns which shard; unused when replicated */
    int64_t offset[SHARD_MAX]; /* elements into the arenas, valid for owned shards */
    InitKind init;
    double init_std;
    uint32_t init_key, layer;
    bool decay;
} Param;

typedef enum { PARAM_VALUE, PARAM_GRADIENT, PARAM_MOMENT1, PARAM_MOMENT2, PARAM_ROLES } ParamRole;

typedef struct {
    Param *param;
    int count, capacity;
    int tensor_rank, tensor_ranks;
    int64_t elements;         /* held on this rank, padding included: length of each arena */
    real *arena[PARAM_ROLES]; /* NULL before params_allocate; PARAM_GRADIENT may be pointed
                                 elsewhere */
    real *memory;             /* what params_release frees */
} ParamSet;

void params_init(ParamSet *set, int tensor_rank, int tensor_ranks);
void params_release(ParamSet *set);

/* Adds a tensor; *index is its place in set->param. Returns 0, or WEFT_USAGE / WEFT_RUNTIME. */
int params_declare(ParamSet *set, const ParamSpec *spec, int *index);

int64_t params_count(const ParamSet *set); /* elements of the whole model, every tensor once */
size_t params_bytes(const ParamSet *set,
                    int roles); /* bytes that `roles` arenas take on this rank */

/* Memory for values, gradients and moments (`training`) or for values alone. */
int params_allocate(ParamSet *set, bool training);

/* Initial values: each element a function of the seed, the tensor's key and its global coordinate.
 */
void params_initialize(ParamSet *set, uint64_t seed, int threads);

void params_clear_gradients(ParamSet *set, int threads); /* the arena, to zeros */

int params_find(const ParamSet *set, const char *name); /* -1 when there is none */

/* The view of an owned shard: SPLIT_ROWS [cut size, cols], SPLIT_COLS [rows, cut size], replicated
 * [rows, cols]. */
Tensor param_shard(const ParamSet *set, const Param *param, ParamRole role, int shard);

/* Where element (0, 0) of a shard lies in the whole tensor. */
static inline int64_t param_first_row(const Param *p, int shard) {
    return p->split == SPLIT_ROWS ? p->cut[shard].begin : 0;
}
static inline int64_t param_first_col(const Param *p, int shard) {
    return p->split == SPLIT_COLS ? p->cut[shard].begin : 0;
}
static inline int64_t param_shard_rows(const Param *p, int shard) {
    return p->split == SPLIT_ROWS ? range_size(p->cut[shard]) : p->rows;
}
static inline int64_t param_shard_cols(const Param *p, int shard) {
    return p->split == SPLIT_COLS ? range_size(p->cut[shard]) : p->cols;
}

/* A piece is what one checkpoint file holds of a shard: its rows (local to the shard) cut into
 * `data` pieces (of a vector: its columns). May be empty. Position and size in the whole tensor: */
typedef struct {
    int64_t row, col, rows, cols; /* global offset and size; rows * cols == 0 when empty */
} ParamPiece;
ParamPiece param_piece(const Param *param, int shard, int data_pieces, int piece);

/* "[rows, cols]", of a vector (rank 1) "[cols]": shapes and places, as messages tell them. */
enum { PARAM_SHAPE = 48 };
void param_shape_text(int rank, int64_t rows, int64_t cols, char text[PARAM_SHAPE]);

/* View of that piece in this rank's memory (shard must be owned). */
Tensor param_piece_view(const ParamSet *set, const Param *param, ParamRole role, int shard,
                        ParamPiece piece);

#endif
