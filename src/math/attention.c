/* With S = scale Q K^T (masked) and P = softmax(S), for one head (Dao et al. 2022, appendix B.2):
 *
 *     O = P V              dV = P^T dO         dP = dO V^T
 *     dS = P * (dP - delta), delta = rowsum(P * dP) = rowsum(O * dO)
 *     dQ = scale dS K      dK = scale dS^T Q
 *
 * A tile of query rows [begin, end) sees the keys [0, end); what lies above the diagonal inside it
 * is masked. */
#include "math/attention.h"

#include "math/elementary.h"
#include "math/gemm.h"
#include "math/lanes.h"

#include <math.h>
#include <string.h>

/* Query rows of a tile. */
static int64_t tile_rows(int64_t length) { return length < 512 ? 64 : 128; }

typedef struct {
    void *products;      /* scratch */
    real *score, *slope; /* [rows, keys] */
    int64_t begin, rows, keys;
} Tile;

static Tile tile_at(const AttentionShape *shape, int64_t begin, void *scratch) {
    int64_t most = tile_rows(shape->length), rest = shape->length - begin;
    Tile tile = {.begin = begin, .rows = rest < most ? rest : most};
    tile.keys = begin + tile.rows;
    tile.products = scratch;
    tile.score = (real *)(void *)((char *)scratch + gemm_scratch());
    tile.slope = tile.score + most * shape->length;
    return tile;
}

size_t attention_scratch(const AttentionShape *shape) {
    return gemm_scratch() + 2 * (size_t)(tile_rows(shape->length) * shape->length) * sizeof(real);
}

/* The tile's rows of one head. */
static Tensor head_rows(const AttentionShape *shape, Tensor x, int head, const Tile *tile) {
    return (Tensor){tensor_row(x, tile->begin) + head * shape->head_dim, tile->rows,
                    shape->head_dim, x.ld};
}

/* c[rows, keys] = alpha a[rows, hd] b[keys, hd]^T */
static void rows_by_keys(const Tile *tile, real alpha, Tensor a, Tensor b, real *c) {
    gemm_call(&(GemmCall){GEMM_NT, tile->rows, tile->keys, a.cols, a.data, a.ld, b.data, b.ld,
                          alpha, 0, c, tile->keys},
              tile->products);
}

/* c[rows, hd] = alpha a[rows, keys] b[keys, hd] */
static void over_keys(const Tile *tile, real alpha, const real *a, Tensor b, Tensor c) {
    gemm_call(&(GemmCall){GEMM_NN, tile->rows, c.cols, tile->keys, a, tile->keys, b.data, b.ld,
                          alpha, 0, c.data, c.ld},
              tile->products);
}

/* c[keys, hd] += alpha a[rows, keys]^T b[rows, hd] */
static void over_rows(const Tile *tile, real alpha, const real *a, Tensor b, Tensor c) {
    gemm_call(&(GemmCall){GEMM_TN, tile->keys, c.cols, tile->rows, a, tile->keys, b.data, b.ld,
                          alpha, 1, c.data, c.ld},
              tile->products);
}

/* Row i: scores become exp(score - largest), 0 where masked. Sets the largest, returns the sum. */
static double exp_row(const Tile *tile, int64_t i, real *largest) {
    real *row = tile->score + i * tile->keys;
    int64_t seen = tile->begin + i + 1;
    *largest = lanes_max(seen, row, row[0]);
    elementary_exp(seen, row, *largest, row);
    memset(row + seen, 0, (size_t)(tile->keys - seen) * sizeof *row);
    return lanes_sum(seen, row);
}

static void forward_tile(const AttentionShape *shape, const Tile *tile, int head, Tensor q,
                         Tensor k, Tensor v, Tensor o, real *lse) {
    Tensor out = head_rows(shape, o, head, tile);
    real *inverse = tile->slope; /* [rows], unused otherwise in forward */
    rows_by_keys(tile, shape->scale, head_rows(shape, q, head, tile), k, tile->score);
    for (int64_t i = 0; i < tile->rows; i++) {
        real largest;
        double sum = exp_row(tile, i, &largest);
        inverse[i] = (real)(1 / sum);
        lse[tile->begin + i] = (real)((double)largest + log(sum));
    }
    over_keys(tile, 1, tile->score, v, out);
    for (int64_t i = 0; i < tile->rows; i++) {
        real *row = tensor_row(out, i);
        for (int64_t c = 0; c < out.cols; c++) row[c] *= inverse[i];
    }
}

void attention_forward(const AttentionShape *shape, Tensor q, Tensor k, Tensor v, Tensor o,
                       Tensor lse, void *scratch) {
    for (int head = 0; head < shape->heads; head++) {
        for (int64_t begin = 0; begin < shape->length; begin += tile_rows(shape->length)) {
            Tile tile = tile_at(shape, begin, scratch);
            forward_tile(shape, &tile, head, q, k, v, o, tensor_row(lse, head));
        }
    }
}

/* Row i: score becomes P, slope (which holds dP) becomes dS; both 0 where masked. */
static void backward_row(const Tile *tile, int64_t i, real lse, real delta) {
    real *p = tile->score + i * tile->keys, *ds = tile->slope + i * tile->keys;
    int64_t seen = tile->begin + i + 1;
    size_t masked = (size_t)(tile->keys - seen) * sizeof *p;
#pragma omp simd
    for (int64_t j = 0; j < seen; j++) {
        p[j] = elementary_exp_times(1, p[j] - lse, 0);
        ds[j] = p[j] * (ds[j] - delta);
    }
    memset(p + seen, 0, masked);
    memset(ds + seen, 0, masked);
}

void attention_backward(const AttentionShape *shape, Tensor q, Tensor k, Tensor v, Tensor o,
                        Tensor lse, Tensor d_o, Tensor dq, Tensor dk, Tensor dv, void *scratch) {
    size_t row_bytes = (size_t)shape->head_dim * sizeof(real);
    for (int64_t t = 0; t < shape->length; t++) {
        memset(tensor_row(dk, t), 0, row_bytes);
        memset(tensor_row(dv, t), 0, row_bytes);
    }
    for (int head = 0; head < shape->heads; head++) {
        for (int64_t begin = 0; begin < shape->length; begin += tile_rows(shape->length)) {
            Tile tile = tile_at(shape, begin, scratch);
            Tensor queries = head_rows(shape, q, head, &tile);
            Tensor out = head_rows(shape, o, head, &tile);
            Tensor d_out = head_rows(shape, d_o, head, &tile);
            rows_by_keys(&tile, shape->scale, queries, k, tile.score);
            rows_by_keys(&tile, 1, d_out, v, tile.slope);
            for (int64_t i = 0; i < tile.rows; i++) {
                double delta = lanes_dot(out.cols, tensor_row(out, i), tensor_row(d_out, i));
                backward_row(&tile, i, tensor_row(lse, head)[begin + i], (real)delta);
            }
            over_rows(&tile, 1, tile.score, d_out, dv);
            over_keys(&tile, shape->scale, tile.slope, k, head_rows(shape, dq, head, &tile));
            over_rows(&tile, shape->scale, tile.slope, queries, dk);
        }
    }
}
