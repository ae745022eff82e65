#include "nn/residual.h"

#include "base/fault.h"
#include "math/norm.h"

#include <string.h>

enum { CHUNK_ROWS = 32 }; /* rows that a thread takes at a time */

static int64_t chunk_count(int64_t rows) { return (rows + CHUNK_ROWS - 1) / CHUNK_ROWS; }

static Range chunk_at(int64_t rows, int64_t chunk) {
    int64_t begin = chunk * CHUNK_ROWS, end = begin + CHUNK_ROWS;
    return (Range){begin, end < rows ? end : rows};
}

void residual_norm(const Workspace *space, Tensor x, const real *gain, double eps, Tensor y,
                   real *scale) {
    stopwatch_begin(space->stopwatch, STEP_NORM);
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t c = 0; c < chunk_count(x.rows); c++)
        norm_forward(chunk_at(x.rows, c), x, gain, eps, y, scale);
    stopwatch_end(space->stopwatch);
}

void residual_norm_again(const Workspace *space, Tensor x, const real *gain, const real *scale,
                         Tensor y) {
    stopwatch_begin(space->stopwatch, STEP_NORM);
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t c = 0; c < chunk_count(x.rows); c++)
        norm_again(chunk_at(x.rows, c), x, gain, scale, y);
    stopwatch_end(space->stopwatch);
}

/* For tests: the gain's gradient of the first row shard alone. */
static void keep_first_row_shard(Workspace *space, int64_t cols) {
    if (!fault_on("gain-not-reduced")) return;
    memset(space->row_sums + cols, 0,
           (size_t)(space->row_shards - 1) * (size_t)cols * sizeof(double));
}

/* Where row shard s lies in what this rank has of the stream. */
static Range own_row_shard(const Stream *stream, int s) {
    Range rows = axis_units(&stream->rows, s);
    return (Range){rows.begin - stream->own.begin, rows.end - stream->own.begin};
}

/* row_sums [row_shards, cols] of the own shards, to the gradient of what all ranks hold. */
static void add_stream_sums(Workspace *space, int64_t cols, real *gradient) {
    if (space->stream.cut)
        stream_keep_sums(&space->stream, space->row_sums, gradient, space->threads);
    else
        workspace_reduce_row_sums(space, cols, gradient);
}

void residual_norm_backward(Workspace *space, Tensor dy, Tensor x, const real *gain,
                            const real *scale, Tensor dx, real *gain_gradient) {
    stopwatch_begin(space->stopwatch, STEP_NORM);
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t s = space->stream.own_shards.begin; s < space->stream.own_shards.end; s++)
        norm_backward(own_row_shard(&space->stream, (int)s), dy, x, gain, scale, dx,
                      space->row_sums + s * x.cols);
    keep_first_row_shard(space, x.cols);
    add_stream_sums(space, x.cols, gain_gradient);
    stopwatch_end(space->stopwatch);
}

/* ---- the end of a block ---- */

/* The three operations apart. */
static void add_bias(const ResidualEnd *end, Range rows) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        real *y = tensor_row(end->y, t);
        for (int64_t j = 0; j < end->y.cols; j++) y[j] += end->bias[j];
    }
}

static void drop(const ResidualEnd *end, Range rows) {
    dropout_apply(&end->dropout, rows, 0, end->y, end->y);
}

static void add(const ResidualEnd *end, Range rows) {
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *x = tensor_row(end->x, t), *y = tensor_row(end->y, t);
        real *out = tensor_row(end->out, t);
        for (int64_t j = 0; j < end->y.cols; j++) out[j] = x[j] + y[j];
    }
}

/* And in one. */
static void add_all(const ResidualEnd *end, Range rows) {
    dropout_add(&end->dropout, rows, 0, end->bias, end->x, end->y, end->out);
}

static void add_pass(const ResidualEnd *end, void (*operation)(const ResidualEnd *, Range)) {
#pragma omp parallel for num_threads(end->space->threads) schedule(static)
    for (int64_t c = 0; c < chunk_count(end->x.rows); c++) operation(end, chunk_at(end->x.rows, c));
}

static void add_whole(const ResidualEnd *end) {
    stopwatch_begin(end->space->stopwatch, STEP_RESIDUAL);
    if (end->space->fusion == FUSION_EAGER) {
        if (end->bias) add_pass(end, add_bias);
        if (end->dropout.probability > 0) add_pass(end, drop);
        add_pass(end, add);
    } else {
        add_pass(end, add_all);
    }
    stopwatch_end(end->space->stopwatch);
}

