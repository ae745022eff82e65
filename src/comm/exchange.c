/* Exchanges: what all transports have in common. */
#include "comm/exchange_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = MEMORY_ALIGN / sizeof(real) }; /* elements of a cache line */

static int64_t lines_of(int64_t elements) { return (elements + LINE - 1) / LINE; }

/* Where each rank's rows lie in a block of `cols` columns. */
static void cut_by_rows(ExchangePlan *plan, const AxisLayout *rows, int64_t cols) {
    plan->by_rows = true;
    for (int rank = 0; rank < plan->ranks; rank++) {
        Range own = axis_owned_units(rows, rank);
        plan->part[rank] = (Range){own.begin * cols, own.end * cols};
    }
}

ExchangePlan exchange_plan(const ExchangeSpec *spec) {
    const AxisLayout *axis = spec->axis;
    int64_t elements = spec->rows * spec->cols;
    ExchangePlan plan = {.shards = axis->shards,
                         .ranks = axis->ranks,
                         .rows = spec->rows,
                         .elements = elements,
                         .stride = lines_of(elements) * LINE};
    if (spec->own_rows) cut_by_rows(&plan, spec->own_rows, spec->cols);
    for (int shard = 0; shard < SHARD_MAX; shard++) plan.leaf[shard] = -1;
    for (int rank = 0; rank < axis->ranks; rank++) {
        Range subtree[TREE_MAX_SUBTREES];
        int count = tree_subtrees(axis->shards, axis_owned(axis, rank), subtree);
        for (int i = 0; i < count; i++) {
            int leaf = plan.first[rank] + i;
            plan.subtree[leaf] = subtree[i];
            plan.leaf[subtree[i].begin] = leaf;
        }
        plan.first[rank + 1] = plan.first[rank] + count;
        int64_t part = lines_of(range_size(plan_part(&plan, elements, rank))) * LINE;
        if (part > plan.largest_part) plan.largest_part = part;
    }
    return plan;
}

int plan_partials(const ExchangePlan *plan, int rank) {
    return plan->first[rank + 1] - plan->first[rank];
}

Range plan_part(const ExchangePlan *plan, int64_t elements, int rank) {
    if (plan->by_rows) return plan->part[rank];
    Range part = shard_range(lines_of(elements), plan->ranks, rank);
    part.begin *= LINE;
    part.end *= LINE;
    if (part.begin > elements) part.begin = elements;
    if (part.end > elements) part.end = elements;
    return part;
}

/* A group of one: the only partial is y. */
static size_t none_bytes(const ExchangePlan *plan, int rank) {
    (void)plan, (void)rank;
    return 0;
}

static bool none_fits(const Exchange *exchange, const Buffers *buffers) {
    (void)exchange, (void)buffers;
    return false;
}

static real *none_partial(const Exchange *exchange, int index) {
    (void)index;
    return exchange->y.data;
}

static void none_sum(Exchange *exchange, int64_t elements) { (void)exchange, (void)elements; }

static const ExchangeKind exchange_none = {
    "none", "sum", none_bytes, none_fits, NULL, NULL, none_partial, none_sum,
};

static void buffers_release(Buffers *buffers) {
    if (!buffers || --buffers->users > 0) return;
    window_close(&buffers->window);
    free(buffers->memory);
    free(buffers);
}

static int check_spec(const Grid *grid, const ExchangeSpec *spec) {
    int ranks = group_size(grid, spec->group);
    if (spec->axis->ranks != ranks)
        return error_set(WEFT_USAGE, "sum over shards: the axis lies on %d ranks, the group has %d",
                         spec->axis->ranks, ranks);
    if (spec->axis->shards < 1 || spec->rows < 1 || spec->cols < 1)
        return error_set(WEFT_USAGE, "sum over shards: %d shards of [%lld, %lld]; none may be 0",
                         spec->axis->shards, (long long)spec->rows, (long long)spec->cols);
    if (spec->own_rows && (spec->own_rows->ranks != ranks || spec->own_rows->units != spec->rows))
        return error_set(WEFT_USAGE,
                         "sum over shards: %lld rows on %d ranks are to have their own of %lld on "
                         "%d",
                         (long long)spec->own_rows->units, spec->own_rows->ranks,
                         (long long)spec->rows, ranks);
    return 0;
}

static bool may_share(const Exchange *exchange, const ExchangeSpec *spec) {
    const Exchange *share = spec->share;
    return share && share->group == spec->group && share->kind == exchange->kind &&
           exchange->kind->fits(exchange, share->buffers);
}

