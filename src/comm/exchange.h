/* Sums over shards, exactly: the node over shards [a, b) of the tree is always (left + right),
 * whoever owns them.
 *
 * An Exchange belongs to one group (tensor or data), one axis and one largest block [rows, cols].
 * Each rank sums its own shards as far as they form whole subtrees (Partials); then rank j gets
 * everybody's partials of block j of the elements, sums them in tree order, and all gather the
 * result. On one node this goes through an MPI-3 shared window without copies; across nodes, or
 * when /dev/shm is short (agreed beforehand, said in one line), by messages.
 *
 *     Partials part = exchange_begin(exchange, y);   // where this rank's subtree sums belong
 *     ... write part.sum[i] for shards part.subtree[i] ...
 *     exchange_sum(exchange);                        // Collective; y holds the sum on every rank
 *
 * With own_rows the sum stops after its first half: y is this rank's rows of it alone (the
 * reduce-scatter of sequence-parallel regions, Korthikanti et al. 2022, section 4.2.2; the way back
 * is comm/gather.h), the partials still have all rows.
 *
 * What is done with each element of the sum and nothing else can be done with it at once, while it
 * is in cache, and before others get it (an Epilogue, exchange_begin_with): by the rank that sums
 * the element, or, with one rank, by whoever writes the partial.
 *
 * From begin to sum y may serve as one of the partials: it holds nothing of use, and it may not
 * overlap what the partials are computed from. With one rank part.sum[0] is y and nothing moves.
 * Sharing exchanges are used one after the other: the next begin comes after the last sum. */
#ifndef WEFT_COMM_EXCHANGE_H
#define WEFT_COMM_EXCHANGE_H

#include "comm/comm.h"
#include "tensor/shard.h"
#include "tensor/tensor.h"

typedef enum {
    REDUCTION_EXACT,     /* the tree: same bits on any layout */
    REDUCTION_ALLREDUCE, /* the baseline: subtree sums left to right, then MPI_Allreduce; close */
} Reduction;

typedef enum {
    TRANSPORT_AUTO,   /* a window where possible, else messages */
    TRANSPORT_WINDOW, /* a window or an error */
    TRANSPORT_MESSAGES,
} Transport;

/* Told of columns [cols) of one row of y as soon as the sum stands there: what it leaves there is
 * what y holds in the end. Each element once, on one rank; by any thread, in any order. */
typedef struct {
    void (*finish)(void *context, int64_t row, Range cols, real *sum);
    void *context;
    StepPart part; /* that its time belongs to */
} Epilogue;

typedef struct {
    Range subtree[TREE_MAX_SUBTREES]; /* shards of each partial: a whole subtree of the tree */
    Tensor sum[TREE_MAX_SUBTREES];    /* [rows, cols], contiguous (ld == cols) */
    int count;                        /* 0 when the rank owns nothing of the axis */
    const Epilogue
        *epilogue; /* of sum[0], where that is the whole sum, for who writes it; or NULL */
} Partials;

typedef struct Exchange Exchange;

typedef struct {
    Group group;                /* GROUP_TENSOR, GROUP_DATA or GROUP_GRID */
    const AxisLayout *axis;     /* the shards over the group's ranks; copied */
    int64_t rows, cols;         /* of the largest block: rows * cols is what counts */
    const AxisLayout *own_rows; /* the rows over the group's ranks, for sums of which each rank
                                   wants its own, of blocks of just this size; NULL: all want all */
    Reduction reduction;
    Transport transport;
    int threads;     /* for adding and copying: same bits for any number; 0 means 1 */
    Exchange *share; /* uses this one's buffers (same group) where they are large enough; or NULL */
} ExchangeSpec;

/* 0, or WEFT_USAGE / WEFT_RUNTIME, agreed by all. Collective over GROUP_GRID: all ranks of the grid
 * open and close their exchanges in the same order. */
int exchange_open(Exchange **out, Grid *grid, const ExchangeSpec *spec);
void exchange_close(Exchange *exchange); /* NULL is fine. Collective over the group. */

/* y: [rows, cols] contiguous, rows * cols at most that of the spec; or this rank's rows of the
 * spec's [rows, cols]. */
Partials exchange_begin(Exchange *exchange, Tensor y);
/* The same with an epilogue, which lives until the sum is done; NULL: none. */
Partials exchange_begin_with(Exchange *exchange, Tensor y, const Epilogue *epilogue);
/* 0, or WEFT_USAGE without a begin. Collective over the group. */
int exchange_sum(Exchange *exchange);

/* The same tree over numbers in double, under either reduction: partial[i * count + e] are this
 * rank's subtree sums (order of tree_subtrees); total[e] receives the sums on all ranks. By
 * messages. Returns 0 (a failure of MPI ends the job). Collective over the group. */
int exchange_sum_doubles(Exchange *exchange, const double *partial, int64_t count, double *total);

const char *exchange_transport(const Exchange *exchange); /* "none", "window" or "messages" */

/* Bytes of buffers that this rank holds for it (windows: its own segment); 0 when it shares. */
size_t exchange_bytes(const Exchange *exchange);
/* The same number before anything is opened (MPI isn't needed): for rank `rank` of the group,
 * without sharing; TRANSPORT_AUTO is taken as a window. */
size_t exchange_bytes_predicted(const ExchangeSpec *spec, int rank);

/* Bytes that an exchange_sum of spec->rows * spec->cols elements, or an exchange_sum_doubles of
 * `count` numbers, brings to rank `rank` of the group: what the grid's counters will count. 0 when
 * the axis lies on one rank. MPI isn't needed. */
int64_t exchange_received_predicted(const ExchangeSpec *spec, int rank);
int64_t exchange_doubles_received_predicted(const ExchangeSpec *spec, int rank, int64_t count);
/* Rounds that an exchange_sum_doubles of `count` numbers takes. */
int64_t exchange_doubles_calls(int64_t count);

/* Sums left[i] += right[i] over [n] on `threads` threads: the tree's node. */
void tree_add(real *left, const real *right, int64_t n, int threads);

/* Sum over leaves[0..count) in tree order, in double, of values that every rank has; 0 for none. */
double tree_sum_doubles(const double *leaves, int64_t count);

#endif
