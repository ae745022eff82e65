/* Losses over outputs that are cut into shards. Local pieces; the caller does what goes between
 * ranks. Cross-entropy over a vocabulary: largest logit over all shards first, then the exp sums up
 * the tensor tree, then the loss. Squared error: the sums up the tree. */
#ifndef WEFT_MATH_LOSS_H
#define WEFT_MATH_LOSS_H

#include "tensor/shard.h"
#include "tensor/tensor.h"

/* largest[t] = max(largest[t], max over columns of logits [T, n]) for the rows given. A NaN logit
 * stays NaN in the sums that follow. */
void loss_row_max(Range rows, Tensor logits, real *largest);

/* sums[t] = sum over columns of exp(logits[t][c] - largest[t]), in double over fixed blocks. */
void loss_exp_sums(Range rows, Tensor logits, const real *largest, double *sums);

/* Loss of a row: log(sum) + largest - target logit, in double. */
double loss_row(real largest, double sum, real target_logit);

/* In place: logits[t][c] = (exp(logits - largest[t]) / sums[t] - [first + c == target[t]]) * scale;
 * rows with target < 0 become 0. `first` is the global index of column 0. */
void loss_gradient(Range rows, Tensor logits, int64_t first, const int32_t *targets,
                   const real *largest, const double *sums, double scale);

/* sums[t] = sum over columns of (outputs [T, n] - values [T, n])^2, in double by lanes. */
void loss_squared_sums(Range rows, Tensor outputs, Tensor values, double *sums);

/* In place: outputs[t][c] = (outputs - values) * factor; rows with target < 0 become 0. */
void loss_squared_gradient(Range rows, Tensor outputs, Tensor values, const int32_t *targets,
                           double factor);

#endif
