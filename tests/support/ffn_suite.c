#include "support/ffn_suite.h"

#include "base/error.h"
#include "support/oracle.h"
#include "support/support.h"

const FfnRigPlan suite_plan = {.rows = 13,
                               .d_model = 24,
                               .d_ff = 45,
                               .bias = true,
                               .hidden_dropout = 0.2,
                               .shards = 8,
                               .seed = ORACLE_SEED};

const FfnRigPlan suite_bounded_plan = {.rows = 13,
                                       .d_model = 24,
                                       .d_ff = 45,
                                       .bias = true,
                                       .hidden_dropout = 0.2,
                                       .beta = 1.702,
                                       .gate_clamp = 1.25,
                                       .linear_clamp = 1,
                                       .linear_offset = 0.75,
                                       .shards = 8,
                                       .seed = ORACLE_SEED};

void on_layouts(OnLayout body) {
    int step = sizeof(real) == 8 ? FUSION_BLOCK - FUSION_EAGER : 1;
    for (int tp = 1; tp <= MOST_TP; tp++) {
        Grid grid;
        ck_assert_int_eq(comm_start(&grid), 0);
        ck_assert_msg(grid_open(&grid, tp, 1) == 0, "%s", error_message());
        for (int level = FUSION_EAGER; level <= FUSION_BLOCK && !grid.surplus; level += step) {
            ffn_rig_fuse((Fusion)level);
            body(&grid);
        }
        grid_wait_surplus(&grid, 0);
        comm_stop(&grid);
    }
}

FfnRigPlan suite_fit(FfnRigPlan plan) {
    const FfnKind *kind = ffn_find(plan.kind);
    if (!kind->has_gate) plan.gate_bias = false;
    if (!kind->has_linear) plan.gate_clamp = plan.linear_clamp = plan.linear_offset = 0;
    if (!activation_find(plan.activation)->has_beta) plan.beta = 0;
    return plan;
}

void on_kinds_with(const FfnRigPlan *base, Grid *grid, OnKind body) {
    for (int k = 0; ffn_kinds[k]; k++)
        for (const Activation *a = activations; a->name; a++) {
            FfnRigPlan plan = *base;
            plan.kind = ffn_kinds[k]->name;
            plan.activation = a->name;
            plan = suite_fit(plan);
            body(grid, &plan);
        }
}

void on_kinds(Grid *grid, OnKind body) { on_kinds_with(&suite_plan, grid, body); }
