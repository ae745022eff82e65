/* MPI, for everybody else: the world, the grid of tensor- and data-parallel ranks, agreement on
 * errors, and the few collectives weft needs. No other folder includes mpi.h. Sums of activations
 * and gradients are in exchange.h.
 *
 * Order: comm_start, grid_open, ..., grid_close, comm_stop. World rank r = data_rank * tp +
 * tensor_rank; ranks at or above tp * dp are surplus: they take no part and wait in
 * grid_wait_surplus without burning a core. A failure inside MPI ends the whole job, with its
 * message and exit code 4. In a group of one rank nothing here calls MPI. */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

#include "base/hash.h"
#include "base/real.h"
#include "base/stopwatch.h"
#include "base/watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { GROUP_WORLD, GROUP_GRID, GROUP_TENSOR, GROUP_DATA, GROUP_COUNT } Group;

typedef struct Grid {
    int world_rank, world_size;
    int node_ranks; /* ranks of the world on this node */
    int node_last;  /* of them, the highest in the world */
    int tp, dp;
    int tensor_rank, data_rank; /* -1 on surplus ranks */
    bool surplus;
    bool alone;           /* the others aren't there: see grid_alone */
    struct GridMpi *mpi;  /* communicators, owned by comm */
    Watch *watch;         /* told of every collective; NULL: none. The caller's. */
    Stopwatch *stopwatch; /* the same, of the time in those that are counted */
    struct {              /* since the last comm_counters_reset, in groups of two ranks and more */
        int64_t collectives;
        int64_t bytes; /* that this rank received, or read from others' windows */
        double seconds;
    } counters;
} Grid;

/* A grid of one rank without MPI, for tools: every collective returns at once. Nothing to stop. */
void grid_serial(Grid *grid);
/* One rank of tp x dp whose others aren't there, without MPI, to time what it does by itself: all
 * collectives return at once, and a sum is whatever this rank has of it. Nothing to stop. */
void grid_alone(Grid *grid, int tp, int dp, int tensor_rank, int data_rank);

/* MPI_Init_thread (funneled; left out when MPI is running already) and the world alone: until
 * grid_open the other groups consist of this rank. A program that no launcher has started is a
 * grid_serial: MPI would start a daemon for it. 0 or WEFT_RUNTIME. Collective. */
int comm_start(Grid *grid);
/* MPI_Finalize, if comm_start did MPI_Init_thread. Collective. */
void comm_stop(Grid *grid);
/* Ends all ranks at once with this exit code; for an error that only this rank knows of. */
void comm_abort(Grid *grid, int exit_code);

/* Lays tp * dp ranks over the world. 0 or WEFT_USAGE (same on all ranks). Collective over the
 * world. */
int grid_open(Grid *grid, int tp, int dp);
void grid_close(Grid *grid); /* Collective over the world. */
/* Surplus ranks sleep here until the others arrive (which they do at their end). All pass a status
 * (surplus ranks 0) and get the lowest of all. Collective over the world. */
int grid_wait_surplus(Grid *grid, int status);

int group_rank(const Grid *grid, Group group);
int group_size(const Grid *grid, Group group);
/* Whether there is anybody to talk to. */
bool group_meets(const Grid *grid, Group group);

/* Everybody passes 0 or a negative code (message set where it was seen). When one failed, all get
 * the code and the message of the lowest failing rank, marked as agreed. The message becomes
 * "rank R: ..." (R in the world) when only some ranks failed. Collective. */
int comm_agree(Grid *grid, Group group, int status);

void comm_barrier(Grid *grid, Group group);                                       /* Collective. */
void comm_broadcast(Grid *grid, Group group, void *bytes, size_t size, int root); /* Collective. */

/* The number that rank 0 of the group has, once it calls: the others sleep until then, whatever
 * other programs do with their cores. Not counted. Collective. */
void comm_await(Grid *grid, Group group, int64_t *number);

/* Each 8-byte word is nonzero on at most one rank: all ranks get it. Exact for any bits (a bitwise
 * or). Collective. */
void comm_assemble(Grid *grid, Group group, void *words, int64_t count);

/* Same bits for any order of ranks: +0 is above -0, and a NaN on any rank gives NaN. Collective. */
void comm_max_real(Grid *grid, Group group, real *values, int64_t count);
void comm_max_int64(Grid *grid, Group group, int64_t *values, int64_t count); /* Collective. */
void comm_sum_int64(Grid *grid, Group group, int64_t *values, int64_t count); /* Collective. */
void comm_sum_hash(Grid *grid, Group group, Hash128 *hash); /* modulo 2^128. Collective. */
void comm_sum_hashes(Grid *grid, Group group, Hash128 *hashes, int64_t count); /* Collective. */

/* all[rank * size ...] receives `size` bytes (below 2^31) of each rank. Collective. */
void comm_gather_all(Grid *grid, Group group, const void *mine, size_t size, void *all);

/* Point-to-point pieces, e.g. when the writer of a file isn't the owner of what goes in. All ranks
 * pass the same list in the same order; those that are neither source nor target of a piece skip
 * it; source == target copies. Sizes beyond 2^31 are cut into several messages. Collective. */
typedef struct {
    int source, target; /* ranks of the group */
    const void *from;   /* valid on the source */
    void *to;           /* valid on the target */
    size_t size;
} Piece;
void comm_move(Grid *grid, Group group, const Piece *pieces, int64_t count);

/* All ranks must have passed the same text: else WEFT_RUNTIME on all, naming the first rank that
 * differs and both texts (of long ones the line that differs). Collective. */
int comm_same_text(Grid *grid, Group group, const char *what, const char *text);

void comm_counters_reset(Grid *grid);

#endif
