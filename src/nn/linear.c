#include "nn/linear.h"

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

size_t linear_partials_scratch(LinearSum kind, const Param *weight, int64_t rows) {
    GemmTile tile = gemm_tile(rows, output_cols(kind, weight));
    return (size_t)(SHARD_TREE_DEPTH * tile.rows * tile.cols) * sizeof(real);
}

/* One tile of the output, and what it takes to compute it. */
typedef struct {
    const ParamSet *set;
    LinearSum kind;
    const LinearTerm *terms;
    int count;
    Range rows, cols;
} Tile;

/* Shard s's contribution to the tile: its terms one after another. */
static void tile_leaf(const Tile *tile, int s, real *c, int64_t ldc) {
    for (int i = 0; i < tile->count; i++) {
        Tensor in = tile->terms[i].input->shard[s];
        Tensor w = param_shard(tile->set, tile->terms[i].weight, PARAM_VALUE, s);
        bool forward = tile->kind == LINEAR_ROW_FORWARD;
        const real *b = forward ? tensor_row(w, tile->cols.begin) : w.data + tile->cols.begin;
        gemm_call(&(GemmCall){forward ? GEMM_NT : GEMM_NN, range_size(tile->rows),
                              range_size(tile->cols), in.cols, tensor_row(in, tile->rows.begin),
                              in.ld, b, w.ld, 1, i > 0, c, ldc});
    }
}

/* Node [begin, end) of the tree into c; temporaries come from the scratch of the levels below. */
static void tile_node(const Tile *tile, int begin, int end, real *c, int64_t ldc, real *scratch) {
    if (end - begin == 1) {
        tile_leaf(tile, begin, c, ldc);
        return;
    }
    int middle = tree_split(begin, end);
    int64_t rows = range_size(tile->rows), cols = range_size(tile->cols);
    tile_node(tile, begin, middle, c, ldc, scratch);
    tile_node(tile, middle, end, scratch, cols, scratch + rows * cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) c[r * ldc + j] += scratch[r * cols + j];
}

void linear_partials(const Workspace *space, const ParamSet *set, LinearSum kind,
                     const LinearTerm *terms, int count, const Partials *y) {
    if (y->count == 0) return;
    int64_t rows = y->sum[0].rows, cols = output_cols(kind, terms[0].weight);
    GemmTile size = gemm_tile(rows, cols);
    int64_t across = (cols + size.cols - 1) / size.cols, down = (rows + size.rows - 1) / size.rows;
#pragma omp parallel for num_threads(space->threads) schedule(dynamic, 1)
    for (int64_t item = 0; item < across * down * y->count; item++) {
        int part = (int)(item / (across * down));
        int64_t r = item / across % down * size.rows, c = item % across * size.cols;
        Tile tile = {set,
                     kind,
                     terms,
                     count,
                     {r, r + size.rows < rows ? r + size.rows : rows},
                     {c, c + size.cols < cols ? c + size.cols : cols}};
        Tensor sum = y->sum[part];
        tile_node(&tile, (int)y->subtree[part].begin, (int)y->subtree[part].end,
                  tensor_row(sum, r) + c, sum.ld, workspace_scratch(space, omp_get_thread_num()));
    }
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
