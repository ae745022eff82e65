/* Pointwise work on a shard's [T, channels] by one operation a pass over memory: what a kind does
 * at FUSION_EAGER. An operation rounds as it does within a fused pass, so the bits are the same.
 *
 * Arrays are whole shards of one shape, and may be each other's place. */
#ifndef WEFT_NN_FFN_PASSES_H
#define WEFT_NN_FFN_PASSES_H

#include "nn/ffn.h"

void pass_act(const Ffn *ffn, Tensor z, Tensor a);                 /* a = act(z) */
void pass_slope(const Ffn *ffn, Tensor da, Tensor z, Tensor dz);   /* dz = da * act'(z) */
void pass_multiply(const Ffn *ffn, Tensor x, Tensor y, Tensor xy); /* xy = x * y */
void pass_copy(const Ffn *ffn, Tensor x, Tensor y);                /* y = x */

/* The bounds of Branches (math/activation.h); one that isn't set only copies. */
void pass_clamp_gate(const Ffn *ffn, Tensor g, Tensor y);
void pass_clamp_linear(const Ffn *ffn, Tensor u, Tensor y);
void pass_offset(const Ffn *ffn, Tensor u, Tensor y);

/* dz = d, and 0 where z is beyond the clamp of the gate, or of the linear branch. */
void pass_stop_gate(const Ffn *ffn, Tensor d, Tensor z, Tensor dz);
void pass_stop_linear(const Ffn *ffn, Tensor d, Tensor z, Tensor dz);

#endif
