/* What attention's two directions share: panels of scores, whose columns are as many as a
 * micro-tile of products has (gemm_kernel.h), so that a panel is an operand of the next product as
 * it lies. Pointwise work on a panel is the same operation for each of its columns: no bit depends
 * on how many there are. */
#ifndef WEFT_MATH_ATTENTION_PANEL_H
#define WEFT_MATH_ATTENTION_PANEL_H

#include "base/memory.h"
#include "math/attention.h"
#include "math/gemm_kernel.h"
#include "tensor/shard.h"

/* Query rows of a tile: dK and dV sum over the rows of a tile, then over tiles. */
int64_t attention_tile_rows(int64_t length);

/* Bytes of scratch of attention_backward alone. */
size_t attention_backward_scratch(const AttentionShape *shape);

/* Scratch for panels of any kernel over lines and depth, either of which may be what panels cut. */
real *panels_take(Arena *arena, int64_t lines, int64_t depth);
/* For one panel [lines, cols]. */
real *panel_take(Arena *arena, int64_t lines);

/* Columns of one head. */
Tensor attention_head(Tensor x, int head, int64_t head_dim);

/* c [rows, kernel->cols] = alpha a b, or += where `add`. a: panels [stride, kernel->rows] one after
 * another, of which k lines are read; b [k, kernel->cols]. Blocks of k are those of a product. */
void attention_multiply(const GemmKernel *kernel, int64_t rows, int64_t k, int64_t stride,
                        const real *a, const real *b, real alpha, bool add, real *c, int64_t ldc);

/* y [count, rows] = the first columns of panel [rows, kernel->cols], each times its factor [count]
 * where that isn't NULL. scratch: [kernel->cols, rows]. */
void attention_turn(const GemmKernel *kernel, const real *panel, int64_t rows, int64_t count,
                    const real *factor, real *scratch, Tensor y);

/* score [keys, width], of which key j is seen by columns i >= j - first, becomes exp(score - the
 * column's largest), 0 where not seen; largest [width], sum [width] (of the column). lanes: [LANES,
 * width]. */
void attention_exp(int width, int64_t keys, int64_t first, real *score, real *largest, double *sum,
                   double *lanes);

/* Rows i in [begin, end) of score and slope [rows, width]: score becomes P = exp(score - lse[i]),
 * slope, which holds dP, becomes dS = P (dP - delta[i]); both 0 in columns >= i - begin + seen. */
void attention_slope(int width, int64_t begin, int64_t end, int64_t seen, const real *lse,
                     const real *delta, real *score, real *slope);

#endif
