/* Inside comm only: the communicators of a grid. */
#ifndef WEFT_COMM_MPI_GRID_H
#define WEFT_COMM_MPI_GRID_H

#include "comm/comm.h"

#include <mpi.h>

typedef struct GridMpi {
    MPI_Comm comm[GROUP_COUNT]; /* MPI_COMM_NULL: not open, or this rank is surplus */
    MPI_Comm node;              /* the grid's ranks on this node */
    int node_leader;            /* world rank of the node's first rank: names the node */
    MPI_Errhandler error_handler;
    bool started_mpi;
    bool said_messages; /* the line about falling back to messages is printed once */
} GridMpi;

#define COMM_CHUNK                                                                                 \
    ((int64_t)1 << 30) /* longest message, in elements or bytes; MPI counts with int */

static inline MPI_Comm comm_of(const Grid *grid, Group group) { return grid->mpi->comm[group]; }

/* Around each collective of two ranks or more: the watch is told (`what`: static text), and with
 * comm_leave, which takes what comm_enter has returned, it is counted. */
double comm_enter(Grid *grid, Group group, const char *what);
void comm_leave(Grid *grid, int64_t bytes, double start);
/* The same around calls of MPI that aren't counted; watch_leave(grid->watch) ends them. */
void comm_tell(const Grid *grid, Group group, const char *what);

#endif
