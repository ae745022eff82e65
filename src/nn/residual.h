/* What happens on the residual stream between the sublayers: norms, bias and output dropout before
 * the add, embedding. T here are the rows of the stream that this rank has (nn/stream.h): all, or
 * its own; a tensor with fewer is worked on as well, as far as rows alone matter. */
#ifndef WEFT_NN_RESIDUAL_H
#define WEFT_NN_RESIDUAL_H

#include "comm/exchange.h"
#include "math/dropout.h"
#include "nn/pass.h"
#include "param/param.h"

/* y [T, D] = rmsnorm(x [T, D]) * gain [D]; scale [T] receives 1 / rms. */
void residual_norm(const Workspace *space, Tensor x, const real *gain, double eps, Tensor y,
                   real *scale);
/* y again from x and the saved scale. */
void residual_norm_again(const Workspace *space, Tensor x, const real *gain, const real *scale,
                         Tensor y);
/* dx [T, D] += gradient through the norm; gain_gradient [D] += its own, of a cut stream in
 * stream_finish_sums. */
void residual_norm_backward(Workspace *space, Tensor dy, Tensor x, const real *gain,
                            const real *scale, Tensor dx, real *gain_gradient);

/* out [T, D] = x + dropout(y + bias); bias [D] or NULL; y is overwritten. Of any rows, the first of
 * which is dropout's row_offset. */
void residual_add(const Workspace *space, Tensor x, Tensor y, const real *bias,
                  const Dropout *dropout, Tensor out);

/* The end of a row-parallel block: its partial sums become y, and out = x + dropout(y + bias).
 *
 *     ResidualEnd end = {.space = .., .x = .., .y = .., .out = .., ..};
 *     Partials part = residual_begin(&end, exchange);   // where the partial sums belong
 *     ... exchange_sum(exchange) ...
 *     residual_end(&end);
 *
 * Where it is `fused` the sum's epilogue does it all, y stays as it was, and residual_end has
 * nothing to do. Not to be moved between begin and end. */
typedef struct {
    const Workspace *space;
    Tensor x, y, out;
    const real *bias; /* or NULL */
    Dropout dropout;
    bool fused;
    Epilogue epilogue;
} ResidualEnd;
Partials residual_begin(ResidualEnd *end, Exchange *exchange);
void residual_end(const ResidualEnd *end);
/* dy [T, D] = dropout's gradient of d [T, D] (the gradient of out). */
void residual_add_backward(const Workspace *space, Tensor d, const Dropout *dropout, Tensor dy);
/* gradient [D] += sum over the rows of dy [T, D], of a cut stream in stream_finish_sums. */
void residual_bias_backward(Workspace *space, Tensor dy, real *gradient);

/* x [T, D], contiguous: each element is 0 (all bits) on all tensor ranks but one at most; all get
 * it (a gather by a bitwise or, not a sum). x's memory is a multiple of 8 bytes (arenas are).
 * Collective over GROUP_TENSOR. */
void residual_gather(Grid *grid, Tensor x);

/* x [T, D]: its rows are the embeddings of their tokens, from whichever tensor rank owns that row
 * of the table; tokens are those of all rows. Collective over GROUP_TENSOR. */
void residual_embed(const Workspace *space, Grid *grid, const ParamSet *set, const Param *table,
                    const int32_t *tokens, Tensor x);
/* Gradient of the owned rows of the table += rows of dx, t ascending for each. dx has all rows. */
void residual_embed_backward(const Workspace *space, const ParamSet *set, const Param *table,
                             const int32_t *tokens, Tensor dx);

#endif
