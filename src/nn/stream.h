/* Which rows of the residual stream [T, D] this rank works on, and the sums over rows for the
 * gradients of what all ranks hold (norm gains, down's bias).
 *
 * The stream isn't cut: every tensor rank holds all rows and computes the same bits. Or it is,
 * under sequence parallelism (Korthikanti et al. 2022, section 4.2.2): between the tensor-parallel
 * blocks each rank has its own rows alone, whole row shards of them; a rank may have none. A block
 * reads all rows, from a Gather, and leaves its own rows of the sum to each rank (exchange.h,
 * own_rows).
 *
 *     stream_init(&stream, ...);      // which rows
 *     stream_take(&stream, &arena);   // memory for sums
 *     stream_open(&stream, ...);      // buffers of all rows; collective
 *     stream_close(&stream);
 *
 * Row sums are formed per row shard in double and go up the tree over row shards, whoever has the
 * rows. Of a cut stream each rank keeps its subtrees' sums until stream_finish_sums, which all
 * ranks call at the end of a microbatch's backward: one collective for all of them. */
#ifndef WEFT_NN_STREAM_H
#define WEFT_NN_STREAM_H

#include "base/memory.h"
#include "comm/gather.h"

typedef struct {
    AxisLayout rows; /* row shards over the tensor ranks, or all on one */
    bool cut;
    Range own, own_shards; /* rows and row shards of this rank */
    int64_t width;         /* D */

    /* Of a cut stream alone: all rows of what a block reads, and of what is handed back (or shown).
     */
    Gather *inputs, *gradients;
    Exchange *exchange; /* over row shards, for the sums */
    int sums, pending;  /* at most, and at the moment */
    real **target;      /* [sums] of [D]: the gradients that the pending sums belong to */
    double *partial;    /* [subtrees, sums * D] */
    double *total;      /* [sums * D] */
} Stream;

/* T rows in at most `shards` row shards; cut over `ranks` tensor ranks, of which this is `rank`, if
 * that is wanted and there are two or more. */
void stream_init(Stream *stream, int64_t rows, int64_t width, int shards, bool cut, int rank,
                 int ranks);
/* Memory for at most `sums` sums of [D] at a time (twice: counting, then for good). */
void stream_take(Stream *stream, Arena *arena, int sums);

/* What a cut stream's buffers and sums are opened with; also for plans. */
GatherSpec stream_gather_spec(const Stream *stream, Reduction reduction, Transport transport,
                              int threads);
ExchangeSpec stream_sums_spec(const Stream *stream);

/* 0 or a negative code, agreed by all. Collective over GROUP_GRID. */
int stream_open(Stream *stream, Grid *grid, Reduction reduction, Transport transport, int threads);
void stream_close(Stream *stream); /* Collective over GROUP_TENSOR. */
/* Bytes of buffers that this rank holds for it (windows: its own segments). */
size_t stream_bytes(const Stream *stream);

/* This rank's rows of x [T, cols]. */
static inline Tensor stream_own(const Stream *stream, Tensor x) {
    return (Tensor){tensor_row(x, stream->own.begin), range_size(stream->own), x.cols, x.ld};
}

/* All rows of x, of which this rank has its own: x itself, or the `gradients` buffer, until it is
 * used again. Collective over GROUP_TENSOR. */
Tensor stream_whole(const Stream *stream, Tensor x, int threads);

/* row_sums [row shards, D], of which this rank's own shards are filled in: their sum belongs to
 * gradient [D], which gets it in stream_finish_sums. Of a cut stream only. */
void stream_keep_sums(Stream *stream, const double *row_sums, real *gradient, int threads);
/* Adds all pending sums to their gradients. 0 or a negative code. Collective over GROUP_TENSOR if
 * the stream is cut. */
int stream_finish_sums(Stream *stream);

#endif
