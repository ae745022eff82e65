/* What kinds with two branches share, whatever they do between them. */
#include "nn/ffn_kinds.h"
#include "nn/linear.h"

int ffn_pair_declare(Ffn *ffn, const char *prefix) {
    int status = ffn_declare_column(ffn, prefix, "gate", INIT_KEY_GATE, ffn->config.gate_bias,
                                    &ffn->gate, &ffn->gate_bias);
    if (!status)
        status = ffn_declare_column(ffn, prefix, "up", INIT_KEY_UP, ffn->config.up_bias, &ffn->up,
                                    &ffn->up_bias);
    if (!status)
        status = ffn_declare_row(ffn, prefix, "down", INIT_KEY_DOWN, ffn->config.down_bias,
                                 &ffn->down, &ffn->down_bias);
    return status;
}

void ffn_pair_take(const Ffn *ffn, Arena *arena, int rank, int64_t rows, FfnSaved *saved) {
    sharded_take(&saved->gate, arena, &ffn->axis, rank, 1, rows);
    sharded_take(&saved->up, arena, &ffn->axis, rank, 1, rows);
}

int ffn_pair_project(const Ffn *ffn, Tensor x, const FfnSaved *saved) {
    GemmList *list = &ffn->space->products;
    const Param *param = ffn->set->param;
    int status = linear_column_forward(list, ffn->set, &param[ffn->gate], x, &saved->gate);
    if (!status) status = linear_column_forward(list, ffn->set, &param[ffn->up], x, &saved->up);
    return status;
}

void ffn_pair_activate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved,
                       void (*kernel)(const Branches *branches, int64_t n, const real *g,
                                      const real *u, real *h)) {
    Tensor gate = saved->gate.shard[shard], up = saved->up.shard[shard];
    kernel(&ffn->config.branches, range_size(rows) * gate.cols, tensor_row(gate, rows.begin),
           tensor_row(up, rows.begin), tensor_row(saved->hidden.shard[shard], rows.begin));
}

void ffn_pair_differentiate(const Ffn *ffn, Range rows, int shard, const FfnSaved *saved,
                            void (*kernel)(const Branches *branches, int64_t n, const real *g,
                                           const real *u, const real *dh, real *dg, real *du)) {
    real *gate = tensor_row(saved->gate.shard[shard], rows.begin);
    real *up = tensor_row(saved->up.shard[shard], rows.begin);
    const real *dhidden = tensor_row(saved->hidden.shard[shard], rows.begin);
    kernel(&ffn->config.branches, range_size(rows) * saved->gate.shard[shard].cols, gate, up,
           dhidden, gate, up);
}
