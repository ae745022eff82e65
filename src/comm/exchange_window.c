/* Sums through a shared window of one node. Every rank computes its partials in its own segment:
 *
 *     barrier 1   all partials are there
 *                 rank j sums part j over everybody's partials. It alone reads those elements, so
 *                 the result replaces part j of its own first partial
 *     barrier 2   all results are there
 *                 each rank copies the others' results into its y
 *     barrier 3   all have copied, so that the next partials may be written. Ranks arrive here and
 *                 go on; they wait only at the next begin, for the rest of those that fell behind.
 *
 * Where each rank wants its rows alone, rank j's sum goes to its y, and barrier 2 and the copies
 * fall away.
 *
 * Exchanges that share a window need no more than that: each has it for itself from begin to
 * barrier 3, and may place its partials as it likes. */
#include "comm/exchange_internal.h"

static int64_t room_of(const ExchangePlan *plan, int rank) {
    int partials = plan_partials(plan, rank);
    return partials || plan->by_rows ? partials * plan->stride : plan->largest_part;
}

static size_t window_bytes(const ExchangePlan *plan, int rank) {
    return window_overhead() + (size_t)room_of(plan, rank) * sizeof(real);
}

static bool window_fits(const Exchange *exchange, const Buffers *buffers) {
    bool fits = true;
    for (int rank = 0; rank < exchange->plan.ranks; rank++)
        fits &= room_of(&exchange->plan, rank) <= buffers->room[rank];
    return fits;
}

static int open_window(Exchange *exchange) {
    if (exchange->shares) return 0;
    const ExchangePlan *plan = &exchange->plan;
    Buffers *buffers = exchange->buffers;
    buffers->bytes = window_bytes(plan, exchange->rank);
    window_open(&buffers->window, exchange->grid, exchange->group, buffers->bytes, false,
                exchange->threads);
    for (int rank = 0; rank < plan->ranks; rank++) {
        buffers->segment[rank] = window_memory(&buffers->window, rank);
        buffers->room[rank] = room_of(plan, rank);
    }
    return 0;
}

static void window_begin(Exchange *exchange) {
    Buffers *buffers = exchange->buffers;
    if (buffers->leaving) window_wait(&buffers->window);
    buffers->leaving = false;
}

static real *window_partial(const Exchange *exchange, int index) {
    return exchange->buffers->segment[exchange->rank] + index * exchange->plan.stride;
}

/* Where a rank leaves its part of the result. */
static real *result_of(const Exchange *exchange, int rank, Range part) {
    bool in_place = plan_partials(&exchange->plan, rank) > 0;
    return exchange->buffers->segment[rank] + (in_place ? part.begin : 0);
}

static void copy_others(const Exchange *exchange, int64_t elements) {
    for (int rank = 0; rank < exchange->plan.ranks; rank++) {
        Range part = plan_part(&exchange->plan, elements, rank);
        if (rank != exchange->rank)
            tree_copy(exchange->y.data + part.begin, result_of(exchange, rank, part),
                      range_size(part), exchange->threads);
    }
}

static void window_sum(Exchange *exchange, int64_t elements) {
    const ExchangePlan *plan = &exchange->plan;
    Buffers *buffers = exchange->buffers;
    Range mine = plan_part(plan, elements, exchange->rank);
    int64_t size = range_size(mine);
    real *y = exchange->y.data;
    const real *leaf[SHARD_MAX];
    for (int rank = 0; rank < plan->ranks; rank++)
        for (int i = plan->first[rank]; i < plan->first[rank + 1]; i++)
            leaf[i] = buffers->segment[rank] + (i - plan->first[rank]) * plan->stride + mine.begin;
    window_meet(&buffers->window);
    if (plan->by_rows) {
        tree_sum(exchange, leaf, (Range){0, size}, y, NULL);
    } else {
        tree_sum(exchange, leaf, mine, result_of(exchange, exchange->rank, mine), y + mine.begin);
        window_meet(&buffers->window);
        copy_others(exchange, elements);
    }
    window_arrive(&buffers->window);
    buffers->leaving = true;
}

const ExchangeKind exchange_window = {
    "window",    "exact sum by window", window_bytes,   window_fits,
    open_window, window_begin,          window_partial, window_sum,
};
