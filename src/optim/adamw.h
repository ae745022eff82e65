/* AdamW (Loshchilov and Hutter 2019, algorithm 2) and what precedes it: the global gradient norm
 * and clipping. */
#ifndef WEFT_OPTIM_ADAMW_H
#define WEFT_OPTIM_ADAMW_H

#include "comm/comm.h"
#include "param/param.h"

typedef struct {
    double beta1, beta2, eps, weight_decay; /* decay applies to matrices only */
} AdamW;

/* One update of all shards this rank holds, elementwise: gradients are multiplied by gradient_scale
 * first. `update` counts from 1 (bias correction). Same bits for any number of threads. */
void adamw_update(const AdamW *adamw, const ParamSet *set, int64_t update, double lr,
                  double gradient_scale, int threads);

/* Euclidean norm of the whole model's gradient: squares in double over fixed blocks of each logical
 * shard, shards up the tensor tree, tensors in order; a replicated tensor counts once. Same bits on
 * every layout; NaN on a rank whose own replica of something isn't finite, though the one that
 * counts is. */
typedef struct {
    double *block; /* sums of this rank's blocks */
    double *shard; /* [all logical shards of all tensors] */
    int64_t blocks, shards;
} GradientNorm;

int gradient_norm_init(GradientNorm *norm, const ParamSet *set); /* 0 or WEFT_RUNTIME */
void gradient_norm_release(GradientNorm *norm);
double gradient_norm(GradientNorm *norm, const ParamSet *set, Grid *grid,
                     int threads); /* Collective over GROUP_TENSOR */

/* What gradients are multiplied by so that their norm is at most `clip` (0: no clipping). */
double gradient_clip_scale(double norm, double clip);

#endif
