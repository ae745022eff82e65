#include "nn/linear.h"

#include "math/gemm_kernel.h"

#include <omp.h>

/* The product of one shard: w is the shard of the weight or of its gradient, `whole` the activation
 * [T, D] that isn't cut, `cut` this shard's part of the one that is. */
typedef GemmCall MakeCall(Tensor w, Tensor whole, Tensor cut);

static int add_shards(GemmList *list, const ParamSet *set, const Param *weight, ParamRole role,
                      Tensor whole, const Sharded *cut, MakeCall *make) {
    int status = 0;
    for (int s = (int)cut->owned.begin; s < cut->owned.end && !status; s++) {
        GemmCall call = make(param_shard(set, weight, role, s), whole, cut->shard[s]);
        status = gemm_list_add(list, &call);
    }
    return status;
}

static GemmCall column_forward(Tensor w, Tensor x, Tensor y) {
    return (GemmCall){GEMM_NT, x.rows, w.rows, w.cols, x.data, x.ld,
                      w.data,  w.ld,   1,      0,      y.data, y.ld};
}

int linear_column_forward(GemmList *list, const ParamSet *set, const Param *weight, Tensor x,
                          const Sharded *y) {
    return add_shards(list, set, weight, PARAM_VALUE, x, y, column_forward);
}

int linear_column_forward_pairs(GemmList *list, const ParamSet *set, const Param *const weight[2],
                                Tensor x, const Sharded *const y[2]) {
    Range owned = y[0]->owned;
    int status = 0;
    list->pairs = true;
    for (int64_t i = 2 * owned.begin; i < 2 * owned.end && !status; i++) {
        int s = (int)(i / 2);
        GemmCall call =
            column_forward(param_shard(set, weight[i % 2], PARAM_VALUE, s), x, y[i % 2]->shard[s]);
        status = gemm_list_add(list, &call);
    }
    return status;
}

static GemmCall column_gradient(Tensor dw, Tensor x, Tensor dy) {
    return (GemmCall){GEMM_TN, dw.rows, dw.cols, x.rows, dy.data, dy.ld,
                      x.data,  x.ld,    1,       1,      dw.data, dw.ld};
}

int linear_column_gradient(GemmList *list, const ParamSet *set, const Param *weight,
                           const Sharded *dy, Tensor x) {
    return add_shards(list, set, weight, PARAM_GRADIENT, x, dy, column_gradient);
}

static GemmCall row_gradient(Tensor dw, Tensor dy, Tensor h) {
    return (GemmCall){GEMM_TN, dw.rows, dw.cols, dy.rows, dy.data, dy.ld,
                      h.data,  h.ld,    1,       1,       dw.data, dw.ld};
}

int linear_row_gradient(GemmList *list, const ParamSet *set, const Param *weight, Tensor dy,
                        const Sharded *h) {
    return add_shards(list, set, weight, PARAM_GRADIENT, dy, h, row_gradient);
}

static GemmCall row_input_gradient(Tensor w, Tensor dy, Tensor dh) {
    return (GemmCall){GEMM_NN, dy.rows, w.cols, w.rows, dy.data, dy.ld,
                      w.data,  w.ld,    1,      0,      dh.data, dh.ld};
}

int linear_row_input_gradient(GemmList *list, const ParamSet *set, const Param *weight, Tensor dy,
                              const Sharded *dh) {
    return add_shards(list, set, weight, PARAM_VALUE, dy, dh, row_input_gradient);
}

static int64_t output_cols(LinearSum kind, const Param *weight) {
    return kind == LINEAR_ROW_FORWARD ? weight->rows : weight->cols;
}

/* What is computed of the output at a time; fewer rows where threads would have nothing to do. */
enum { TILE_ROWS = 1024, TILE_COLS = 1024, LEAST_ROWS = 64 };

/* The levels of a tree over so many leaves, the root's apart. */
static int levels_below(int leaves) {
    int levels = 0;
    while (1 << levels < leaves) levels++;
    return levels;
}

size_t linear_partials_scratch(LinearSum kind, const Param *weight, int64_t rows) {
    int64_t cols = output_cols(kind, weight);
    int64_t size = (rows < TILE_ROWS ? rows : TILE_ROWS) * (cols < TILE_COLS ? cols : TILE_COLS);
    return gemm_scratch() + (size_t)(levels_below(weight->axis.shards) * size) * sizeof(real);
}

/* One tile of the output, and what it takes to compute it. */
typedef struct {
    const ParamSet *set;
    LinearSum kind;
    const LinearTerm *terms;
    int count;
    Range rows, cols;
    void *products;           /* scratch */
    const Epilogue *epilogue; /* or NULL */
    const Stopwatch *watch;
    StopwatchAside *aside; /* what the epilogue takes */
} Tile;

