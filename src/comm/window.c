/* Shared windows: their barrier, how they are taken and given back, and whether there is room. */
#include "comm/window.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* At the beginning of the first rank's segment. Two cache lines: who arrives should not disturb who
 * looks. */
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
static void give_way(const Window *window, int look) {
    int pending;
    if (look < SPINS && !window->crowded) {
        pause_core();
        return;
    }
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, window->comm, &pending, MPI_STATUS_IGNORE);
    if (look < YIELDS)
        sched_yield();
    else
        clock_sleep(NAP);
}

void window_arrive(const Window *window) {
    WindowBarrier *barrier = window->barrier;
    MPI_Win_sync(window->window);
    unsigned before = atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel);
    if (before + 1 < (unsigned)window->ranks) return;
    atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&barrier->round, window->round + 1, memory_order_release);
}

void window_wait(Window *window) {
    const atomic_uint *round = &window->barrier->round;
    for (int look = 0; atomic_load_explicit(round, memory_order_acquire) == window->round;
         look += look < YIELDS)
        give_way(window, look);
    window->round++;
    MPI_Win_sync(window->window);
}

void window_meet(Window *window) {
    window_arrive(window);
    window_wait(window);
}

static char *query(const Window *window, int rank, MPI_Aint *size) {
    int unit;
    char *base;
    MPI_Win_shared_query(window->window, rank, size, &unit, &base);
    return base;
}

static char *segment_of(const Window *window, int rank) {
    MPI_Aint size;
    return window_pages_find(&window->pages, query(window, rank, &size));
}

static void take_huge_pages(Window *window, char *base, size_t bytes) {
    char *begin = base, *end = base + bytes;
    for (int rank = 0; rank < window->ranks; rank++) {
        MPI_Aint size;
        char *segment = query(window, rank, &size);
        if (size > 0 && segment < begin) begin = segment;
        if (size > 0 && segment + size > end) end = segment + size;
    }
    window_pages_open(&window->pages, begin, end);
    window_pages_collapse(&window->pages, window_pages_find(&window->pages, base), bytes);
}

static char *aligned(char *address) {
    return address + (MEMORY_ALIGN - (uintptr_t)address % MEMORY_ALIGN) % MEMORY_ALIGN;
}

size_t window_overhead(void) { return MEMORY_ALIGN + sizeof(WindowBarrier); }

void window_open(Window *window, Grid *grid, Group group, size_t bytes, bool contiguous,
                 int threads) {
    MPI_Info info;
    void *base;
    *window = (Window){.comm = comm_of(grid, group), .ranks = group_size(grid, group)};
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", contiguous ? "false" : "true");
    comm_tell(grid, group, "opening of a window");
    MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, window->comm, &base, &window->window);
    MPI_Info_free(&info);
    if (bytes > 0)
        memset(base, 0, bytes); /* takes the pages now, so that the next check of free space is
                                   true, each near its own rank */
    window->crowded = grid->node_ranks * threads > sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window->window);
    MPI_Barrier(window->comm);
    if (bytes > 0) take_huge_pages(window, base, bytes);
    window->barrier = (WindowBarrier *)aligned(segment_of(window, 0));
    watch_leave(grid->watch);
}

real *window_memory(const Window *window, int rank) {
    return (real *)(aligned(segment_of(window, rank)) + sizeof(WindowBarrier));
}

void window_close(Window *window) {
    if (window->window == MPI_WIN_NULL) return;
    window_pages_close(&window->pages);
    MPI_Win_unlock_all(window->window);
    MPI_Win_free(&window->window);
}

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

/* When not, `reason` says why. */
static bool is_possible(Grid *grid, Group group, size_t bytes, char *reason, size_t capacity) {
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

int window_choose(Grid *grid, Group group, size_t bytes, bool must, const char *what, bool *taken) {
    char reason[256];
    *taken = is_possible(grid, group, bytes, reason, sizeof reason);
    if (*taken) return 0;
    if (must)
        return error_set(WEFT_RUNTIME, "%s by shared windows are not possible: %s", what, reason);
    if (!grid->mpi->said_messages) log_info("%s: %s go by messages", reason, what);
    grid->mpi->said_messages = true;
    return 0;
}
