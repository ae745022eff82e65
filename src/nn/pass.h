/* What one forward or backward knows of its place, and the memory all modules share while they
 * work.
 *
 * A Workspace holds what every layer may use in turn: the list of products, one block of scratch
 * per thread, and the [T, D] buffers that live only within a layer. Modules say how much scratch a
 * thread needs before memory is taken. */
#ifndef WEFT_NN_PASS_H
#define WEFT_NN_PASS_H

#include "base/memory.h"
#include "base/stopwatch.h"
#include "math/gemm.h"
#include "nn/stream.h"
#include "tensor/shard.h"
#include "tensor/tensor.h"

#include <stdbool.h>

typedef enum {
    RECOMPUTE_NONE,  /* keep everything that backward reads */
    RECOMPUTE_ACT,   /* keep sublayer inputs and preactivations; redo norms and pointwise work */
    RECOMPUTE_BLOCK, /* keep the block's input; redo the block */
} Recompute;

/* How far kernels are fused (kernels.fusion); every level gives the same bits. */
typedef enum {
    FUSION_EAGER,  /* each product and each pointwise operation apart: the reference */
    FUSION_PACKED, /* products that read the same input in one list; pointwise work in one pass */
    FUSION_GATE,   /* biases, activation, product and hidden dropout, and their backward, on each
                      tile of a product while it is in cache */
    FUSION_BLOCK,  /* output bias, dropout and residual add likewise, where a sum is finished */
} Fusion;

typedef struct {
    int64_t step, microbatch; /* microbatch within the global step */
    bool training;            /* dropout on */
} Pass;

typedef struct Observer Observer; /* nn/observer.h */

typedef struct {
    int threads;
    Fusion fusion;
    int row_shards;      /* min(grid.tensor, T): how sums over rows are cut */
    int64_t rows;        /* T */
    Stream stream;       /* which of them this rank has between the blocks */
    size_t thread_bytes; /* scratch per thread, gemm_scratch() or more */
    char *thread_memory;
    GemmList products;
    double *row_sums;     /* [row_shards, widest] partial sums over rows */
    int64_t widest;       /* most columns any row sum has */
    Observer *observer;   /* is shown what is made; NULL: nobody */
    Stopwatch *stopwatch; /* of the parts of a step; NULL: none */
} Workspace;

/* Before memory: at least this much scratch per thread; row sums of at least this many columns. */
void workspace_need(Workspace *space, size_t thread_bytes, int64_t row_sum_cols);
/* Takes the memory from an arena (twice: counting, then for good). */
void workspace_take(Workspace *space, Arena *arena);
void workspace_release(Workspace *space);
void *workspace_scratch(const Workspace *space, int thread);

/* Runs and forgets the list of products. */
void workspace_multiply(Workspace *space);
/* The same at FUSION_EAGER alone: what follows on the list is then apart. */
void workspace_multiply_apart(Workspace *space);
/* With `after` of each finished tile (math/gemm.h), whose own time `aside` has and which belongs to
 * the part at work. */
void workspace_multiply_after(Workspace *space, GemmAfter *after, void *context,
                              StopwatchAside *aside);

/* gradient[c] += sum over the T rows of x's column c, all of which are here: per row shard in
 * double, then up the tree over row shards. */
void workspace_add_row_sum(Workspace *space, Tensor x, real *gradient);
/* The second half alone: row_sums [row_shards, cols] are there already (cols apart). */
void workspace_reduce_row_sums(Workspace *space, int64_t cols, real *gradient);

/* One view per owned shard of an activation whose columns are cut: shard s is [T, size of the cut],
 * contiguous. */
typedef struct {
    Range owned;
    Tensor shard[SHARD_MAX];
} Sharded;

/* Takes memory for the owned shards of [rows, axis units * unit_size]. */
void sharded_take(Sharded *sharded, Arena *arena, const AxisLayout *axis, int rank,
                  int64_t unit_size, int64_t rows);

#endif
