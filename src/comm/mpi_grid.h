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

/* Adds one collective that began at `start` to the counters. */
void comm_count(Grid *grid, int64_t bytes, double start);

#endif
