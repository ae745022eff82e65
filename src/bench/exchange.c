/* Sums over tensor ranks: the exact one against MPI_Allreduce, and against a sum over the same
 * transport that keeps no order, each with one partial sum a rank. */
#include "comm/exchange.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "bench/yardstick.h"
#include "comm/unordered.h"
#include "run/setup.h"

#include <stdio.h>
#include <stdlib.h>

static const int64_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20};

enum { SIZES = sizeof sizes / sizeof *sizes, LARGEST = SIZES - 1 };

static const double BYTES_AT_A_TIME = 32 << 20; /* small sums are done several times */

typedef struct {
    Grid *grid;
    Exchange *exact, *rank_order, *allreduce; /* rank_order: a shard a rank, whatever the grid */
    Unordered *unordered; /* by messages; NULL: rank_order has no order to keep */
    real *y;
    int64_t elements; /* of the sum at hand */
} ExchangeBench;

static int sum(ExchangeBench *bench, Exchange *exchange) {
    exchange_begin(exchange, tensor_view(bench->y, 1, bench->elements));
    return exchange_sum(exchange);
}

static int sum_exact(void *context) {
    ExchangeBench *bench = context;
    return sum(bench, bench->exact);
}

static int sum_allreduce(void *context) {
    ExchangeBench *bench = context;
    return sum(bench, bench->allreduce);
}

static int sum_unordered(void *context) {
    ExchangeBench *bench = context;
    if (!bench->unordered) return sum(bench, bench->rank_order);
    unordered_sum(bench->unordered, bench->y, bench->elements);
    return 0;
}

static int measure_size(ExchangeBench *bench, int64_t bytes, int pairs) {
    int (*const kind[])(void *) = {sum_exact, sum_allreduce, sum_unordered};
    int times = (int)(BYTES_AT_A_TIME / (double)bytes), status = 0;
    Series seconds = {0}, against_mpi = {0}, price = {0};
    bench->elements = bytes / (int64_t)sizeof(real);
    for (int i = -1; i < pairs; i++) { /* the first warms up */
        double taken[3];
        for (int k = 0; k < 3; k++)
            taken[k] = bench_seconds(bench->grid, kind[k], bench, times, &status);
        if (status) return status;
        if (i < 0) continue;
        series_add(&seconds, taken[0]);
        series_add(&against_mpi, taken[1] / taken[0]);
        series_add(&price, taken[0] / taken[2]);
    }
    char what[64];
    int kilobytes = (int)(bytes >> 10);
    snprintf(what, sizeof what, "exact sum of %d KB", kilobytes);
    series_print(&seconds, what, 1e-6, "us");
    snprintf(what, sizeof what, "%d KB: MPI_Allreduce / exact", kilobytes);
    series_print(&against_mpi, what, 1, "times its time");
    snprintf(what, sizeof what, "%d KB: exact / unordered", kilobytes);
    series_print(&price, what, 1, "times its time");
    return 0;
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

static int open_all(ExchangeBench *exchange, const Bench *bench) {
    Grid *grid = bench->grid;
    int shards = (int)bench->config->grid.tensor;
    AxisLayout axis = axis_layout(shards, shards, grid->tp);
    AxisLayout ranks = axis_layout(grid->tp, grid->tp, grid->tp);
    exchange->y = memory_allocate((size_t)sizes[LARGEST], "what the bench sums");
    int status = comm_agree(grid, GROUP_GRID, exchange->y ? 0 : WEFT_RUNTIME);
    if (!status) status = open_one(&exchange->exact, bench, &axis, REDUCTION_EXACT);
    if (!status) status = open_one(&exchange->rank_order, bench, &ranks, REDUCTION_EXACT);
    if (!status) status = open_one(&exchange->allreduce, bench, &axis, REDUCTION_ALLREDUCE);
    if (status || exchange_transport(exchange->exact)[0] == 'w') return status;
    return unordered_open(&exchange->unordered, grid, GROUP_TENSOR,
                          sizes[LARGEST] / (int64_t)sizeof(real), bench->threads);
}

static int measure(ExchangeBench *exchange, const Bench *bench) {
    int status = 0;
    log_print("by %s\n", exchange_transport(exchange->exact));
    for (int s = 0; s < SIZES && !status; s++)
        status = measure_size(exchange, sizes[s], bench->pairs);
    return status;
}

int bench_exchange(const Bench *bench) {
    ExchangeBench exchange = {.grid = bench->grid};
    if (bench->grid->tp < 2) {
        error_set(WEFT_USAGE, "--part exchange: sums over tensor ranks want --tp 2 or more, and as "
                              "many ranks");
        error_set_agreed(true);
        return WEFT_USAGE;
    }
    int status = open_all(&exchange, bench);
    if (!status) status = measure(&exchange, bench);
    if (status && !error_is_agreed()) return status;
    unordered_close(exchange.unordered);
    exchange_close(exchange.allreduce);
    exchange_close(exchange.rank_order);
    exchange_close(exchange.exact);
    free(exchange.y);
    return status;
}
