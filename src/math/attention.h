/* Causal attention of one sequence and one group of query heads that share a key/value head
 * (grouped-query attention, Ainslie et al. 2023), tiled over query rows: the [L, L] matrix is never
 * stored; backward recomputes the probabilities from the saved log-sum-exp (Dao et al. 2022,
 * section 3.1). Local, single-threaded: the caller shares out (sequence, group) pairs. Elements of
 * products are those of math/gemm_kernel.h, and sums over keys and queries are cut by L alone. */
#ifndef WEFT_MATH_ATTENTION_H
#define WEFT_MATH_ATTENTION_H

#include "tensor/tensor.h"

#include <stddef.h>

typedef struct {
    int64_t length, head_dim; /* L, hd */
    int heads;                /* query heads in the group */
    real scale;               /* 1 / sqrt(hd) */
} AttentionShape;

/* Bytes of scratch that one call needs. */
size_t attention_scratch(const AttentionShape *shape);

/* q [L, heads * hd], k, v [L, hd] (rotated already) -> o [L, heads * hd], lse [heads, L]
 * (log-sum-exp of the scaled scores of each row; in `real`). */
void attention_forward(const AttentionShape *shape, Tensor q, Tensor k, Tensor v, Tensor o,
                       Tensor lse, void *scratch);

/* d_o [L, heads * hd] -> dq [L, heads * hd], dk, dv [L, hd], all overwritten. dk and dv sum over
 * the group's heads in ascending order, within a head over query tiles in ascending order. */
void attention_backward(const AttentionShape *shape, Tensor q, Tensor k, Tensor v, Tensor o,
                        Tensor lse, Tensor d_o, Tensor dq, Tensor dk, Tensor dv, void *scratch);

/* Rotary positions (Su et al. 2021) in Hugging Face's half-rotation form: the pair is (i, i +
 * hd/2), its angle position * theta^(-2i/hd). table [L, hd]: cos in columns [0, hd/2), sin in the
 * rest. */
void rotary_table(double theta, Tensor table);

/* Rotates each head of x [L, heads * hd] in place; row t has position t. direction +1 forward, -1
 * backward. */
void rotary_apply(Tensor table, int heads, int direction, Tensor x);

#endif
