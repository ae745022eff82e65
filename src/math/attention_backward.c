/* For one head (Dao et al. 2022, appendix B.2):
 *
 *     dV = P^T dO          dP = dO V^T
 *     dS = P * (dP - delta), delta = rowsum(P * dP) = rowsum(O * dO)
 *     dQ = scale dS K      dK = scale dS^T Q
 *
 * Keys go by panels of as many columns as a micro-tile has. A tile of query rows against a panel of
 * keys makes P and dS [rows, panel], which are the right operands of dV^T [hd, panel] = dO^T P and
 * dK^T = Q^T dS as they lie; for dQ a block of keys of dS is packed anew. Queries before a panel's
 * first key do not see it. */
#include "math/attention_panel.h"
#include "math/lanes.h"

#include <string.h>

static int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

/* Of a head: panels of rows are packed tile by tile, those of hd over all of L. */
typedef struct {
    real *rows, *turned; /* panels [hd, kernel->rows] of x; panels [L, kernel->rows] of x^T */
} Packed;

typedef struct {
    const AttentionShape *shape;
    const GemmKernel *kernel;
    int64_t tile;      /* query rows */
    real *key, *value; /* panels [hd, cols] of K^T, V^T */
    real *key_rows;    /* panels [L, cols] of K */
    Packed query, d_out;
    real *dk, *dv; /* panels [hd, cols] of dK^T, dV^T */
    real *dq;      /* [L, dq_cols] */
    int64_t dq_cols;
    real *score, *slope; /* [tile, cols] */
    real *slopes;        /* panels [GEMM_BLOCK, rows] of dS^T: a tile, a block of keys */
    real *delta;         /* [L] */
    real *turned;        /* [cols, hd] */
    const real *lse;
} Backward;

/* Panels of rows begin anew with each tile. */
static real *take_tiles(const AttentionShape *shape, Arena *arena) {
    int64_t tile = attention_tile_rows(shape->length);
    return panels_take(arena, size_parts(shape->length, tile) * (tile + GEMM_MOST_ROWS),
                       shape->head_dim);
}

static void backward_take(const AttentionShape *shape, Arena *arena, Backward *b) {
    int64_t length = shape->length, hd = shape->head_dim;
    *b = (Backward){.shape = shape, .kernel = gemm_kernel()};
    b->tile = attention_tile_rows(length);
    b->dq_cols = size_parts(hd, b->kernel->cols) * b->kernel->cols;
    real **whole[] = {&b->key,          &b->value, &b->key_rows, &b->query.turned,
                      &b->d_out.turned, &b->dk,    &b->dv,       &b->dq};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        *whole[i] = panels_take(arena, length, hd);
    b->query.rows = take_tiles(shape, arena);
    b->d_out.rows = take_tiles(shape, arena);
    b->score = panel_take(arena, b->tile);
    b->slope = panel_take(arena, b->tile);
    b->slopes = panels_take(arena, b->tile, GEMM_BLOCK);
    b->delta = arena_take(arena, length, sizeof(real));
    b->turned = panel_take(arena, hd);
}

size_t attention_backward_scratch(const AttentionShape *shape) {
    Arena arena;
    Backward b;
    arena_init(&arena);
    backward_take(shape, &arena, &b);
    return arena.used;
}

/* The panels of tile `begin` of packed rows. */
static real *tile_panels(const Backward *b, const Packed *packed, int64_t begin) {
    int64_t lines = size_parts(b->tile, b->kernel->rows) * b->kernel->rows;
    return packed->rows + begin / b->tile * lines * b->shape->head_dim;
}

static void pack_head(const Backward *b, Tensor x, const Packed *packed) {
    for (int64_t begin = 0; begin < x.rows; begin += b->tile)
        b->kernel->pack_rows(tensor_row(x, begin), x.ld, size_least(b->tile, x.rows - begin),
                             x.cols, b->kernel->rows, tile_panels(b, packed, begin));
    b->kernel->pack_cols(x.data, x.ld, x.cols, x.rows, b->kernel->rows, packed->turned);
}

/* ---- one tile of queries ---- */

typedef struct {
    int64_t begin, rows; /* of queries */
    int64_t block;       /* the first key of the block */
} Tile;

/* dS of a panel of keys from row `first` on, for dQ. */
static void keep_slopes(const Backward *b, const Tile *tile, int64_t key, int64_t first) {
    const GemmKernel *kernel = b->kernel;
    for (int64_t row = first; row < tile->rows; row += kernel->rows)
        kernel->pack_rows(b->slope + row * kernel->cols, kernel->cols,
                          size_least(tile->rows - row, kernel->rows), kernel->cols, kernel->rows,
                          b->slopes + row * GEMM_BLOCK + (key - tile->block) * kernel->rows);
}

