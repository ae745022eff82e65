/* Sums over tensor ranks: the exact one against MPI_Allreduce, and against a sum over the same
 * transport that keeps no order, each with one partial sum a rank. */
#include "comm/exchange.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "comm/unordered.h"
#include "run/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20};

enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = SIZES - 1 };

static const double BYTES_AT_A_TIME = 32 << 20; /* small sums are done several times */

enum { EXACT, ALLREDUCE, UNORDERED };

typedef struct {
    Series seconds, against_mpi, price;
} Rows;

typedef struct {
    Grid *grid;
    Exchange *exact, *rank_order, *allreduce; /* rank_order: a shard a rank, whatever the grid */
    Unordered *unordered; /* by messages; NULL: rank_order has no order to keep */
    real *y;
    int64_t elements; /* of the sum at hand */
    Rows rows[SIZES];
} ExchangeBench;

/* As a product leaves it. */
static void write_partial(real *partial, int64_t elements) {
    for (int64_t i = 0; i < elements; i++) partial[i] = 1;
}

/* Seconds of a sum of partials that were just written, on this rank. */
static double sum(ExchangeBench *bench, Exchange *exchange) {
    double start = clock_seconds();
    Partials partials = exchange_begin(exchange, tensor_view(bench->y, 1, bench->elements));
    double begin = clock_seconds() - start;
    for (int i = 0; i < partials.count; i++) write_partial(partials.sum[i].data, bench->elements);
    comm_barrier(bench->grid, GROUP_GRID);
    start = clock_seconds();
    (void)exchange_sum(exchange); /* fails without a begin alone */
    return begin + clock_seconds() - start;
}

static double sum_unordered(ExchangeBench *bench) {
    if (!bench->unordered) return sum(bench, bench->rank_order);
    write_partial(bench->y, bench->elements);
    comm_barrier(bench->grid, GROUP_GRID);
    double start = clock_seconds();
    unordered_sum(bench->unordered, bench->y, bench->elements);
    return clock_seconds() - start;
}

static double sum_by(ExchangeBench *bench, int kind) {
    if (kind == UNORDERED) return sum_unordered(bench);
    return sum(bench, kind == EXACT ? bench->exact : bench->allreduce);
}

/* Of the slowest rank, the mean of several. */
static double seconds_of(ExchangeBench *bench, int kind) {
    int times = (int)(BYTES_AT_A_TIME / (double)sizeof(real) / (double)bench->elements);
    double seconds = 0;
    for (int i = 0; i < times; i++) seconds += sum_by(bench, kind);
    real slowest = (real)(seconds / times);
    comm_max_real(bench->grid, GROUP_GRID, &slowest, 1);
    return (double)slowest;
}

/* In turn, each before and after the other two as often. */
static void measure_size(ExchangeBench *bench, int size, int pairs) {
    static const int order[][3] = {{ALLREDUCE, EXACT, UNORDERED}, {ALLREDUCE, UNORDERED, EXACT}};
    Rows *rows = &bench->rows[size];
    bench->elements = sizes[size] / (int64_t)sizeof(real);
    for (int i = -1; i < pairs; i++) { /* the first warms up */
        double taken[3];
        for (int k = 0; k < 3; k++) taken[order[i & 1][k]] = seconds_of(bench, order[i & 1][k]);
        if (i < 0) continue;
        series_add(&rows->seconds, taken[EXACT]);
        series_add(&rows->against_mpi, taken[ALLREDUCE] / taken[EXACT]);
        series_add(&rows->price, taken[EXACT] / taken[UNORDERED]);
    }
}

static void print_size(const Rows *rows, int64_t bytes) {
    char what[64];
    int kilobytes = (int)(bytes >> 10);
    snprintf(what, sizeof what, "exact sum of %d KB", kilobytes);
    series_print(&rows->seconds, what, 1e-6, "us");
    snprintf(what, sizeof what, "%d KB: MPI_Allreduce / exact", kilobytes);
    series_print(&rows->against_mpi, what, 1, "times its time");
    snprintf(what, sizeof what, "%d KB: exact / unordered", kilobytes);
    series_print(&rows->price, what, 1, "times its time");
}

