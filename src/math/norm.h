/* RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * gain, over the last axis. */
#ifndef WEFT_MATH_NORM_H
#define WEFT_MATH_NORM_H

#include "tensor/shard.h"
#include "tensor/tensor.h"

/* Rows `rows` of x [T, D]; gain [D]; y [T, D] (may be NULL-data: only scale is wanted); scale [T]
 * receives 1 / rms. The mean is taken in double over fixed blocks. Single-threaded: the caller
 * shares out rows. */
void norm_forward(Range rows, Tensor x, const real *gain, double eps, Tensor y, real *scale);

/* y again from the saved scale, bit for bit the forward's. */
void norm_again(Range rows, Tensor x, const real *gain, const real *scale, Tensor y);

/* dx [T, D] += the gradient through the norm (onto the residual stream's gradient that is already
 * there); gain_sum [D] receives the sum over these rows of dy * x * scale, in double, rows
 * ascending. */
void norm_backward(Range rows, Tensor dy, Tensor x, const real *gain, const real *scale, Tensor dx,
                   double *gain_sum);

/* sum [cols] receives the sum over `rows` of x [T, cols], in double, rows ascending (bias
 * gradients). */
void rows_sum(Range rows, Tensor x, double *sum);

#endif
