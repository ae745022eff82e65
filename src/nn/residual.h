/* What happens on the residual stream between the sublayers: norms, bias and output dropout before
 * the add, embedding. All ranks of a tensor group hold all T rows of it and compute the same bits.
 */
#ifndef WEFT_NN_RESIDUAL_H
#define WEFT_NN_RESIDUAL_H

#include "comm/comm.h"
#include "math/dropout.h"
#include "nn/pass.h"
#include "param/param.h"

/* y [T, D] = rmsnorm(x [T, D]) * gain [D]; scale [T] receives 1 / rms. */
void residual_norm(const Workspace *space, Tensor x, const real *gain, double eps, Tensor y,
                   real *scale);
/* y again from x and the saved scale. */
void residual_norm_again(const Workspace *space, Tensor x, const real *gain, const real *scale,
                         Tensor y);
/* dx [T, D] += gradient through the norm; gain_gradient [D] += its own. */
void residual_norm_backward(Workspace *space, Tensor dy, Tensor x, const real *gain,
                            const real *scale, Tensor dx, real *gain_gradient);

/* out [T, D] = x + dropout(y + bias); bias [D] or NULL; y is overwritten. */
void residual_add(const Workspace *space, Tensor x, Tensor y, const real *bias,
                  const Dropout *dropout, Tensor out);
/* dy [T, D] = dropout's gradient of d [T, D] (the gradient of out). */
void residual_add_backward(const Workspace *space, Tensor d, const Dropout *dropout, Tensor dy);

/* x [T, D], contiguous: each element is 0 (all bits) on all tensor ranks but one at most; all get
 * it (a gather by a bitwise or, not a sum). x's memory is a multiple of 8 bytes (arenas are).
 * Collective over GROUP_TENSOR. */
void residual_gather(Grid *grid, Tensor x);

/* x [T, D]: row t is the embedding of tokens[t], from whichever tensor rank owns that row of the
 * table. Collective over GROUP_TENSOR. */
void residual_embed(const Workspace *space, Grid *grid, const ParamSet *set, const Param *table,
                    const int32_t *tokens, Tensor x);
/* Gradient of the owned rows of the table += rows of dx [T, D], t ascending for each. */
void residual_embed_backward(const Workspace *space, const ParamSet *set, const Param *table,
                             const int32_t *tokens, Tensor dx);

#endif
