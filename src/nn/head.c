#include "nn/head.h"

#include "math/norm.h"
#include "nn/head_losses.h"
#include "nn/linear.h"
#include "nn/observer.h"
#include "nn/residual.h"

#include <string.h>

static const LossKind *const losses[] = {
    [LOSS_CROSS_ENTROPY] = &loss_cross_entropy, [LOSS_SQUARED_ERROR] = &loss_squared_error};

enum { CHUNK_LOGITS = 1 << 22, CHUNK_LEAST_ROWS = 128 };

/* As few chunks as keep a chunk's logits within CHUNK_LOGITS, unless that would leave it too few
 * rows. */
static int chunk_count(int64_t rows, int64_t outputs) {
    int64_t chunk =
        CHUNK_LOGITS / outputs > CHUNK_LEAST_ROWS ? CHUNK_LOGITS / outputs : CHUNK_LEAST_ROWS;
    return (int)((rows + chunk - 1) / chunk);
}

static int64_t chunk_rows(const Head *head) {
    return (head->space->rows + head->chunks - 1) / head->chunks;
}

static int declare_output(Head *head, const HeadSpec *spec) {
    int64_t outputs = spec->axis->units;
    head->weight = spec->tied;
    head->bias = -1;
    int status = 0;
    if (spec->weight)
        status = params_declare(head->set,
                                &(ParamSpec){.name = spec->weight,
                                             .rank = 2,
                                             .rows = outputs,
                                             .cols = spec->d_model,
                                             .split = SPLIT_ROWS,
                                             .axis = spec->axis,
                                             .unit_size = 1,
                                             .init = INIT_NORMAL,
                                             .init_std = spec->init_std,
                                             .init_key = spec->init_key,
                                             .decay = true},
                                &head->weight);
    if (!status && spec->bias)
        status = params_declare(head->set,
                                &(ParamSpec){.name = spec->bias,
                                             .rank = 1,
                                             .rows = 1,
                                             .cols = outputs,
                                             .split = SPLIT_COLS,
                                             .axis = spec->axis,
                                             .unit_size = 1,
                                             .init = INIT_ZERO},
                                &head->bias);
    return status;
}

int head_declare(Head *head, ParamSet *set, Workspace *space, const HeadSpec *spec) {
    int64_t outputs = spec->axis->units, d = spec->d_model;
    *head = (Head){.set = set,
                   .space = space,
                   .loss = losses[spec->loss],
                   .axis = *spec->axis,
                   .d_model = d,
                   .norm_eps = spec->norm_eps,
                   .chunks = chunk_count(space->rows, outputs)};
    int status = params_declare(
        set,
        &(ParamSpec){
            .name = "model.norm.weight", .rank = 1, .rows = 1, .cols = d, .init = INIT_ONE},
        &head->norm);
    if (!status) status = declare_output(head, spec);
    if (status) return status;
    workspace_need(space, 0, head->bias >= 0 && outputs > d ? outputs : d);
    linear_need(space, set, LINEAR_COLUMN_BACKWARD, &head->weight, 1);
    return 0;
}

void head_take(Head *head, Arena *arena, int rank) {
    int64_t rows = head->space->rows, chunk = chunk_rows(head), d = head->d_model;
    int64_t own = range_size(head->space->stream.own);
    sharded_take(&head->logits, arena, &head->axis, rank, 1, chunk);
    if (!head->space->stream.cut)
        head->normed = tensor_view(arena_take(arena, rows * d, sizeof(real)), rows, d);
    head->gradient = tensor_view(arena_take(arena, own * d, sizeof(real)), own, d);
    head->scale = arena_take(arena, own, sizeof(real));
    head->row_loss = arena_take(arena, rows, sizeof(double));
    head->sums = arena_take(arena, chunk, sizeof(double));
    head->shard_sums = arena_take(arena, (SHARD_MAX + TREE_MAX_SUBTREES) * chunk, sizeof(double));
    head->loss->take(head, arena, chunk);
}

static Tensor rows_of(Tensor x, Range rows) {
    return (Tensor){tensor_row(x, rows.begin), range_size(rows), x.cols, x.ld};
}

/* The logits buffer with as many rows as this chunk has. */
static Sharded chunk_logits(const Head *head, int64_t rows) {
    Sharded logits = head->logits;
    for (int s = (int)logits.owned.begin; s < logits.owned.end; s++) logits.shard[s].rows = rows;
    return logits;
}

static int project(Head *head, Tensor x, const Sharded *logits) {
    int status = linear_column_forward(&head->space->products, head->set,
                                       &head->set->param[head->weight], x, logits);
    if (status) return status;
    workspace_multiply(head->space);
    if (head->bias >= 0)
        linear_add_bias(head->space, head->set, &head->set->param[head->bias], logits);
    return 0;
}

/* Tree over shards [begin, end) of one row's sums, which lie `stride` apart. */
static double shard_tree(const double *sums, int64_t stride, int begin, int end) {
    double leaf[SHARD_MAX];
    for (int s = begin; s < end; s++) leaf[s - begin] = sums[s * stride];
    return tree_sum_doubles(leaf, end - begin);
}

int head_sum_shards(Head *head, int64_t rows) {
    double *shard_sums = head->shard_sums, *partial = shard_sums + SHARD_MAX * rows;
    Range subtree[TREE_MAX_SUBTREES];
    int parts = tree_subtrees(head->axis.shards, head->logits.owned, subtree);
#pragma omp parallel for num_threads(head->space->threads) schedule(static)
    for (int64_t t = 0; t < rows; t++)
        for (int i = 0; i < parts; i++)
            partial[i * rows + t] =
                shard_tree(shard_sums + t, rows, (int)subtree[i].begin, (int)subtree[i].end);
    return exchange_sum_doubles(head->exchange, partial, rows, head->sums);
}

