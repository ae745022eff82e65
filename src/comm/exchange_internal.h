/* Inside comm only: what the transports of an exchange share.
 *
 * The partials of all ranks, in rank order and so in shard order, form one list of leaves; the
 * ranks' blocks of the elements are cut in whole cache lines, or by rows. */
#ifndef WEFT_COMM_EXCHANGE_INTERNAL_H
#define WEFT_COMM_EXCHANGE_INTERNAL_H

#include "comm/exchange.h"
#include "comm/mpi_grid.h"
#include "comm/window.h"

typedef struct {
    Range subtree[SHARD_MAX]; /* of every partial of every rank */
    int leaf[SHARD_MAX];      /* the partial that begins with this shard, or -1 */
    int first[SHARD_MAX + 1]; /* rank r has the partials first[r] .. first[r + 1] */
    int shards, ranks;
    bool by_rows; /* each rank wants the sum of its own rows, `part`, and no more */
    Range part[SHARD_MAX];
    int64_t rows, elements; /* of the largest block */
    int64_t stride;         /* elements from one partial to the next: whole cache lines */
    int64_t largest_part;   /* elements of the largest part below, whole cache lines */
} ExchangePlan;

ExchangePlan exchange_plan(const ExchangeSpec *spec);
int plan_partials(const ExchangePlan *plan, int rank);
/* The elements of [0, elements) that `rank` sums. */
Range plan_part(const ExchangePlan *plan, int64_t elements, int rank);

/* Memory of an exchange, or of several that take turns. */
typedef struct {
    int users;
    size_t bytes; /* on this rank */
    real *memory; /* private; NULL when there is a window */
    /* A segment of the window holds its rank's partials, or room for the rank's part of the result
     * if it has none. */
    Window window;
    bool leaving;             /* has arrived at the last barrier of a sum, and not yet waited */
    real *segment[SHARD_MAX]; /* of all ranks, as this rank sees them */
    int64_t room[SHARD_MAX];  /* in elements */
} Buffers;

enum { EXCHANGE_DOUBLES = 512 }; /* numbers per round of exchange_sum_doubles */

typedef struct ExchangeKind ExchangeKind;

struct Exchange {
    Grid *grid;
    Group group;
    int rank, threads;
    ExchangePlan plan;
    const ExchangeKind *kind;
    Buffers *buffers;
    bool shares;              /* the buffers are another's, which counts them */
    MPI_Request *request;     /* messages: all that a sum sends and receives */
    double *doubles;          /* [partials of all ranks * EXCHANGE_DOUBLES] */
    Tensor y;                 /* data is NULL but between begin and sum */
    const Epilogue *epilogue; /* of y; NULL: none */
    StopwatchAside aside;     /* what the epilogue took */
};

/* How a sum travels. open, begin and sum are collective over the group. */
struct ExchangeKind {
    const char *name, *sum_name;                                    /* the second for the watch */
    size_t (*bytes)(const ExchangePlan *plan, int rank);            /* of buffers on that rank */
    bool (*fits)(const Exchange *exchange, const Buffers *buffers); /* may use another's */
    int (*open)(Exchange *exchange);   /* the buffers, unless it shares them; may be NULL */
    void (*begin)(Exchange *exchange); /* before partials are written; may be NULL */
    real *(*partial)(const Exchange *exchange, int index); /* where this rank's belongs */
    void (*sum)(Exchange *exchange, int64_t elements);
};

extern const ExchangeKind exchange_window, exchange_messages, exchange_allreduce, exchange_alone;

#ifdef WEFT_REAL64
#define MPI_REAL_TYPE MPI_DOUBLE
#else
#define MPI_REAL_TYPE MPI_FLOAT
#endif

/* Sums the exchange's partials, of which leaf[i] points to the i-th, into `sum`: elements [part) of
 * y, with the epilogue; leaves and `sum` begin at the part. Copies the result to `copy` unless that
 * is NULL. One leaf may be `sum` itself. */
void tree_sum(Exchange *exchange, const real *const *leaf, Range part, real *sum, real *copy);
/* The epilogue alone, of elements of y that are all there. */
void tree_finish(Exchange *exchange, Range part);
/* The same for doubles: the sum of leaf[i * stride] over the partials. */
double tree_sum_leaves(const ExchangePlan *plan, const double *leaf, int64_t stride);
void tree_copy(real *to, const real *from, int64_t n, int threads);

#endif
