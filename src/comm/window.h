/* Inside comm only: memory that the ranks of a group on one node share, a segment each, and a
 * barrier in it that costs no message. */
#ifndef WEFT_COMM_WINDOW_H
#define WEFT_COMM_WINDOW_H

#include "base/real.h"
#include "comm/mpi_grid.h"
#include "comm/window_pages.h"

typedef struct {
    MPI_Win window; /* MPI_WIN_NULL: none */
    WindowPages pages;
    MPI_Comm comm;
    int ranks;
    struct WindowBarrier *barrier;
    unsigned round; /* of the barrier, as far as this rank has gone */
    bool crowded;   /* more threads than cores: waiting gives way at once */
} Window;

/* *taken: whether windows of these sizes (`bytes` on this rank) are possible on all nodes of the
 * grid. When not: WEFT_RUNTIME if they are a must, else a line that `what` (rows, sums) go by
 * messages, once. Collective over the grid, same answer on all. */
int window_choose(Grid *grid, Group group, size_t bytes, bool must, const char *what, bool *taken);

/* What a segment has beside its contents, where it is one of many or the first. */
size_t window_overhead(void);

/* A segment of `bytes` on this rank, zeroed. Contiguous: those of all ranks follow each other
 * without a gap, so that the first's overhead will do; else each is near its own rank. Nothing here
 * fails on one rank alone and returns: MPI's errors end the job. Collective over the group. */
void window_open(Window *window, Grid *grid, Group group, size_t bytes, bool contiguous,
                 int threads);
void window_close(Window *window); /* Collective over the group if there is a window. */

/* Where rank `rank`'s segment begins, after the overhead, on a cache line. */
real *window_memory(const Window *window, int rank);

/* What this rank wrote before it arrived is seen by all who have waited for the same round. */
void window_arrive(const Window *window);
void window_wait(Window *window);
void window_meet(Window *window); /* arrives, and waits for all */

#endif
