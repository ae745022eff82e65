/* Sums by messages: the exact one, for ranks on several nodes, and the classic baseline. In both y
 * is this rank's first partial, unless it has its own rows alone; the others lie in private memory.
 */
#include "comm/exchange_internal.h"

#include "base/error.h"
#include "base/memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int64_t own_elements(const ExchangePlan *plan, int rank) {
    int partials = plan_partials(plan, rank), elsewhere = plan->by_rows ? 0 : 1;
    return partials > elsewhere ? (partials - elsewhere) * plan->stride : 0;
}

static real *own_partial(const Exchange *exchange, int index) {
    if (!exchange->plan.by_rows && index-- == 0) return exchange->y.data;
    return exchange->buffers->memory + index * exchange->plan.stride;
}

static bool memory_fits(const Exchange *exchange, const Buffers *buffers) {
    return exchange->kind->bytes(&exchange->plan, exchange->rank) <= buffers->bytes;
}

static int memory_open(Exchange *exchange) {
    Buffers *buffers = exchange->buffers;
    if (exchange->shares) return 0;
    buffers->bytes = exchange->kind->bytes(&exchange->plan, exchange->rank);
    buffers->memory = memory_allocate(buffers->bytes, "the partials of a sum over ranks");
    return buffers->memory ? 0 : WEFT_RUNTIME;
}

/* Exact: this rank's partials but the first, then its part of all partials of the others. */
static size_t messages_bytes(const ExchangePlan *plan, int rank) {
    int64_t others = plan->first[plan->ranks] - plan_partials(plan, rank);
    return (size_t)(own_elements(plan, rank) + others * plan->largest_part) * sizeof(real);
}

static int check_size(const ExchangePlan *plan) {
    if (plan->elements <= INT_MAX) return 0;
    return error_set(WEFT_USAGE, "a sum of %lld elements by messages; at most %d are possible",
                     (long long)plan->elements, INT_MAX);
}

static int messages_open(Exchange *exchange) {
    const ExchangePlan *plan = &exchange->plan;
    int status = check_size(plan);
    if (status) return status;
    int sends = plan_partials(plan, exchange->rank) * (plan->ranks - 1);
    int receives = plan->first[plan->ranks];
    exchange->request = calloc((size_t)(sends + receives), sizeof(MPI_Request));
    if (!exchange->request) return error_set(WEFT_RUNTIME, "out of memory for a sum over ranks");
    return memory_open(exchange);
}

/* Rank j receives its part of everybody's partials. leaf[i] then points to this rank's part of the
 * i-th partial, wherever it lies. */
static void scatter(Exchange *exchange, int64_t elements, const real *leaf[SHARD_MAX]) {
    const ExchangePlan *plan = &exchange->plan;
    MPI_Comm comm = comm_of(exchange->grid, exchange->group);
    MPI_Request *request = exchange->request;
    int me = exchange->rank;
    Range mine = plan_part(plan, elements, me);
    real *room = exchange->buffers->memory + own_elements(plan, me);
    for (int rank = 0; rank < plan->ranks; rank++) {
        for (int i = plan->first[rank]; rank != me && i < plan->first[rank + 1]; i++) {
            MPI_Irecv(room, (int)range_size(mine), MPI_REAL_TYPE, rank, i, comm, request++);
            leaf[i] = room;
            room += plan->largest_part;
        }
    }
    for (int i = plan->first[me]; i < plan->first[me + 1]; i++) {
        const real *partial = own_partial(exchange, i - plan->first[me]);
        leaf[i] = partial + mine.begin;
        for (int step = 1; step < plan->ranks; step++) {
            int rank = (me + step) % plan->ranks; /* not all to the same one at a time */
            Range part = plan_part(plan, elements, rank);
            MPI_Isend(partial + part.begin, (int)range_size(part), MPI_REAL_TYPE, rank, i, comm,
                      request++);
        }
    }
    MPI_Waitall((int)(request - exchange->request), exchange->request, MPI_STATUSES_IGNORE);
}

