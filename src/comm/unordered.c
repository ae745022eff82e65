#include "comm/unordered.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/exchange_internal.h"

#include <stdlib.h>

struct Unordered {
    Grid *grid;
    Group group;
    int threads;
    int64_t part;         /* elements of the largest part */
    real *room;           /* [ranks, part]: of this rank's part what others have sent */
    MPI_Request *request; /* [2 * ranks]: receives, then sends */
};

int unordered_open(Unordered **out, Grid *grid, Group group, int64_t elements, int threads) {
    int ranks = group_size(grid, group);
    Unordered *unordered = calloc(1, sizeof *unordered);
    *out = unordered;
    if (unordered) {
        *unordered = (Unordered){grid, group, threads, elements / ranks + 1, NULL, NULL};
        unordered->room = memory_allocate((size_t)(ranks * unordered->part) * sizeof(real),
                                          "the parts of an unordered sum");
        unordered->request = calloc(2 * (size_t)ranks, sizeof(MPI_Request));
    }
    bool good = unordered && unordered->room && unordered->request;
    return comm_agree(grid, GROUP_GRID,
                      good ? 0 : error_set(WEFT_RUNTIME, "out of memory for an unordered sum"));
}

void unordered_close(Unordered *unordered) {
    if (!unordered) return;
    free(unordered->room);
    free(unordered->request);
    free(unordered);
}

/* Everybody's parts go to their ranks; this rank's are added as they come. */
static void scatter(Unordered *unordered, real *y, int64_t elements) {
    int ranks = group_size(unordered->grid, unordered->group);
    int me = group_rank(unordered->grid, unordered->group);
    MPI_Comm comm = comm_of(unordered->grid, unordered->group);
    MPI_Request *send = unordered->request + ranks;
    Range mine = shard_range(elements, ranks, me);
    for (int rank = 0; rank < ranks; rank++) {
        unordered->request[rank] = send[rank] = MPI_REQUEST_NULL;
        if (rank != me)
            MPI_Irecv(unordered->room + rank * unordered->part, (int)range_size(mine),
                      MPI_REAL_TYPE, rank, 0, comm, &unordered->request[rank]);
    }
    for (int step = 1; step < ranks; step++) {
        int rank = (me + step) % ranks;
        Range part = shard_range(elements, ranks, rank);
        MPI_Isend(y + part.begin, (int)range_size(part), MPI_REAL_TYPE, rank, 0, comm, &send[rank]);
    }
    for (int left = 1; left < ranks; left++) {
        int rank;
        MPI_Waitany(ranks, unordered->request, &rank, MPI_STATUS_IGNORE);
        tree_add(y + mine.begin, unordered->room + rank * unordered->part, range_size(mine),
                 unordered->threads);
    }
    MPI_Waitall(ranks, send, MPI_STATUSES_IGNORE);
}

static void gather(const Unordered *unordered, real *y, int64_t elements) {
    int ranks = group_size(unordered->grid, unordered->group), count[SHARD_MAX], place[SHARD_MAX];
    for (int rank = 0; rank < ranks; rank++) {
        Range part = shard_range(elements, ranks, rank);
        count[rank] = (int)range_size(part);
        place[rank] = (int)part.begin;
    }
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, y, count, place, MPI_REAL_TYPE,
                   comm_of(unordered->grid, unordered->group));
}

void unordered_sum(Unordered *unordered, real *y, int64_t elements) {
    int ranks = group_size(unordered->grid, unordered->group);
    if (ranks == 1) return;
    double start = comm_enter(unordered->grid, unordered->group, "unordered sum");
    scatter(unordered, y, elements);
    gather(unordered, y, elements);
    comm_leave(unordered->grid, 2 * elements / ranks * (ranks - 1) * (int64_t)sizeof(real), start);
}
