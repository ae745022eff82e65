/* y = down(mask * act(gate(x)) * up(x)): the activation is on the gate branch (Shazeer 2020, eq. 5
 * and 6). */
#include "nn/ffn_kinds.h"
#include "nn/ffn_passes.h"

static void gated_activate(const Ffn *ffn, Range rows, Range cols, int shard,
                           const FfnSaved *saved) {
    ffn_pair_activate(ffn, rows, cols, shard, saved, activation_gated);
}

static void gated_differentiate(const Ffn *ffn, Range rows, Range cols, int shard,
                                const FfnSaved *saved) {
    ffn_pair_differentiate(ffn, rows, cols, shard, saved, activation_gated_backward);
}

static void gated_activate_apart(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor a = saved->work.shard[shard], h = saved->hidden.shard[shard];
    pass_clamp_gate(ffn, saved->gate.shard[shard], a);
    pass_act(ffn, a, a);
    pass_clamp_linear(ffn, saved->up.shard[shard], h);
    pass_offset(ffn, h, h);
    pass_multiply(ffn, a, h, h);
}

static void gated_differentiate_apart(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor g = saved->gate.shard[shard], u = saved->up.shard[shard];
    Tensor d = saved->hidden.shard[shard], a = saved->work.shard[shard];
    pass_clamp_gate(ffn, g, a);
    pass_act(ffn, a, a);
    pass_multiply(ffn, d, a, a); /* du, as far as up isn't clamped */
    pass_stop_linear(ffn, a, u, a);
    pass_clamp_linear(ffn, u, u);
    pass_offset(ffn, u, u);
    pass_multiply(ffn, d, u, d); /* da */
    pass_copy(ffn, a, u);
    pass_clamp_gate(ffn, g, a);
    pass_slope(ffn, d, a, d);
    pass_stop_gate(ffn, d, g, g);
}

const FfnKind ffn_gated = {
    .name = "gated",
    .projections = 3,
    .equation = "down(act(gate(x)) * up(x))",
    .activated = "gate",
    .has_gate = true,
    .has_linear = true,
    .declare = ffn_pair_declare,
    .take = ffn_pair_take,
    .activate = gated_activate,
    .differentiate = gated_differentiate,
    .activate_apart = gated_activate_apart,
    .differentiate_apart = gated_differentiate_apart,
};