/* The tile against the panel of keys that begins at `key`. */
static void backward_panel(const Backward *b, const Tile *tile, int64_t key) {
    const GemmKernel *kernel = b->kernel;
    int64_t hd = b->shape->head_dim, length = b->shape->length, cols = kernel->cols;
    int64_t skip = most(key - tile->begin, 0); /* rows that see none of the keys */
    int64_t first = skip / kernel->rows * kernel->rows, rows = tile->rows - first;
    attention_multiply(kernel, rows, hd, hd, tile_panels(b, &b->query, tile->begin) + first * hd,
                       b->key + key * hd, b->shape->scale, false, b->score + first * cols, cols);
    attention_multiply(kernel, rows, hd, hd, tile_panels(b, &b->d_out, tile->begin) + first * hd,
                       b->value + key * hd, 1, false, b->slope + first * cols, cols);
    attention_slope(kernel->cols, skip, tile->rows, tile->begin + skip - key + 1,
                    b->lse + tile->begin, b->delta + tile->begin, b->score, b->slope);
    memset(b->slope + first * cols, 0, (size_t)((skip - first) * cols) * sizeof(real));
    int64_t query = (tile->begin + skip) * kernel->rows, k = tile->rows - skip;
    attention_multiply(kernel, hd, k, length, b->d_out.turned + query, b->score + skip * cols, 1,
                       true, b->dv + key * hd, cols);
    attention_multiply(kernel, hd, k, length, b->query.turned + query, b->slope + skip * cols,
                       b->shape->scale, true, b->dk + key * hd, cols);
    keep_slopes(b, tile, key, first);
}

/* dQ of the tile (+)= scale dS K over the block's keys that each row panel sees. */
static void query_gradient(const Backward *b, const Tile *tile) {
    const GemmKernel *kernel = b->kernel;
    for (int64_t row = 0; row < tile->rows; row += kernel->rows) {
        int64_t high = size_least(tile->rows - row, kernel->rows);
        int64_t keys = size_least(tile->begin + row + high - tile->block, GEMM_BLOCK);
        for (int64_t col = 0; col < b->shape->head_dim; col += kernel->cols)
            kernel->multiply((int)high, keys, b->slopes + row * GEMM_BLOCK,
                             b->key_rows + col * b->shape->length + tile->block * kernel->cols,
                             b->shape->scale, tile->block > 0,
                             b->dq + (tile->begin + row) * b->dq_cols + col, b->dq_cols,
                             b->slopes + (row + kernel->rows) * GEMM_BLOCK);
    }
}

static void backward_tile(const Backward *b, const Tile *tile) {
    int64_t end = size_least(tile->block + GEMM_BLOCK, tile->begin + tile->rows);
    for (int64_t key = tile->block; key < end; key += b->kernel->cols) backward_panel(b, tile, key);
    query_gradient(b, tile);
}

static void backward_head(Backward *b, Tensor q, Tensor o, const real *lse, Tensor d_o, Tensor dq) {
    int64_t length = q.rows;
    pack_head(b, q, &b->query);
    pack_head(b, d_o, &b->d_out);
    b->lse = lse;
    for (int64_t t = 0; t < length; t++)
        b->delta[t] = (real)lanes_dot(o.cols, tensor_row(o, t), tensor_row(d_o, t));
    for (int64_t block = 0; block < length; block += GEMM_BLOCK)
        for (int64_t begin = block; begin < length; begin += b->tile)
            backward_tile(b, &(Tile){begin, size_least(b->tile, length - begin), block});
    for (int64_t t = 0; t < length; t++)
        memcpy(tensor_row(dq, t), b->dq + t * b->dq_cols, (size_t)dq.cols * sizeof(real));
}

/* x [L, hd] = the panels [hd, cols] of x^T. */
static void write_keys(const Backward *b, const real *panels, Tensor x) {
    for (int64_t key = 0; key < x.rows; key += b->kernel->cols) {
        int64_t count = size_least(b->kernel->cols, x.rows - key);
        Tensor rows = {tensor_row(x, key), count, x.cols, x.ld};
        attention_turn(b->kernel, panels + key * x.cols, x.cols, count, NULL, b->turned, rows);
    }
}

void attention_backward(const AttentionShape *shape, Tensor q, Tensor k, Tensor v, Tensor o,
                        Tensor lse, Tensor d_o, Tensor dq, Tensor dk, Tensor dv, void *scratch) {
    Arena arena = {.base = scratch, .capacity = attention_scratch(shape)};
    Backward b;
    backward_take(shape, &arena, &b);
    const GemmKernel *kernel = b.kernel;
    int64_t length = shape->length, hd = shape->head_dim;
    size_t bytes = (size_t)(size_parts(length, kernel->cols) * kernel->cols * hd) * sizeof(real);
    kernel->pack_rows(k.data, k.ld, length, hd, kernel->cols, b.key);
    kernel->pack_rows(v.data, v.ld, length, hd, kernel->cols, b.value);
    kernel->pack_cols(k.data, k.ld, hd, length, kernel->cols, b.key_rows);
    memset(b.dk, 0, bytes);
    memset(b.dv, 0, bytes);
    for (int head = 0; head < shape->heads; head++)
        backward_head(&b, attention_head(q, head, hd), attention_head(o, head, hd),
                      tensor_row(lse, head), attention_head(d_o, head, hd),
                      attention_head(dq, head, hd));
    write_keys(&b, b.dk, dk);
    write_keys(&b, b.dv, dv);
}
