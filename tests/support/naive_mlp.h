/* An mlp in plain loops and in double, unsharded, from the pieces of naive.h:
 *
 *     x = inputs W^T + b;  per layer x += ffn(norm(x));  y = norm(x) W^T + b;  loss of y
 *
 *     NaiveMlp *mlp = naive_mlp_open(&config);             all weights 0
 *     copy into naive_tensors_find(naive_mlp_tensors(mlp), "input.weight")->weight and so on
 *     double loss = naive_mlp_forward(mlp, inputs, targets, values, divisor);
 *     naive_mlp_backward(mlp);                             adds to every gradient
 *     naive_mlp_close(mlp);
 *
 * T = ffn.rows, D = ffn.d_model, F = ffn.d_ff, a = inputs, b = outputs. */
#ifndef WEFT_TESTS_NAIVE_MLP_H
#define WEFT_TESTS_NAIVE_MLP_H

#include "support/naive.h"

typedef struct {
    int64_t inputs, outputs, layers;
    bool squared; /* error; else cross entropy */
    bool gate_bias, up_bias, down_bias;
    NaiveFfn ffn; /* shape, kind, activation and mask; weights and layer are filled in */
    double rms_eps;
} NaiveMlpConfig;

typedef struct NaiveMlp NaiveMlp;

NaiveMlp *naive_mlp_open(const NaiveMlpConfig *config);
void naive_mlp_close(NaiveMlp *mlp);
const NaiveTensors *naive_mlp_tensors(const NaiveMlp *mlp);

/* inputs [T, a]; targets [T] (negative: masked); values [T, b] of a squared error. Returns the sum
 * of the unmasked rows' losses, divided by divisor. The arrays must live until backward is done. */
double naive_mlp_forward(NaiveMlp *mlp, const double *inputs, const int32_t *targets,
                         const double *values, double divisor);
/* [T, b] of the last forward. */
const double *naive_mlp_outputs(const NaiveMlp *mlp);

/* Adds the gradients of the last forward's loss. */
void naive_mlp_backward(NaiveMlp *mlp);

/* Sum over rows with target >= 0 of mean over the n outputs of (y - values)^2; dy may be NULL and
 * otherwise receives (not adds) that sum's gradient times scale. */
double naive_squared_error(int64_t rows, int64_t n, const double *y, const double *values,
                           const int32_t *targets, double scale, double *dy);

#endif
