/* What kinds with two branches share, whatever they do between them. */
#include "nn/ffn_kinds.h"

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

/* Rows of a shard that a kernel may take as one array, one after the other. */
static bool is_one_run(Tensor shard, Range cols) {
    return range_size(cols) == shard.cols && shard.ld == shard.cols;
}

void ffn_pair_activate(const Ffn *ffn, Range rows, Range cols, int shard, const FfnSaved *saved,
                       void (*kernel)(const Branches *branches, int64_t n, const real *g,
                                      const real *u, real *h)) {
    Tensor gate = saved->gate.shard[shard], up = saved->up.shard[shard];
    Tensor hidden = saved->hidden.shard[shard];
    int64_t step = is_one_run(hidden, cols) ? range_size(rows) : 1;
    for (int64_t t = rows.begin; t < rows.end; t += step)
        kernel(&ffn->config.branches, step * range_size(cols), tensor_row(gate, t) + cols.begin,
               tensor_row(up, t) + cols.begin, tensor_row(hidden, t) + cols.begin);
}

void ffn_pair_differentiate(const Ffn *ffn, Range rows, Range cols, int shard,
                            const FfnSaved *saved,
                            void (*kernel)(const Branches *branches, int64_t n, const real *g,
                                           const real *u, const real *dh, real *dg, real *du)) {
    Tensor hidden = saved->hidden.shard[shard];
    int64_t step = is_one_run(hidden, cols) ? range_size(rows) : 1;
    for (int64_t t = rows.begin; t < rows.end; t += step) {
        real *gate = tensor_row(saved->gate.shard[shard], t) + cols.begin;
        real *up = tensor_row(saved->up.shard[shard], t) + cols.begin;
        kernel(&ffn->config.branches, step * range_size(cols), gate, up,
               tensor_row(hidden, t) + cols.begin, gate, up);
    }
}