/* Sets exchange->kind. Collective over the grid. */
static int choose_kind(Exchange *exchange, const ExchangeSpec *spec) {
    const Exchange *share = spec->share;
    Transport transport = spec->transport;
    exchange->kind = &exchange_messages;
    if (exchange->plan.ranks == 1)
        exchange->kind = &exchange_none;
    else if (exchange->grid->alone)
        exchange->kind = &exchange_alone;
    else if (spec->reduction == REDUCTION_ALLREDUCE)
        exchange->kind = &exchange_allreduce;
    if (exchange->kind != &exchange_messages || transport == TRANSPORT_MESSAGES) return 0;
    if (transport == TRANSPORT_AUTO && share && share->kind == &exchange_messages) return 0;

    exchange->kind = &exchange_window;
    if (may_share(exchange, spec)) return 0;
    bool window;
    size_t bytes = exchange_window.bytes(&exchange->plan, exchange->rank);
    int status = window_choose(exchange->grid, spec->group, bytes, transport == TRANSPORT_WINDOW,
                               "sums", &window);
    if (!window) exchange->kind = &exchange_messages;
    return status;
}

/* What can fail on one rank alone. */
static int allocate(Exchange *exchange, const ExchangeSpec *spec) {
    size_t leaves = (size_t)exchange->plan.first[exchange->plan.ranks];
    if (exchange->plan.ranks > 1) {
        exchange->doubles = memory_allocate(leaves * EXCHANGE_DOUBLES * sizeof(double),
                                            "sums of doubles over ranks");
        if (!exchange->doubles) return WEFT_RUNTIME;
    }
    exchange->shares = may_share(exchange, spec);
    exchange->buffers = exchange->shares ? spec->share->buffers : calloc(1, sizeof(Buffers));
    if (!exchange->buffers) return error_set(WEFT_RUNTIME, "out of memory for a sum over ranks");
    if (!exchange->buffers->users++) exchange->buffers->window.window = MPI_WIN_NULL;
    return 0;
}

static int open_on_group(Exchange *exchange, Grid *grid, const ExchangeSpec *spec) {
    exchange->grid = grid;
    exchange->group = spec->group;
    exchange->rank = group_rank(grid, spec->group);
    exchange->threads = spec->threads > 1 ? spec->threads : 1;
    exchange->plan = exchange_plan(spec);
    int status = comm_agree(grid, GROUP_GRID, choose_kind(exchange, spec));
    if (!status) status = comm_agree(grid, GROUP_GRID, allocate(exchange, spec));
    if (!status && exchange->kind->open)
        status = comm_agree(grid, GROUP_GRID, exchange->kind->open(exchange));
    return status;
}

int exchange_open(Exchange **out, Grid *grid, const ExchangeSpec *spec) {
    *out = NULL;
    Exchange *exchange = calloc(1, sizeof *exchange);
    int status = exchange ? check_spec(grid, spec)
                          : error_set(WEFT_RUNTIME, "out of memory for a sum over ranks");
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) status = open_on_group(exchange, grid, spec);
    if (!status)
        *out = exchange;
    else
        exchange_close(exchange);
    return status;
}

void exchange_close(Exchange *exchange) {
    if (!exchange) return;
    if (exchange->grid) comm_tell(exchange->grid, exchange->group, "closing of a window");
    buffers_release(exchange->buffers);
    if (exchange->grid) watch_leave(exchange->grid->watch);
    free(exchange->request);
    free(exchange->doubles);
    free(exchange);
}

Partials exchange_begin(Exchange *exchange, Tensor y) {
    return exchange_begin_with(exchange, y, NULL);
}

Partials exchange_begin_with(Exchange *exchange, Tensor y, const Epilogue *epilogue) {
    const ExchangePlan *plan = &exchange->plan;
    assert(y.rows * y.cols <= plan->elements);
    assert(!plan->by_rows || plan->rows * y.cols == plan->elements);
    exchange->y = y;
    exchange->epilogue = epilogue;
    if (exchange->kind->begin) {
        comm_tell(exchange->grid, exchange->group, exchange->kind->sum_name);
        stopwatch_begin(exchange->grid->stopwatch, STEP_EXCHANGE);
        double start = clock_seconds();
        exchange->kind->begin(exchange);
        exchange->grid->counters.seconds += clock_seconds() - start;
        stopwatch_end(exchange->grid->stopwatch);
        watch_leave(exchange->grid->watch);
    }
    Partials partials = {.count = plan_partials(plan, exchange->rank),
                         .epilogue = plan->ranks == 1 ? epilogue : NULL};
    for (int i = 0; i < partials.count; i++) {
        partials.subtree[i] = plan->subtree[plan->first[exchange->rank] + i];
        partials.sum[i] = tensor_view(exchange->kind->partial(exchange, i),
                                      plan->by_rows ? plan->rows : y.rows, y.cols);
    }
    return partials;
}

