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
 * Exchanges that share a window need no more than that: each has it for itself from begin to
 * barrier 3, and may place its partials as it likes. */
#include "comm/exchange_internal.h"

#include "base/clock.h"
#include "base/files.h"
#include "base/memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* At the beginning of the first rank's segment (that of others is unused). Two cache lines: who
 * arrives should not disturb who looks. */
typedef struct WindowBarrier {
    _Alignas(MEMORY_ALIGN) atomic_uint arrived;
    _Alignas(MEMORY_ALIGN) atomic_uint round;
} WindowBarrier;

static const char *const SHARED_MEMORY = "/dev/shm";
/* Room left per rank for Open MPI's own segment, which fills up as messages come (4.1: 4 MB). */
static const int64_t SLACK = 4 << 20;

enum { SPINS = 20000, YIELDS = 40000 }; /* some 0.3 ms, some 10 ms: then sleep between two looks */
static const double NAP = 50e-6;

static void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Called again and again while waiting. Other ranks may need this one to make progress inside MPI
 * (a message that it has sent may still be queued here), so MPI gets its turn. */
static void give_way(const Exchange *exchange, int look) {
    int pending;
    if (look < SPINS && !exchange->buffers->window.crowded) {
        pause_core();
        return;
    }
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_of(exchange->grid, exchange->group), &pending,
               MPI_STATUS_IGNORE);
    if (look < YIELDS)
        sched_yield();
    else
        clock_sleep(NAP);
}

/* What this rank wrote is seen by everybody who waits for the same round. */
static void arrive(const Exchange *exchange) {
    const Window *window = &exchange->buffers->window;
    WindowBarrier *barrier = window->barrier;
    MPI_Win_sync(window->window);
    unsigned before = atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel);
    if (before + 1 < (unsigned)exchange->plan.ranks) return;
    atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&barrier->round, window->round + 1, memory_order_release);
}

static void wait_for_all(Exchange *exchange) {
    Window *window = &exchange->buffers->window;
    const atomic_uint *round = &window->barrier->round;
    for (int look = 0; atomic_load_explicit(round, memory_order_acquire) == window->round;
         look += look < YIELDS)
        give_way(exchange, look);
    window->round++;
    MPI_Win_sync(window->window);
}

static void meet(Exchange *exchange) {
    arrive(exchange);
    wait_for_all(exchange);
}

static int64_t room_of(const ExchangePlan *plan, int rank) {
    int partials = plan_partials(plan, rank);
    return partials ? partials * plan->stride : plan->largest_part;
}

static size_t window_bytes(const ExchangePlan *plan, int rank) {
    return MEMORY_ALIGN + sizeof(WindowBarrier) + (size_t)room_of(plan, rank) * sizeof(real);
}

static bool window_fits(const Exchange *exchange, const Buffers *buffers) {
    bool fits = true;
    for (int rank = 0; rank < exchange->plan.ranks; rank++)
        fits &= room_of(&exchange->plan, rank) <= buffers->window.room[rank];
    return fits;
}

/* Where everything lies in a rank's segment. */
static void map_segment(Window *window, const ExchangePlan *plan, int rank) {
    MPI_Aint size;
    int unit;
    char *base;
    MPI_Win_shared_query(window->window, rank, &size, &unit, &base);
    base += (MEMORY_ALIGN - (uintptr_t)base % MEMORY_ALIGN) % MEMORY_ALIGN;
    if (rank == 0) window->barrier = (WindowBarrier *)base;
    window->memory[rank] = (real *)(base + sizeof(WindowBarrier));
    window->room[rank] = room_of(plan, rank);
}

/* Nothing here fails on one rank alone and returns: MPI's errors end the job. */
static int window_open(Exchange *exchange) {
    if (exchange->shares) return 0;
    const ExchangePlan *plan = &exchange->plan;
    Window *window = &exchange->buffers->window;
    MPI_Comm comm = comm_of(exchange->grid, exchange->group);
    size_t bytes = window_bytes(plan, exchange->rank);
    MPI_Info info;
    void *base;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true"); /* each segment near its own rank */
    comm_tell(exchange->grid, exchange->group, "opening of a window");
    MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, comm, &base, &window->window);
    MPI_Info_free(&info);
    memset(base, 0, bytes); /* takes the pages now, so that the next check of free space is true */
    exchange->buffers->bytes = bytes;
    for (int rank = 0; rank < plan->ranks; rank++) map_segment(window, plan, rank);
    window->crowded =
        exchange->grid->node_ranks * exchange->threads > sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window->window);
    MPI_Barrier(comm);
    watch_leave(exchange->grid->watch);
    return 0;
}