/* Gradients of one chunk: logits in place, then those of weight and bias, then partial sums of the
 * normed input's. */
static int chunk_backward(Head *head, Tensor x, const HeadChunk *chunk, double scale,
                          const Partials *dx) {
    head->loss->gradient(head, chunk, scale);
    const Param *weight = &head->set->param[head->weight];
    int status =
        linear_column_gradient(&head->space->products, head->set, weight, &chunk->logits, x);
    if (status) return status;
    workspace_multiply(head->space);
    if (head->bias >= 0)
        linear_bias_gradient(head->space, head->set, &head->set->param[head->bias], &chunk->logits);
    LinearTerm term = {weight, &chunk->logits};
    linear_partials(head->space, head->set, LINEAR_COLUMN_BACKWARD, &term, 1, dx);
    return 0;
}

static int chunk_loss(Head *head, Range rows, const Microbatch *batch, double scale,
                      const Partials *dx, int64_t *hits) {
    Tensor x = rows_of(head->normed, rows);
    HeadChunk chunk = {rows, chunk_logits(head, x.rows), batch};
    int status = project(head, x, &chunk.logits);
    if (status) return status;
    observe_cut_rows(head->space->observer, "logits", rows, head->space->rows, &head->axis,
                     &chunk.logits);
    status = head->loss->losses(head, &chunk, hits);
    if (status || !dx) return status;
    Partials part = *dx;
    for (int i = 0; i < part.count; i++) part.sum[i] = rows_of(part.sum[i], rows);
    return chunk_backward(head, x, &chunk, scale, &part);
}

/* Row losses: ascending within a row shard, then up the tree. */
static double sum_rows(const Head *head) {
    double leaf[SHARD_MAX];
    for (int s = 0; s < head->space->row_shards; s++) {
        Range rows = shard_range(head->space->rows, head->space->row_shards, s);
        leaf[s] = 0;
        for (int64_t t = rows.begin; t < rows.end; t++) leaf[s] += head->row_loss[t];
    }
    return tree_sum_doubles(leaf, head->space->row_shards);
}

int head_loss(Head *head, Tensor x, const Microbatch *batch, double scale, Tensor dx, double *loss,
              int64_t *hits) {
    *hits = 0;
    const Param *norm = &head->set->param[head->norm];
    const real *gain = param_shard(head->set, norm, PARAM_VALUE, 0).data;
    const Stream *stream = &head->space->stream;
    gather_begin(stream->inputs);
    residual_norm(head->space, x, gain, head->norm_eps, stream_own(stream, head->normed),
                  head->scale);
    gather_rows(stream->inputs);
    observe_whole(head->space->observer, "norm.final", -1, head->normed);

    Partials part = {.count = 0};
    if (dx.data) part = exchange_begin(head->exchange, head->gradient);
    for (int c = 0; c < head->chunks; c++) {
        Range rows = shard_range(head->space->rows, head->chunks, c);
        int status = chunk_loss(head, rows, batch, scale, dx.data ? &part : NULL, hits);
        if (status) return status;
    }
    *loss = sum_rows(head);
    real shown = (real)*loss;
    observe_whole(head->space->observer, "loss", -1, tensor_view(&shown, 1, 1));
    if (!dx.data) return 0;

    int status = exchange_sum(head->exchange);
    if (status) return status;
    for (int64_t t = 0; t < dx.rows; t++)
        memset(tensor_row(dx, t), 0, (size_t)dx.cols * sizeof(real));
    residual_norm_backward(head->space, head->gradient, x, gain, head->scale, dx,
                           param_shard(head->set, norm, PARAM_GRADIENT, 0).data);
    status = head->space->observer ? stream_finish_sums(&head->space->stream) : 0;
    if (status) return status;
    observe_parameter(head->space->observer, -1, head->set, head->weight);
    observe_parameter(head->space->observer, -1, head->set, head->bias);
    observe_parameter(head->space->observer, -1, head->set, head->norm);
    observe_stream_gradient(head->space, "head.input", -1, dx);
    return 0;
}

int head_logits(Head *head, Tensor x, int64_t row, double *logits) {
    const real *gain = param_shard(head->set, &head->set->param[head->norm], PARAM_VALUE, 0).data;
    const Stream *stream = &head->space->stream;
    int64_t here = row - stream->own.begin;
    gather_begin(stream->inputs);
    if (range_has(stream->own, row))
        norm_forward((Range){here, here + 1}, x, gain, head->norm_eps,
                     stream_own(stream, head->normed), head->scale);
    gather_rows(stream->inputs);
    Tensor one = rows_of(head->normed, (Range){row, row + 1});
    Sharded chunk = chunk_logits(head, 1);
    int status = project(head, one, &chunk);
    if (status) return status;
    memset(logits, 0, (size_t)head->axis.units * sizeof(double));
    for (int s = (int)chunk.owned.begin; s < chunk.owned.end; s++) {
        Range cut = axis_units(&head->axis, s);
        for (int64_t c = cut.begin; c < cut.end; c++)
            logits[c] = (double)chunk.shard[s].data[c - cut.begin];
    }
    comm_assemble(head->grid, GROUP_TENSOR, logits, head->axis.units);
    return 0;
}
