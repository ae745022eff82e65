/* y = down(mask * act(gate(x)) * act(up(x))): the activation is on both branches, dReLU with relu
 * (Song et al. 2024, Turbo Sparse). */
#include "nn/ffn_kinds.h"
#include "nn/ffn_passes.h"

static void dual_activate(const Ffn *ffn, Range rows, Range cols, int shard,
                          const FfnSaved *saved) {
    ffn_pair_activate(ffn, rows, cols, shard, saved, activation_dual);
}

static void dual_differentiate(const Ffn *ffn, Range rows, Range cols, int shard,
                               const FfnSaved *saved) {
    ffn_pair_differentiate(ffn, rows, cols, shard, saved, activation_dual_backward);
}

static void dual_activate_apart(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor b = saved->work.shard[shard], h = saved->hidden.shard[shard];
    pass_act(ffn, saved->gate.shard[shard], h);
    pass_act(ffn, saved->up.shard[shard], b);
    pass_multiply(ffn, h, b, h);
}

static void dual_differentiate_apart(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor g = saved->gate.shard[shard], u = saved->up.shard[shard];
    Tensor d = saved->hidden.shard[shard], b = saved->work.shard[shard];
    pass_act(ffn, u, b);
    pass_multiply(ffn, d, b, b);
    pass_slope(ffn, b, g, b); /* dg */
    pass_act(ffn, g, g);
    pass_multiply(ffn, d, g, d);
    pass_slope(ffn, d, u, u);
    pass_copy(ffn, b, g);
}

const FfnKind ffn_dual = {
    .name = "dual",
    .projections = 3,
    .equation = "down(act(gate(x)) * act(up(x)))",
    .activated = "both",
    .has_gate = true,
    .has_linear = false,
    .declare = ffn_pair_declare,
    .take = ffn_pair_take,
    .activate = dual_activate,
    .differentiate = dual_differentiate,
    .activate_apart = dual_activate_apart,
    .differentiate_apart = dual_differentiate_apart,
};