void window_close(Window *window) {
    if (window->window == MPI_WIN_NULL) return;
    MPI_Win_unlock_all(window->window);
    MPI_Win_free(&window->window);
}

static void window_begin(Exchange *exchange) {
    if (exchange->buffers->window.leaving) wait_for_all(exchange);
    exchange->buffers->window.leaving = false;
}

static real *window_partial(const Exchange *exchange, int index) {
    return exchange->buffers->window.memory[exchange->rank] + index * exchange->plan.stride;
}

/* Where a rank leaves its part of the result. */
static real *result_of(const Exchange *exchange, int rank, Range part) {
    bool in_place = plan_partials(&exchange->plan, rank) > 0;
    return exchange->buffers->window.memory[rank] + (in_place ? part.begin : 0);
}

static void window_sum(Exchange *exchange, int64_t elements) {
    const ExchangePlan *plan = &exchange->plan;
    Window *window = &exchange->buffers->window;
    Range mine = plan_part(plan, elements, exchange->rank);
    real *y = exchange->y.data;
    const real *leaf[SHARD_MAX];
    for (int rank = 0; rank < plan->ranks; rank++)
        for (int i = plan->first[rank]; i < plan->first[rank + 1]; i++)
            leaf[i] = window->memory[rank] + (i - plan->first[rank]) * plan->stride + mine.begin;
    meet(exchange);
    tree_sum(plan, leaf, range_size(mine), result_of(exchange, exchange->rank, mine),
             y + mine.begin, exchange->threads);
    meet(exchange);
    for (int rank = 0; rank < plan->ranks; rank++) {
        Range part = plan_part(plan, elements, rank);
        if (rank != exchange->rank)
            tree_copy(y + part.begin, result_of(exchange, rank, part), range_size(part),
                      exchange->threads);
    }
    arrive(exchange);
    window->leaving = true;
}

const ExchangeKind exchange_window = {
    "window",    "exact sum by window", window_bytes,   window_fits,
    window_open, window_begin,          window_partial, window_sum,
};

/* Whether the group lies on one node. */
static bool on_one_node(const Grid *grid, Group group) {
    int leader = grid->mpi->node_leader;
    int nodes[2] = {leader, -leader}; /* the lowest and, negative, the highest */
    comm_tell(grid, group, "look for a common node");
    MPI_Allreduce(MPI_IN_PLACE, nodes, 2, MPI_INT, MPI_MIN, comm_of(grid, group));
    watch_leave(grid->watch);
    return nodes[0] == -nodes[1];
}

static int64_t free_shared_memory(void) {
    int64_t bytes = files_free_space(SHARED_MEMORY);
    return bytes < 0 ? 0 : bytes;
}

/* All windows of the node are needed at once; they may belong to several groups. */
static int64_t needed_on_node(const Grid *grid, size_t bytes) {
    int64_t needed = (int64_t)bytes + sysconf(_SC_PAGESIZE) + SLACK;
    watch_enter(grid->watch, "look for free shared memory", "ranks of the node");
    MPI_Allreduce(MPI_IN_PLACE, &needed, 1, MPI_INT64_T, MPI_SUM, grid->mpi->node);
    watch_leave(grid->watch);
    return needed;
}

bool window_is_possible(Grid *grid, Group group, size_t bytes, char *reason, size_t capacity) {
    int64_t free_bytes = free_shared_memory(), needed = needed_on_node(grid, bytes);
    int64_t worst[2] = {!on_one_node(grid, group), needed - free_bytes};
    int64_t shortage = worst[1];
    comm_max_int64(grid, GROUP_GRID, worst, 2);
    if (worst[0]) {
        snprintf(reason, capacity, "the ranks of a group are on several nodes");
        return false;
    }
    if (worst[1] <= 0) return true;
    int64_t shown = shortage == worst[1] ? free_bytes : 0; /* of the node that has least */
    comm_max_int64(grid, GROUP_GRID, &shown, 1);
    const int64_t mb = 1 << 20;
    snprintf(reason, capacity, "%s has %lld MB free, %lld MB are needed for windows", SHARED_MEMORY,
             (long long)(shown / mb), (long long)((shown + worst[1] + mb - 1) / mb));
    return false;
}
