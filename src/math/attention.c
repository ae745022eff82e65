/* With S = scale Q K^T (masked) and P = softmax(S), for one head (Dao et al. 2022, appendix B.2):
 *
 *     O = P V
 *
 * Queries go by panels of as many columns as a micro-tile has: S^T [keys, panel] = K Q^T comes out
 * as the right operand of O^T [hd, panel] = V^T P^T, and the panel's keys end where its last query
 * does. K and V are packed once for all heads of the group. */
#include "math/attention.h"

#include "math/attention_panel.h"
#include "math/lanes.h"

#include <math.h>

/* Scratch of forward. */
typedef struct {
    const GemmKernel *kernel;
    real *keys;   /* panels [hd, rows] of K */
    real *values; /* panels [L, rows] of V^T */
    real *query;  /* panel [hd, cols] of Q^T */
    real *score;  /* [L, cols] */
    real *out;    /* [hd, cols] */
    real *turned; /* [cols, hd] */
    double *lanes;
} Forward;

static void forward_take(const AttentionShape *shape, Arena *arena, Forward *forward) {
    int64_t length = shape->length, hd = shape->head_dim;
    *forward = (Forward){.kernel = gemm_kernel()};
    forward->keys = panels_take(arena, length, hd);
    forward->values = panels_take(arena, length, hd);
    forward->query = panel_take(arena, hd);
    forward->score = panel_take(arena, length);
    forward->out = panel_take(arena, hd);
    forward->turned = panel_take(arena, hd);
    forward->lanes = arena_take(arena, LANES * GEMM_MOST_COLS, sizeof(double));
}

size_t attention_scratch(const AttentionShape *shape) {
    Arena arena;
    Forward forward;
    arena_init(&arena);
    forward_take(shape, &arena, &forward);
    size_t least = attention_backward_scratch(shape);
    return arena.used > least ? arena.used : least;
}

/* Queries from `begin` on, a panel of them. */
static void forward_panel(const AttentionShape *shape, const Forward *forward, Tensor q,
                          int64_t begin, Tensor o, real *lse) {
    const GemmKernel *kernel = forward->kernel;
    int64_t count = size_least(kernel->cols, shape->length - begin), keys = begin + count;
    real largest[GEMM_MOST_COLS], inverse[GEMM_MOST_COLS];
    double sum[GEMM_MOST_COLS];
    kernel->pack_rows(tensor_row(q, begin), q.ld, count, q.cols, kernel->cols, forward->query);
    attention_multiply(kernel, keys, q.cols, q.cols, forward->keys, forward->query, shape->scale,
                       false, forward->score, kernel->cols);
    attention_exp(kernel->cols, keys, begin, forward->score, largest, sum, forward->lanes);
    for (int64_t i = 0; i < count; i++) {
        inverse[i] = (real)(1 / sum[i]);
        lse[begin + i] = (real)((double)largest[i] + log(sum[i]));
    }
    attention_multiply(kernel, q.cols, keys, shape->length, forward->values, forward->score, 1,
                       false, forward->out, kernel->cols);
    Tensor rows = {tensor_row(o, begin), count, o.cols, o.ld};
    attention_turn(kernel, forward->out, q.cols, count, inverse, forward->turned, rows);
}

void attention_forward(const AttentionShape *shape, Tensor q, Tensor k, Tensor v, Tensor o,
                       Tensor lse, void *scratch) {
    Arena arena = {.base = scratch, .capacity = attention_scratch(shape)};
    Forward forward;
    forward_take(shape, &arena, &forward);
    int64_t length = shape->length, hd = shape->head_dim;
    const GemmKernel *kernel = forward.kernel;
    kernel->pack_rows(k.data, k.ld, length, hd, kernel->rows, forward.keys);
    kernel->pack_cols(v.data, v.ld, hd, length, kernel->rows, forward.values);
    for (int head = 0; head < shape->heads; head++) {
        Tensor queries = attention_head(q, head, hd), out = attention_head(o, head, hd);
        for (int64_t begin = 0; begin < length; begin += kernel->cols)
            forward_panel(shape, &forward, queries, begin, out, tensor_row(lse, head));
    }
}