static int open_one(Exchange **exchange, const Bench *bench, const AxisLayout *axis,
                    Reduction reduction) {
    ModelConfig model = setup_model(bench->config, 1, bench->threads);
    ExchangeSpec spec = {.group = GROUP_TENSOR,
                         .axis = axis,
                         .rows = 1,
                         .cols = sizes[LARGEST] / (int64_t)sizeof(real),
                         .reduction = reduction,
                         .transport = model.transport,
                         .threads = bench->threads};
    return exchange_open(exchange, bench->grid, &spec);
}

/* Who is opened first may get other pages of memory. */
static int open_all(ExchangeBench *exchange, const Bench *bench, bool exact_first) {
    Grid *grid = bench->grid;
    int shards = (int)bench->config->grid.tensor;
    AxisLayout axis = axis_layout(shards, shards, grid->tp);
    AxisLayout ranks = axis_layout(grid->tp, grid->tp, grid->tp);
    exchange->y = memory_allocate((size_t)sizes[LARGEST], "what the bench sums");
    int status = comm_agree(grid, GROUP_GRID, exchange->y ? 0 : WEFT_RUNTIME);
    if (!status && exact_first) status = open_one(&exchange->exact, bench, &axis, REDUCTION_EXACT);
    if (!status) status = open_one(&exchange->rank_order, bench, &ranks, REDUCTION_EXACT);
    if (!status && !exact_first) status = open_one(&exchange->exact, bench, &axis, REDUCTION_EXACT);
    if (!status) status = open_one(&exchange->allreduce, bench, &axis, REDUCTION_ALLREDUCE);
    if (status) return status;
    const char *transport = exchange_transport(exchange->exact);
    if (strcmp(transport, exchange_transport(exchange->rank_order)) != 0) {
        error_set(WEFT_RUNTIME,
                  "--part exchange: /dev/shm has room for one of two windows; make room, or take "
                  "--set grid.transport=messages");
        error_set_agreed(true);
        return WEFT_RUNTIME;
    }
    if (transport[0] == 'w') return 0;
    return unordered_open(&exchange->unordered, grid, GROUP_TENSOR,
                          sizes[LARGEST] / (int64_t)sizeof(real), bench->threads);
}

static void close_all(ExchangeBench *exchange) {
    unordered_close(exchange->unordered);
    exchange_close(exchange->allreduce);
    exchange_close(exchange->rank_order);
    exchange_close(exchange->exact);
    free(exchange->y);
    exchange->unordered = NULL;
    exchange->allreduce = exchange->rank_order = exchange->exact = NULL;
    exchange->y = NULL;
}

static int measure_with(ExchangeBench *exchange, const Bench *bench, bool exact_first, int pairs) {
    int status = open_all(exchange, bench, exact_first);
    if (!status && exact_first) log_print("by %s\n", exchange_transport(exchange->exact));
    for (int size = 0; size < SIZES && !status; size++) measure_size(exchange, size, pairs);
    if (!status || error_is_agreed()) close_all(exchange);
    return status;
}

int bench_exchange(const Bench *bench) {
    ExchangeBench exchange = {.grid = bench->grid};
    int half = bench->pairs / 2;
    if (bench->grid->tp < 2) {
        error_set(WEFT_USAGE, "--part exchange: sums over tensor ranks want --tp 2 or more, and as "
                              "many ranks");
        error_set_agreed(true);
        return WEFT_USAGE;
    }
    int status = measure_with(&exchange, bench, true, bench->pairs - half);
    if (!status) status = measure_with(&exchange, bench, false, half);
    for (int size = 0; size < SIZES && !status; size++)
        print_size(&exchange.rows[size], sizes[size]);
    return status;
}
