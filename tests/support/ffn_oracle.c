#include "support/ffn_oracle.h"

#include "support/oracle.h"
#include "support/support.h"
#include "support/whole.h"

#include <stdlib.h>
#include <string.h>

static const char *const tensor_names[FFN_TENSORS] = {"gate_proj.weight", "up_proj.weight",
                                                      "down_proj.weight", "gate_proj.bias",
                                                      "up_proj.bias",     "down_proj.bias"};

static double mask_of_rig(void *context, int site, int layer, int64_t row, int64_t channel) {
    const FfnRig *rig = context;
    if (site != NAIVE_HIDDEN) return 1;
    return oracle_mask(PHILOX_HIDDEN_DROPOUT, layer, FFN_RIG_MICROBATCH, row, channel,
                       rig->plan.hidden_dropout);
}

/* Which tensors a plan asks for, in the order of the names, whatever the rig has. */
static bool is_asked(const FfnRigPlan *plan, int tensor) {
    bool gated = strcmp(plan->kind, "dense") != 0;
    const bool asked[FFN_TENSORS] = {gated,
                                     true,
                                     true,
                                     gated && (plan->bias || plan->gate_bias),
                                     plan->bias || plan->up_bias,
                                     plan->bias || plan->down_bias};
    return asked[tensor];
}

static NaiveFfn naive_of(const FfnOracle *oracle, FfnRig *rig, bool training) {
    const FfnRigPlan *plan = &rig->plan;
    double *const *weight = oracle->weight;
    return (NaiveFfn){.rows = plan->rows,
                      .d_model = plan->d_model,
                      .d_ff = plan->d_ff,
                      .gated = weight[0] != NULL,
                      .activation = plan->activation,
                      .branches = {.dual = !strcmp(plan->kind, "dual"),
                                   .beta = plan->beta,
                                   .gate_clamp = plan->gate_clamp,
                                   .linear_clamp = plan->linear_clamp,
                                   .linear_offset = plan->linear_offset},
                      .gate = weight[0],
                      .up = weight[1],
                      .down = weight[2],
                      .gate_bias = weight[3],
                      .up_bias = weight[4],
                      .down_bias = weight[5],
                      .mask = training && plan->hidden_dropout > 0 ? mask_of_rig : NULL,
                      .mask_context = rig};
}

void ffn_oracle_run(FfnOracle *oracle, FfnRig *rig, bool training) {
    *oracle = (FfnOracle){0};
    for (int i = 0; i < FFN_TENSORS; i++) {
        const Param *param = ffn_rig_param(rig, tensor_names[i]);
        ck_assert_msg((param != NULL) == is_asked(&rig->plan, i), "%s: %s is %s", ffn_rig_name(rig),
                      tensor_names[i], param ? "too much" : "missing");
        if (!param) continue;
        oracle->weight[i] = whole_gather(rig->grid, &rig->set, param, PARAM_VALUE);
        oracle->gradient[i] = naive_array(param->rows * param->cols);
    }
    double **gradient = oracle->gradient;
    int64_t size = rig->x.rows * rig->x.cols;
    oracle->naive = naive_of(oracle, rig, training);
    oracle->x = ffn_rig_rows(rig->x);
    oracle->dy = ffn_rig_rows(rig->dy);
    oracle->y = naive_array(size);
    oracle->dx = naive_array(size);
    naive_ffn(&oracle->naive, oracle->x, oracle->y);
    naive_ffn_backward(&oracle->naive, oracle->x, oracle->dy, oracle->dx,
                       &(NaiveFfnGradients){gradient[0], gradient[1], gradient[2], gradient[3],
                                            gradient[4], gradient[5]});
}

static void keep_worse(double found, const char *name, double *worst, const char **what) {
    if (found <= *worst) return;
    *worst = found;
    *what = name;
}

double ffn_oracle_compare(const FfnOracle *oracle, FfnRig *rig, const char **what) {
    int64_t size = rig->x.rows * rig->x.cols;
    double worst = -1, *y = ffn_rig_rows(rig->y), *dx = ffn_rig_rows(rig->dx);
    keep_worse(whole_difference(size, y, oracle->y), "y", &worst, what);
    keep_worse(whole_difference(size, dx, oracle->dx), "dx", &worst, what);
    for (int i = 0; i < FFN_TENSORS; i++) {
        const Param *param = ffn_rig_param(rig, tensor_names[i]);
        if (!param) continue;
        double *gradient = whole_gather(rig->grid, &rig->set, param, PARAM_GRADIENT);
        keep_worse(whole_difference(param->rows * param->cols, gradient, oracle->gradient[i]),
                   param->name, &worst, what);
        free(gradient);
    }
    free(y);
    free(dx);
    return worst;
}

void ffn_oracle_release(FfnOracle *oracle) {
    for (int i = 0; i < FFN_TENSORS; i++) {
        free(oracle->weight[i]);
        free(oracle->gradient[i]);
    }
    free(oracle->x);
    free(oracle->dy);
    free(oracle->y);
    free(oracle->dx);
    *oracle = (FfnOracle){0};
}