/* What others' partials of this rank's part bring here, and their finished parts if all of them are
 * wanted. */
static int64_t bytes_received(const ExchangePlan *plan, int rank, int64_t elements) {
    int64_t part = range_size(plan_part(plan, elements, rank));
    int others = plan->first[plan->ranks] - plan_partials(plan, rank);
    return (others * part + (plan->by_rows ? 0 : elements - part)) * (int64_t)sizeof(real);
}

static int64_t doubles_received(const ExchangePlan *plan, int rank, int64_t count) {
    int others = plan->first[plan->ranks] - plan_partials(plan, rank);
    return others * count * (int64_t)sizeof(double);
}

int exchange_sum(Exchange *exchange) {
    if (!exchange->y.data) return error_set(WEFT_USAGE, "exchange_sum without exchange_begin");
    int64_t elements =
        exchange->plan.by_rows ? exchange->plan.elements : exchange->y.rows * exchange->y.cols;
    if (exchange->plan.ranks > 1) {
        double start = comm_enter(exchange->grid, exchange->group, exchange->kind->sum_name);
        exchange->kind->sum(exchange, elements);
        comm_leave(exchange->grid, bytes_received(&exchange->plan, exchange->rank, elements),
                   start);
        if (exchange->epilogue)
            exchange->grid->counters.seconds -=
                stopwatch_move(exchange->grid->stopwatch, &exchange->aside, exchange->threads,
                               STEP_EXCHANGE, exchange->epilogue->part);
    }
    exchange->y.data = NULL;
    return 0;
}

/* One round: n numbers of every partial of this rank, `step` apart, go to all. */
static void gather_doubles(Exchange *exchange, const double *partial, int64_t step, int n) {
    const ExchangePlan *plan = &exchange->plan;
    int count[SHARD_MAX], place[SHARD_MAX];
    for (int rank = 0; rank < plan->ranks; rank++) {
        count[rank] = plan_partials(plan, rank) * n;
        place[rank] = plan->first[rank] * n;
    }
    double *mine = exchange->doubles + place[exchange->rank];
    for (int i = 0; i < plan_partials(plan, exchange->rank); i++)
        memcpy(mine + i * n, partial + i * step, (size_t)n * sizeof(double));
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, exchange->doubles, count, place, MPI_DOUBLE,
                   comm_of(exchange->grid, exchange->group));
}

int exchange_sum_doubles(Exchange *exchange, const double *partial, int64_t count, double *total) {
    const ExchangePlan *plan = &exchange->plan;
    if (!group_meets(exchange->grid, exchange->group)) {
        if (count > 0) memmove(total, partial, (size_t)count * sizeof(double));
        return 0;
    }
    double start = comm_enter(exchange->grid, exchange->group, "exact sum of doubles");
    for (int64_t at = 0; at < count; at += EXCHANGE_DOUBLES) {
        int n = (int)(count - at < EXCHANGE_DOUBLES ? count - at : EXCHANGE_DOUBLES);
        gather_doubles(exchange, partial + at, count, n);
        for (int e = 0; e < n; e++) total[at + e] = tree_sum_leaves(plan, exchange->doubles + e, n);
    }
    comm_leave(exchange->grid, doubles_received(plan, exchange->rank, count), start);
    return 0;
}

const char *exchange_transport(const Exchange *exchange) { return exchange->kind->name; }

size_t exchange_bytes(const Exchange *exchange) {
    return exchange->shares ? 0 : exchange->buffers->bytes;
}

size_t exchange_bytes_predicted(const ExchangeSpec *spec, int rank) {
    const ExchangeKind *kind = &exchange_window;
    if (spec->axis->ranks == 1)
        kind = &exchange_none;
    else if (spec->reduction == REDUCTION_ALLREDUCE)
        kind = &exchange_allreduce;
    else if (spec->transport == TRANSPORT_MESSAGES)
        kind = &exchange_messages;
    ExchangePlan plan = exchange_plan(spec);
    return kind->bytes(&plan, rank);
}

int64_t exchange_received_predicted(const ExchangeSpec *spec, int rank) {
    ExchangePlan plan = exchange_plan(spec);
    return bytes_received(&plan, rank, plan.elements);
}

int64_t exchange_doubles_received_predicted(const ExchangeSpec *spec, int rank, int64_t count) {
    ExchangePlan plan = exchange_plan(spec);
    return doubles_received(&plan, rank, count);
}

int64_t exchange_doubles_calls(int64_t count) {
    return (count + EXCHANGE_DOUBLES - 1) / EXCHANGE_DOUBLES;
}
