#include "nn/stream.h"

#include "base/fault.h"

#include <assert.h>
#include <string.h>

void stream_init(Stream *stream, int64_t rows, int64_t width, int shards, bool cut, int rank,
                 int ranks) {
    bool really = cut && ranks > 1;
    *stream = (Stream){
        .rows = axis_layout(rows, shards, really ? ranks : 1), .cut = really, .width = width};
    stream->own = axis_owned_units(&stream->rows, really ? rank : 0);
    stream->own_shards = axis_owned(&stream->rows, really ? rank : 0);
}

static int own_subtrees(const Stream *stream, Range subtree[TREE_MAX_SUBTREES]) {
    return tree_subtrees(stream->rows.shards, stream->own_shards, subtree);
}

void stream_take(Stream *stream, Arena *arena, int sums) {
    Range subtree[TREE_MAX_SUBTREES];
    if (!stream->cut) return;
    stream->sums = sums;
    int64_t numbers = sums * stream->width;
    stream->target = arena_take(arena, sums, sizeof(real *));
    stream->partial = arena_take(arena, own_subtrees(stream, subtree) * numbers, sizeof(double));
    stream->total = arena_take(arena, numbers, sizeof(double));
}

GatherSpec stream_gather_spec(const Stream *stream, Reduction reduction, Transport transport,
                              int threads) {
    return (GatherSpec){GROUP_TENSOR, &stream->rows, stream->width, reduction, transport, threads};
}

/* Doubles go by messages; nothing else is summed. */
ExchangeSpec stream_sums_spec(const Stream *stream) {
    return (ExchangeSpec){.group = GROUP_TENSOR,
                          .axis = &stream->rows,
                          .rows = 1,
                          .cols = 1,
                          .transport = TRANSPORT_MESSAGES};
}

int stream_open(Stream *stream, Grid *grid, Reduction reduction, Transport transport, int threads) {
    if (!stream->cut) return 0;
    GatherSpec spec = stream_gather_spec(stream, reduction, transport, threads);
    ExchangeSpec sums = stream_sums_spec(stream);
    int status = gather_open(&stream->inputs, grid, &spec);
    if (!status) status = gather_open(&stream->gradients, grid, &spec);
    if (!status) status = exchange_open(&stream->exchange, grid, &sums);
    return status;
}

void stream_close(Stream *stream) {
    exchange_close(stream->exchange);
    gather_close(stream->gradients);
    gather_close(stream->inputs);
    stream->exchange = NULL;
    stream->gradients = stream->inputs = NULL;
}

size_t stream_bytes(const Stream *stream) {
    if (!stream->cut) return 0;
    return gather_bytes(stream->inputs) + gather_bytes(stream->gradients) +
           exchange_bytes(stream->exchange);
}

Tensor stream_whole(const Stream *stream, Tensor x, int threads) {
    if (!stream->cut) return x;
    Tensor whole = gather_whole(stream->gradients), own = stream_own(stream, whole);
    gather_begin(stream->gradients);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < own.rows; t++)
        memcpy(tensor_row(own, t), tensor_row(x, t), (size_t)own.cols * sizeof(real));
    gather_rows(stream->gradients);
    return whole;
}

void stream_keep_sums(Stream *stream, const double *row_sums, real *gradient, int threads) {
    Range subtree[TREE_MAX_SUBTREES];
    int64_t width = stream->width, numbers = stream->sums * width;
    int parts = own_subtrees(stream, subtree);
    assert(stream->pending < stream->sums);
    double *partial = stream->partial + stream->pending * width;
    stream->target[stream->pending++] = gradient;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < width; c++)
        for (int i = 0; i < parts; i++) {
            double leaf[SHARD_MAX];
            for (int64_t s = subtree[i].begin; s < subtree[i].end; s++)
                leaf[s - subtree[i].begin] = row_sums[s * width + c];
            partial[i * numbers + c] = tree_sum_doubles(leaf, range_size(subtree[i]));
        }
}

/* The partial sums of each subtree one after the other, without the room that isn't used. */
static void close_ranks(const Stream *stream) {
    Range subtree[TREE_MAX_SUBTREES];
    int64_t used = stream->pending * stream->width, numbers = stream->sums * stream->width;
    int parts = own_subtrees(stream, subtree);
    for (int i = 1; i < parts; i++)
        memmove(stream->partial + i * used, stream->partial + i * numbers,
                (size_t)used * sizeof(double));
}

/* For tests: what others have is left out. */
static void sum_alone(const Stream *stream, int64_t used) {
    Range subtree[TREE_MAX_SUBTREES];
    int parts = own_subtrees(stream, subtree);
    if (!fault_on("gain-own-rows")) return;
    for (int64_t e = 0; e < used; e++) {
        stream->total[e] = 0;
        for (int i = 0; i < parts; i++) stream->total[e] += stream->partial[i * used + e];
    }
}

int stream_finish_sums(Stream *stream) {
    if (stream->pending == 0) return 0;
    int64_t used = stream->pending * stream->width;
    close_ranks(stream);
    int status = exchange_sum_doubles(stream->exchange, stream->partial, used, stream->total);
    if (status) return status;
    sum_alone(stream, used);
    for (int i = 0; i < stream->pending; i++)
        for (int64_t c = 0; c < stream->width; c++)
            stream->target[i][c] += (real)stream->total[i * stream->width + c];
    stream->pending = 0;
    return 0;
}
