/* The rows of a matrix [rows, cols] whose ranks make some each, brought together: the entry of a
 * sequence-parallel region (Korthikanti et al. 2022, section 4.2.2), whose exit is an exchange with
 * own_rows. On one node the matrix lies in a shared window, where each rank writes its rows and
 * reads those of the others: nothing is copied. Across nodes, or when /dev/shm is short, each rank
 * has the matrix, and rows go by messages.
 *
 *     gather_begin(gather);         // Collective: nobody reads any more what was there
 *     ... write this rank's rows of gather_whole(gather) ...
 *     gather_rows(gather);          // Collective: all rows are there, until the next begin
 *
 * The other way, where ranks have elements all over the matrix and each wants its rows:
 *
 *     gather_begin_scatter(gather);
 *     ... write elements of gather_whole(gather); none is written on more than one rank ...
 *     gather_scatter(gather, own);  // Collective: own holds this rank's rows
 *
 * For NULL, a rank that has all rows by itself, begin and rows do nothing. */
#ifndef WEFT_COMM_GATHER_H
#define WEFT_COMM_GATHER_H

#include "comm/exchange.h"

typedef struct Gather Gather;

typedef struct {
    Group group;
    const AxisLayout *rows; /* over the group's ranks; copied */
    int64_t cols;
    Reduction reduction; /* REDUCTION_ALLREDUCE: by messages, as its sums are */
    Transport transport;
    int threads;
} GatherSpec;

/* 0, or WEFT_USAGE / WEFT_RUNTIME, agreed by all. Collective over GROUP_GRID. */
int gather_open(Gather **out, Grid *grid, const GatherSpec *spec);
void gather_close(Gather *gather); /* NULL is fine. Collective over the group. */

/* [rows, cols], contiguous; it stays where it is until the close. */
Tensor gather_whole(const Gather *gather);

void gather_begin(Gather *gather); /* Collective over the group. */
void gather_rows(Gather *gather);  /* Collective over the group. */

void gather_begin_scatter(Gather *gather); /* Collective over the group. */
/* own: [this rank's rows, cols], contiguous. Elements that nobody wrote are undefined. Collective
 * over the group. */
void gather_scatter(Gather *gather, Tensor own);

const char *gather_transport(const Gather *gather); /* "none", "window" or "messages" */

/* Bytes that this rank holds for it (of a window: its own rows); and the same number before
 * anything is opened (MPI isn't needed), TRANSPORT_AUTO taken as a window. */
size_t gather_bytes(const Gather *gather);
size_t gather_bytes_predicted(const GatherSpec *spec, int rank);

/* Bytes that a gather_rows or a gather_scatter brings to rank `rank`, as the grid's counters count
 * them. 0 on one rank. */
int64_t gather_received_predicted(const GatherSpec *spec, int rank);
int64_t gather_scatter_received_predicted(const GatherSpec *spec, int rank);

#endif
