#include "base/fault.h"
#include "nn/ffn_kinds.h"
#include "nn/mistaken_ffn.h"

#include <stdio.h>

static int declare(Ffn *ffn, const char *prefix, const char *name, const char *suffix,
                   ParamSpec spec, int *index) {
    char full[PARAM_NAME];
    mistaken_ffn_tensor(&name, &spec.init_key);
    snprintf(full, sizeof full, "%s.%s_proj.%s", prefix, name, suffix);
    spec.name = full;
    spec.layer = (uint32_t)ffn->layer;
    return params_declare(ffn->set, &spec, index);
}

int ffn_declare_column(Ffn *ffn, const char *prefix, const char *name, uint32_t init_key,
                       bool has_bias, int *weight, int *bias) {
    const FfnConfig *config = &ffn->config;
    int status = declare(ffn, prefix, name, "weight",
                         (ParamSpec){.rank = 2,
                                     .rows = config->d_ff,
                                     .cols = config->d_model,
                                     .split = SPLIT_ROWS,
                                     .axis = &ffn->axis,
                                     .unit_size = 1,
                                     .init = INIT_NORMAL,
                                     .init_std = config->init_in,
                                     .init_key = init_key,
                                     .decay = true},
                         weight);
    *bias = -1;
    if (status || !has_bias) return status;
    return declare(ffn, prefix, name, "bias",
                   (ParamSpec){.rank = 1,
                               .rows = 1,
                               .cols = config->d_ff,
                               .split = SPLIT_COLS,
                               .axis = &ffn->axis,
                               .unit_size = 1,
                               .init = INIT_ZERO},
                   bias);
}

int ffn_declare_row(Ffn *ffn, const char *prefix, const char *name, uint32_t init_key,
                    bool has_bias, int *weight, int *bias) {
    const FfnConfig *config = &ffn->config;
    int status = declare(ffn, prefix, name, "weight",
                         (ParamSpec){.rank = 2,
                                     .rows = config->d_model,
                                     .cols = config->d_ff + fault_on("down-wrong-width"),
                                     .split = SPLIT_COLS,
                                     .axis = &ffn->axis,
                                     .unit_size = 1,
                                     .init = INIT_NORMAL,
                                     .init_std = config->init_out,
                                     .init_key = init_key,
                                     .decay = true},
                         weight);
    *bias = -1;
    if (status || !has_bias) return status;
    return declare(
        ffn, prefix, name, "bias",
        (ParamSpec){
            .rank = 1, .rows = 1, .cols = config->d_model, .split = SPLIT_NONE, .init = INIT_ZERO},
        bias);
}