/* Shard s's contribution to the tile, its terms one after another, into c or added to it. */
static void tile_leaf(const Tile *tile, int s, bool add, real *c, int64_t ldc) {
    for (int i = 0; i < tile->count; i++) {
        Tensor in = tile->terms[i].input->shard[s];
        Tensor w = param_shard(tile->set, tile->terms[i].weight, PARAM_VALUE, s);
        bool forward = tile->kind == LINEAR_ROW_FORWARD;
        const real *b = forward ? tensor_row(w, tile->cols.begin) : w.data + tile->cols.begin;
        gemm_call(&(GemmCall){forward ? GEMM_NT : GEMM_NN, range_size(tile->rows),
                              range_size(tile->cols), in.cols, tensor_row(in, tile->rows.begin),
                              in.ld, b, w.ld, 1, add || i > 0, c, ldc},
                  tile->products);
    }
}

/* Whether the shard's contribution is added to c in one piece, as a node's right side is. */
static bool is_one_sum(const Tile *tile, int s) {
    return tile->count == 1 && tile->terms[0].input->shard[s].cols <= GEMM_BLOCK;
}

/* Node [begin, end) of the tree into c; temporaries come from the scratch of the levels below. */
static void tile_node(const Tile *tile, int begin, int end, real *c, int64_t ldc, real *scratch) {
    if (end - begin == 1) {
        tile_leaf(tile, begin, false, c, ldc);
        return;
    }
    int middle = tree_split(begin, end);
    if (end - middle == 1 && is_one_sum(tile, middle)) {
        tile_node(tile, begin, middle, c, ldc, scratch);
        tile_leaf(tile, middle, true, c, ldc);
        return;
    }
    int64_t rows = range_size(tile->rows), cols = range_size(tile->cols);
    tile_node(tile, begin, middle, c, ldc, scratch);
    tile_node(tile, middle, end, scratch, cols, scratch + rows * cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) c[r * ldc + j] += scratch[r * cols + j];
}

/* What is done with the whole sum, c. */
static void tile_finish(const Tile *tile, real *c, int64_t ldc) {
    if (!tile->epilogue) return;
    double since = stopwatch_aside(tile->watch);
    for (int64_t t = tile->rows.begin; t < tile->rows.end; t++, c += ldc)
        tile->epilogue->finish(tile->epilogue->context, t, tile->cols, c);
    stopwatch_add(tile->watch, tile->aside, since);
}

void linear_partials(const Workspace *space, const ParamSet *set, LinearSum kind,
                     const LinearTerm *terms, int count, const Partials *y) {
    if (y->count == 0) return;
    stopwatch_begin_products(space->stopwatch);
    int64_t rows = y->sum[0].rows, cols = output_cols(kind, terms[0].weight);
    int64_t across = (cols + TILE_COLS - 1) / TILE_COLS, down = (rows + TILE_ROWS - 1) / TILE_ROWS;
    StopwatchAside aside = {0};
    while (down * across * y->count < 2 * space->threads && down * LEAST_ROWS < rows) down++;
#pragma omp parallel for num_threads(space->threads) schedule(dynamic, 1)
    for (int64_t item = 0; item < across * down * y->count; item++) {
        int part = (int)(item / (across * down)), thread = omp_get_thread_num();
        Tile tile = {set,
                     kind,
                     terms,
                     count,
                     shard_range(rows, down, item / across % down),
                     shard_range(cols, across, item % across),
                     workspace_scratch(space, thread),
                     y->epilogue,
                     space->stopwatch,
                     &aside};
        Tensor sum = y->sum[part];
        real *c = tensor_row(sum, tile.rows.begin) + tile.cols.begin;
        tile_node(&tile, (int)y->subtree[part].begin, (int)y->subtree[part].end, c, sum.ld,
                  (real *)(void *)((char *)tile.products + gemm_scratch()));
        tile_finish(&tile, c, sum.ld);
    }
    stopwatch_end(space->stopwatch);
    if (y->epilogue)
        stopwatch_move(space->stopwatch, &aside, space->threads,
                       stopwatch_products(space->stopwatch), y->epilogue->part);
}

void linear_add_bias(const Workspace *space, const ParamSet *set, const Param *bias,
                     const Sharded *y) {
    for (int s = (int)y->owned.begin; s < y->owned.end; s++) {
        const real *b = param_shard(set, bias, PARAM_VALUE, s).data;
        Tensor out = y->shard[s];
#pragma omp parallel for num_threads(space->threads) schedule(static)
        for (int64_t t = 0; t < out.rows; t++) {
            real *row = tensor_row(out, t);
            for (int64_t j = 0; j < out.cols; j++) row[j] += b[j];
        }
    }
}

void linear_bias_gradient(Workspace *space, const ParamSet *set, const Param *bias,
                          const Sharded *dy) {
    for (int s = (int)dy->owned.begin; s < dy->owned.end; s++)
        workspace_add_row_sum(space, dy->shard[s], param_shard(set, bias, PARAM_GRADIENT, s).data);
}