static void gather(const Exchange *exchange, int64_t elements) {
    const ExchangePlan *plan = &exchange->plan;
    int count[SHARD_MAX], place[SHARD_MAX];
    for (int rank = 0; rank < plan->ranks; rank++) {
        Range part = plan_part(plan, elements, rank);
        count[rank] = (int)range_size(part);
        place[rank] = (int)part.begin;
    }
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, exchange->y.data, count, place,
                   MPI_REAL_TYPE, comm_of(exchange->grid, exchange->group));
}

/* What this rank sums of y, where it lies there. */
static Range own_part(const Exchange *exchange, int64_t elements) {
    Range mine = plan_part(&exchange->plan, elements, exchange->rank);
    return exchange->plan.by_rows ? (Range){0, range_size(mine)} : mine;
}

static void messages_sum(Exchange *exchange, int64_t elements) {
    const real *leaf[SHARD_MAX];
    scatter(exchange, elements, leaf);
    Range mine = own_part(exchange, elements);
    tree_sum(exchange, leaf, mine, exchange->y.data + mine.begin, NULL);
    if (!exchange->plan.by_rows) gather(exchange, elements);
}

const ExchangeKind exchange_messages = {
    "messages",     "exact sum by messages",
    messages_bytes, memory_fits,
    messages_open,  NULL,
    own_partial,    messages_sum,
};

/* Of a rank whose others aren't there: its partials lie as they would. */
static size_t alone_bytes(const ExchangePlan *plan, int rank) {
    return (size_t)own_elements(plan, rank) * sizeof(real);
}

static void alone_sum(Exchange *exchange, int64_t elements) {
    tree_finish(exchange, own_part(exchange, elements));
}

const ExchangeKind exchange_alone = {
    "none", "sum of a rank alone", alone_bytes, memory_fits, memory_open,
    NULL,   own_partial,           alone_sum,
};

/* A rank without partials has zeros to give: in y, or in a place of their own. */
static size_t allreduce_bytes(const ExchangePlan *plan, int rank) {
    int64_t elements = own_elements(plan, rank);
    if (plan->by_rows && elements == 0) elements = plan->stride;
    return (size_t)elements * sizeof(real);
}

static int allreduce_open(Exchange *exchange) {
    int status = exchange->plan.by_rows ? check_size(&exchange->plan) : 0;
    return status ? status : memory_open(exchange);
}

static void scatter_sum(const Exchange *exchange, const real *sum) {
    const ExchangePlan *plan = &exchange->plan;
    int count[SHARD_MAX];
    for (int rank = 0; rank < plan->ranks; rank++) count[rank] = (int)range_size(plan->part[rank]);
    MPI_Reduce_scatter(sum, exchange->y.data, count, MPI_REAL_TYPE, MPI_SUM,
                       comm_of(exchange->grid, exchange->group));
}

static void allreduce_sum(Exchange *exchange, int64_t elements) {
    int partials = plan_partials(&exchange->plan, exchange->rank);
    real *sum = own_partial(exchange, 0);
    if (partials == 0) memset(sum, 0, (size_t)elements * sizeof(real));
    for (int i = 1; i < partials; i++)
        tree_add(sum, own_partial(exchange, i), elements, exchange->threads);
    if (exchange->plan.by_rows) {
        scatter_sum(exchange, sum);
        tree_finish(exchange, own_part(exchange, elements));
        return;
    }
    for (int64_t at = 0; at < elements; at += COMM_CHUNK) {
        int64_t left = elements - at;
        MPI_Allreduce(MPI_IN_PLACE, sum + at, (int)(left < COMM_CHUNK ? left : COMM_CHUNK),
                      MPI_REAL_TYPE, MPI_SUM, comm_of(exchange->grid, exchange->group));
    }
    tree_finish(exchange, (Range){0, elements});
}

const ExchangeKind exchange_allreduce = {
    "messages",     "all-reduce", allreduce_bytes, memory_fits,
    allreduce_open, NULL,         own_partial,     allreduce_sum,
};
