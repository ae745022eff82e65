#include "nn/ffn.h"

#include "base/error.h"
#include "base/fault.h"
#include "nn/ffn_kinds.h"
#include "nn/linear.h"
#include "nn/mistaken_ffn.h"

#include <string.h>

const FfnKind *const ffn_kinds[] = {&ffn_gated, &ffn_dual, &ffn_dense, NULL};

enum { CHUNK_ROWS = 32 }; /* rows that a thread takes at a time in pointwise work */

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
    workspace_need(space,
                   linear_partials_scratch(LINEAR_ROW_FORWARD, &set->param[ffn->down], space->rows),
                   config->d_ff > config->d_model ? config->d_ff : config->d_model);
    workspace_need(
        space, linear_partials_scratch(LINEAR_COLUMN_BACKWARD, &set->param[ffn->up], space->rows),
        0);
    return 0;
}

void ffn_take(const Ffn *ffn, Arena *arena, int rank, FfnSaved *preactivations, FfnSaved *hidden) {
    int64_t rows = ffn->space->rows;
    if (preactivations) ffn->kind->take(ffn, arena, rank, rows, preactivations);
    if (hidden) sharded_take(&hidden->hidden, arena, &ffn->axis, rank, 1, rows);
}

/* Hidden dropout over rows of one shard, in place; forward and backward are the same
 * multiplication. */
static void mask_hidden(const Ffn *ffn, const Pass *pass, Range rows, int shard,
                        const FfnSaved *saved) {
    if (!pass->training || ffn->config.hidden_dropout == 0) return;
    Dropout dropout = {{ffn->config.seed, PHILOX_HIDDEN_DROPOUT, (uint32_t)ffn->layer,
                        (uint32_t)pass->step, (uint32_t)pass->microbatch},
                       ffn->config.hidden_dropout,
                       fault_on("rank-mask") ? (uint32_t)ffn->set->tensor_rank * 1000 : 0};
    Tensor hidden = saved->hidden.shard[shard];
    dropout_apply(&dropout, rows, axis_units(&ffn->axis, shard).begin, hidden, hidden);
}

typedef enum { ACTIVATE, DIFFERENTIATE } Pointwise;

static void pointwise(const Ffn *ffn, const Pass *pass, const FfnSaved *saved, Pointwise what) {
    int64_t rows = ffn->space->rows, chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    Range owned = saved->hidden.owned;
#pragma omp parallel for num_threads(ffn->space->threads) schedule(dynamic, 1)
    for (int64_t item = 0; item < chunks * range_size(owned); item++) {
        int shard = (int)(owned.begin + item / chunks);
        int64_t begin = item % chunks * CHUNK_ROWS, end = begin + CHUNK_ROWS;
        Range part = {begin, end < rows ? end : rows};
        if (what == ACTIVATE) {
            ffn->kind->activate(ffn, part, shard, saved);
            mask_hidden(ffn, pass, part, shard, saved);
        } else {
            mask_hidden(ffn, pass, part, shard, saved);
            ffn->kind->differentiate(ffn, part, shard, saved);
        }
    }
}

static void add_bias(const Ffn *ffn, int bias, const Sharded *y) {
    if (bias >= 0) linear_add_bias(ffn->space, ffn->set, &ffn->set->param[bias], y);
}

int ffn_hidden(const Ffn *ffn, const Pass *pass, Tensor x, const FfnSaved *saved) {
    x = mistaken_ffn_input(x);
    int status = ffn->kind->project(ffn, x, saved);
    if (status) return status;
    workspace_multiply(ffn->space);
    add_bias(ffn, ffn->gate_bias, &saved->gate);
    add_bias(ffn, ffn->up_bias, &saved->up);
    pointwise(ffn, pass, saved, ACTIVATE);
    return 0;
}

void ffn_activate(const Ffn *ffn, const Pass *pass, const FfnSaved *saved) {
    Pass again = *pass;
    again.microbatch += fault_on("mask-redrawn");
    pointwise(ffn, &again, saved, ACTIVATE);
}

void ffn_down(const Ffn *ffn, const FfnSaved *saved, const Partials *y) {
    LinearTerm term = {&ffn->set->param[ffn->down], &saved->hidden};
    linear_partials(ffn->space, ffn->set, LINEAR_ROW_FORWARD, &term, 1, y);
    mistaken_ffn_output(y);
}

/* The two products that read dy: down's weight gradient from hidden, then dhidden into hidden's
 * place. */
static int backward_down(const Ffn *ffn, Tensor dy, const FfnSaved *saved) {
    const Param *down = &ffn->set->param[ffn->down];
    GemmList *list = &ffn->space->products;
    int status = linear_row_gradient(list, ffn->set, down, dy, &saved->hidden);
    if (status) return status;
    workspace_multiply(ffn->space);
    status = linear_row_input_gradient(list, ffn->set, down, dy, &saved->hidden);
    if (status) return status;
    workspace_multiply(ffn->space);
    return 0;
}

int ffn_backward(const Ffn *ffn, const Pass *pass, Tensor x, Tensor dy, const FfnSaved *saved,
                 const Partials *dx) {
    int status = backward_down(ffn, dy, saved);
    if (status) return status;
    pointwise(ffn, pass, saved, DIFFERENTIATE);

    struct {
        int weight, bias;
        const Sharded *gradient;
    } branch[] = {{ffn->gate, ffn->gate_bias, &saved->gate}, {ffn->up, ffn->up_bias, &saved->up}};
    LinearTerm term[2];
    int terms = 0;
    GemmList *list = &ffn->space->products;
    for (int b = 0; b < 2; b++) {
        if (branch[b].weight < 0) continue;
        const Param *weight = &ffn->set->param[branch[b].weight];
        term[terms++] = (LinearTerm){weight, branch[b].gradient};
        status = linear_column_gradient(list, ffn->set, weight, branch[b].gradient, x);
        if (status) return status;
        if (branch[b].bias >= 0)
            linear_bias_gradient(ffn->space, ffn->set, &ffn->set->param[branch[b].bias],
                                 branch[b].gradient);
    }
    workspace_multiply(ffn->space);
    linear_partials(ffn->space, ffn->set, LINEAR_COLUMN_BACKWARD, term, terms, dx);
    return 0;
}
