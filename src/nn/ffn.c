#include "nn/ffn.h"

#include "base/error.h"
#include "nn/ffn_kinds.h"
#include "nn/linear.h"
#include "nn/mistaken_ffn.h"

#include <string.h>

const FfnKind *const ffn_kinds[] = {&ffn_gated, &ffn_dual, &ffn_dense, NULL};

const FfnKind *ffn_find(const char *name) {
    for (int i = 0; ffn_kinds[i]; i++)
        if (!strcmp(ffn_kinds[i]->name, name)) return ffn_kinds[i];
    return NULL;
}

/* What belongs to a branch that this kind does not have. */
static int check_branches(const FfnKind *kind, const FfnConfig *config) {
    const Branches *branches = &config->branches;
    const struct {
        const char *key, *branch;
        double value;
        bool has_branch;
    } row[] = {
        {"gate_bias", "gate", config->gate_bias, kind->has_gate},
        {"gate_clamp", "gate beside a linear branch", branches->gate_clamp, kind->has_linear},
        {"linear_clamp", "linear branch", branches->linear_clamp, kind->has_linear},
        {"linear_offset", "linear branch", branches->linear_offset, kind->has_linear},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].value != 0 && !row[i].has_branch)
            return error_set(WEFT_USAGE, "ffn.%s = %g: ffn.kind = %s has no %s; leave it out",
                             row[i].key, row[i].value, kind->name, row[i].branch);
    return 0;
}

int ffn_check(const FfnConfig *config) {
    const FfnKind *kind = ffn_find(config->kind);
    const Branches *branches = &config->branches;
    const Activation *activation = branches->activation;
    if (!kind) return error_set(WEFT_USAGE, "ffn.kind = %s: there is no such kind", config->kind);
    if (!activation) return error_set(WEFT_USAGE, "ffn.activation: there is no such activation");
    if (!(branches->beta >= ACTIVATION_LEAST_BETA && branches->beta <= ACTIVATION_MOST_BETA))
        return error_set(WEFT_USAGE, "ffn.swish_beta = %g: from %g to %g is allowed",
                         branches->beta, ACTIVATION_LEAST_BETA, (double)ACTIVATION_MOST_BETA);
    if (branches->beta != 1 && !activation->has_beta)
        return error_set(WEFT_USAGE,
                         "ffn.swish_beta = %g: ffn.activation = %s has no beta; leave it out",
                         branches->beta, activation->name);
    if (config->d_ff < 1)
        return error_set(WEFT_USAGE, "ffn.d_ff = %lld: at least 1 is needed",
                         (long long)config->d_ff);
    return check_branches(kind, config);
}

int ffn_declare(Ffn *ffn, ParamSet *set, Workspace *space, const FfnConfig *config,
                const AxisLayout *axis, const char *prefix, int layer) {
    *ffn = (Ffn){.kind = ffn_find(config->kind),
                 .config = *config,
                 .layer = layer,
                 .set = set,
                 .space = space,
                 .axis = *axis,
                 .gate = -1,
                 .up = -1,
                 .down = -1,
                 .gate_bias = -1,
                 .up_bias = -1,
                 .down_bias = -1};
    int status = ffn_check(config);
    if (!status) status = ffn->kind->declare(ffn, prefix);
    if (status) return status;
    mistaken_ffn_declared(ffn);
    workspace_need(space, 0, config->d_ff > config->d_model ? config->d_ff : config->d_model);
    linear_need(space, set, LINEAR_ROW_FORWARD, &ffn->down, 1);
    linear_need(space, set, LINEAR_COLUMN_BACKWARD, (int[]){ffn->up, ffn->gate},
                ffn->gate < 0 ? 1 : 2);
    return 0;
}

void ffn_take(const Ffn *ffn, Arena *arena, int rank, FfnSaved *preactivations, FfnSaved *hidden) {
    int64_t rows = ffn->space->rows;
    if (preactivations) ffn->kind->take(ffn, arena, rank, rows, preactivations);
    if (hidden) sharded_take(&hidden->hidden, arena, &ffn->axis, rank, 1, rows);
}

void ffn_take_work(const Ffn *ffn, Arena *arena, int rank, FfnSaved *saved) {
    if (ffn->space->fusion != FUSION_EAGER || !ffn->kind->has_gate) return;
    sharded_take(&saved->work, arena, &ffn->axis, rank, 1, ffn->space->rows);
}
