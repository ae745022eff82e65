/* The beginning of an mlp: a linear map from rows of numbers to the residual stream,
 * x [T, D] = inputs [T, a] W^T + b. The weight [D, a] is cut by its output rows, the bias alike;
 * each rank makes its columns of x, and a gather gives all of them to all, or to each rank its
 * rows of the stream. */
#ifndef WEFT_NN_INPUT_H
#define WEFT_NN_INPUT_H

#include "comm/comm.h"
#include "nn/pass.h"
#include "param/param.h"

typedef struct {
    ParamSet *set;
    Workspace *space;
    AxisLayout axis;  /* d_model over the tensor ranks */
    int weight, bias; /* places in the set */
} Input;

/* Adds input.weight and input.bias to the set. 0 or a negative code. */
int input_declare(Input *input, ParamSet *set, Workspace *space, int64_t inputs, double init_std,
                  const AxisLayout *axis);

/* inputs [T, a] -> x, contiguous: the rows of [T, D] that this rank has. Collective over
 * GROUP_TENSOR. 0 or a negative code. */
int input_forward(const Input *input, Grid *grid, Tensor inputs, Tensor x);

/* dx [T, D], the same on all ranks: adds to the gradients of the owned rows. 0 or a negative code.
 */
int input_backward(const Input *input, Tensor inputs, Tensor dx);

#endif