void residual_add(const Workspace *space, Tensor x, Tensor y, const real *bias,
                  const Dropout *dropout, Tensor out) {
    add_whole(&(ResidualEnd){
        .space = space, .x = x, .y = y, .out = out, .bias = bias, .dropout = *dropout});
}

/* A piece of a row, alone. */
static void finish(void *context, int64_t row, Range cols, real *sum) {
    const ResidualEnd *end = context;
    const real *bias = fault_on("bias-not-in-tile") ? NULL : end->bias;
    Dropout dropout = end->dropout;
    dropout.row_offset += (uint32_t)row;
    Tensor x = tensor_view(tensor_row(end->x, row) + cols.begin, 1, range_size(cols));
    Tensor y = tensor_view(sum, 1, range_size(cols));
    dropout_add(&dropout, (Range){0, 1}, cols.begin, bias ? bias + cols.begin : NULL, x, y, y);
}

Partials residual_begin(ResidualEnd *end, Exchange *exchange) {
    if (!end->fused) return exchange_begin(exchange, end->y);
    end->epilogue = (Epilogue){finish, end, STEP_RESIDUAL};
    return exchange_begin_with(exchange, end->out, &end->epilogue);
}

void residual_end(const ResidualEnd *end) {
    if (!end->fused) add_whole(end);
}

void residual_add_backward(const Workspace *space, Tensor d, const Dropout *dropout, Tensor dy) {
    stopwatch_begin(space->stopwatch, STEP_RESIDUAL);
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t c = 0; c < chunk_count(d.rows); c++)
        dropout_apply(dropout, chunk_at(d.rows, c), 0, d, dy);
    stopwatch_end(space->stopwatch);
}

void residual_bias_backward(Workspace *space, Tensor dy, real *gradient) {
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t s = space->stream.own_shards.begin; s < space->stream.own_shards.end; s++)
        rows_sum(own_row_shard(&space->stream, (int)s), dy, space->row_sums + s * dy.cols);
    add_stream_sums(space, dy.cols, gradient);
}

void residual_gather(Grid *grid, Tensor x) {
    if (group_meets(grid, GROUP_TENSOR))
        comm_assemble(grid, GROUP_TENSOR, x.data,
                      ((int64_t)sizeof(real) * x.rows * x.cols + 7) / 8);
}

/* The owned row of the table for a token, or NULL. */
static real *table_row(const ParamSet *set, const Param *table, ParamRole role, int32_t token) {
    for (int s = (int)table->owned.begin; s < table->owned.end; s++)
        if (range_has(table->cut[s], token))
            return tensor_row(param_shard(set, table, role, s), token - table->cut[s].begin);
    return NULL;
}

/* Rows of x [T, D] that are here; of the others, with `clear`, zeros. */
static void look_up(const Workspace *space, const ParamSet *set, const Param *table,
                    const int32_t *tokens, bool clear, Tensor x) {
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int64_t t = 0; t < x.rows; t++) {
        const real *row = table_row(set, table, PARAM_VALUE, tokens[t]);
        if (row)
            memcpy(tensor_row(x, t), row, (size_t)x.cols * sizeof(real));
        else if (clear)
            memset(tensor_row(x, t), 0, (size_t)x.cols * sizeof(real));
    }
}

void residual_embed(const Workspace *space, Grid *grid, const ParamSet *set, const Param *table,
                    const int32_t *tokens, Tensor x) {
    Gather *gather = space->stream.gradients;
    if (space->stream.cut) {
        gather_begin_scatter(gather);
        look_up(space, set, table, tokens, false, gather_whole(gather));
        gather_scatter(gather, x);
    } else {
        look_up(space, set, table, tokens, true, x);
        residual_gather(grid, x);
    }
}

void residual_embed_backward(const Workspace *space, const ParamSet *set, const Param *table,
                             const int32_t *tokens, Tensor dx) {
    int strips = space->threads;
#pragma omp parallel for num_threads(space->threads) schedule(static)
    for (int strip = 0; strip < strips; strip++) {
        Range cols = shard_range(dx.cols, strips, strip);
        for (int64_t t = 0; t < dx.rows; t++) {
            real *sum = table_row(set, table, PARAM_GRADIENT, tokens[t]);
            const real *d = tensor_row(dx, t);
            for (int64_t j = cols.begin; sum && j < cols.end; j++) sum[j] += d[j];
        }
    }
}
