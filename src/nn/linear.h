/* Column- and row-parallel products (Shoeybi et al. 2019, section 3), one logical shard at a time.
 *
 * Weights are [out, in]. Column-parallel (q, k, v, gate, up, lm head): cut by out; shard s of the
 * output is y_s [T, out_s] = x [T, in] W_s^T. Row-parallel (o, down): cut by in; shard s
 * contributes the partial sum h_s [T, in_s] W_s^T to y [T, out]. All calls are fixed by T and the
 * logical cut. */
#ifndef WEFT_NN_LINEAR_H
#define WEFT_NN_LINEAR_H

#include "comm/exchange.h"
#include "nn/pass.h"
#include "param/param.h"

/* Appends y_s = x W_s^T for the owned shards. 0 or WEFT_RUNTIME. */
int linear_column_forward(GemmList *list, const ParamSet *set, const Param *weight, Tensor x,
                          const Sharded *y);

/* The same of two weights with the same cut, by turns: y0_s, y1_s, then the next shard's (as a list
 * of pairs wants them). */
int linear_column_forward_pairs(GemmList *list, const ParamSet *set, const Param *const weight[2],
                                Tensor x, const Sharded *const y[2]);

/* Appends dW_s += dy_s^T x. */
int linear_column_gradient(GemmList *list, const ParamSet *set, const Param *weight,
                           const Sharded *dy, Tensor x);

/* Appends dW_s += dy^T h_s for a row-parallel weight. */
int linear_row_gradient(GemmList *list, const ParamSet *set, const Param *weight, Tensor dy,
                        const Sharded *h);

/* Appends dh_s = dy W_s for a row-parallel weight. */
int linear_row_input_gradient(GemmList *list, const ParamSet *set, const Param *weight, Tensor dy,
                              const Sharded *dh);

/* One weight and what multiplies it, shard by shard. */
typedef struct {
    const Param *weight;
    const Sharded *input;
} LinearTerm;

/* Partial sums over this rank's shards, up the tree as far as they form whole subtrees:
 * row-parallel forward: sum over terms of h_s W_s^T;  column-parallel backward: sum over terms of
 * dy_s W_s. At most GEMM_SUM_TERMS terms, which share one axis. Each element is written once, and
 * y's epilogue, if it has one, follows while it is in cache. */
typedef enum { LINEAR_ROW_FORWARD, LINEAR_COLUMN_BACKWARD } LinearSum;
void linear_partials(const Workspace *space, const ParamSet *set, LinearSum kind,
                     const LinearTerm *terms, int count, const Partials *y);

/* Before memory: room for linear_partials over these weights (indices into set->param). */
void linear_need(Workspace *space, const ParamSet *set, LinearSum kind, const int *weight,
                 int count);

/* y_s += b_s in every row of the owned shards. */
void linear_add_bias(const Workspace *space, const ParamSet *set, const Param *bias,
                     const Sharded *y);
/* db_s += sum over rows of dy_s. */
void linear_bias_gradient(Workspace *space, const ParamSet *set, const Param *bias,
                          const Sharded *dy);

#endif
