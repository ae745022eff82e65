/* The world and the grid: start, communicators, surplus ranks, stop. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/launcher.h"
#include "comm/mpi_grid.h"
#include "tensor/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const double SURPLUS_NAP = 0.010; /* seconds between two looks of a waiting rank */

void grid_serial(Grid *grid) { *grid = (Grid){.world_size = 1, .node_ranks = 1, .tp = 1, .dp = 1}; }

void grid_alone(Grid *grid, int tp, int dp, int tensor_rank, int data_rank) {
    *grid = (Grid){.world_rank = data_rank * tp + tensor_rank,
                   .world_size = tp * dp,
                   .node_ranks = 1,
                   .tp = tp,
                   .dp = dp,
                   .tensor_rank = tensor_rank,
                   .data_rank = data_rank,
                   .alone = true};
}

/* MPI's default handler ends the job as well, but with an exit code of its own. */
static void end_job(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(*code, text, &length);
    log_error("MPI failed: %s", text);
    MPI_Abort(MPI_COMM_WORLD, -WEFT_RUNTIME);
}

/* mpirun tells Open MPI to yield while it waits only when it knows that ranks outnumber cores,
 * which `--host localhost:8` hides from it. */
static void yield_when_crowded(void) {
    if (launcher_local_ranks() > sysconf(_SC_NPROCESSORS_ONLN))
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

static int start_mpi(bool *started) {
    int running, provided;
    MPI_Initialized(&running);
    *started = !running;
    if (running) {
        MPI_Query_thread(&provided);
    } else {
        yield_when_crowded();
        MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    }
    if (provided >= MPI_THREAD_FUNNELED) return 0;
    return error_set(WEFT_RUNTIME, "this MPI library does not allow threads beside the one that "
                                   "communicates (MPI_THREAD_FUNNELED): use one that does");
}

int comm_start(Grid *grid) {
    grid_serial(grid);
    int running;
    MPI_Initialized(&running);
    if (!running && !launcher_present()) return 0;
    bool started;
    int status = start_mpi(&started);
    if (status) return status;
    GridMpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return error_set(WEFT_RUNTIME, "out of memory for the communicators");
    mpi->started_mpi = started;
    for (int group = 0; group < GROUP_COUNT; group++) mpi->comm[group] = MPI_COMM_NULL;
    mpi->node = MPI_COMM_NULL;

    MPI_Comm *world = &mpi->comm[GROUP_WORLD];
    MPI_Comm_dup(MPI_COMM_WORLD, world);
    MPI_Comm_create_errhandler(end_job, &mpi->error_handler);
    MPI_Comm_set_errhandler(*world, mpi->error_handler); /* inherited by all that are split off */
    MPI_Comm_rank(*world, &grid->world_rank);
    MPI_Comm_size(*world, &grid->world_size);

    MPI_Comm node;
    MPI_Comm_split_type(*world, MPI_COMM_TYPE_SHARED, grid->world_rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &grid->node_ranks);
    MPI_Allreduce(&grid->world_rank, &grid->node_last, 1, MPI_INT, MPI_MAX, node);
    MPI_Comm_free(&node);
    grid->mpi = mpi;
    return 0;
}

void comm_stop(Grid *grid) {
    GridMpi *mpi = grid->mpi;
    if (!mpi) return;
    grid_close(grid);
    MPI_Comm_free(&mpi->comm[GROUP_WORLD]);
    MPI_Errhandler_free(&mpi->error_handler);
    if (mpi->started_mpi) MPI_Finalize();
    free(mpi);
    grid->mpi = NULL;
}

void comm_abort(Grid *grid, int exit_code) {
    fflush(NULL);
    if (grid->mpi) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static void group_by_node(Grid *grid) {
    GridMpi *mpi = grid->mpi;
    MPI_Comm_split_type(mpi->comm[GROUP_GRID], MPI_COMM_TYPE_SHARED, grid->world_rank,
                        MPI_INFO_NULL, &mpi->node);
    mpi->node_leader = grid->world_rank;
    MPI_Bcast(&mpi->node_leader, 1, MPI_INT, 0, mpi->node);
}

int grid_open(Grid *grid, int tp, int dp) {
    bool fits =
        tp >= 1 && dp >= 1 && tp <= SHARD_MAX && dp <= SHARD_MAX && tp * dp <= grid->world_size;
    if (!fits) {
        error_set(WEFT_USAGE,
                  "tp %d x dp %d does not fit %d ranks: both are from 1 to %d, and at least "
                  "tp * dp ranks must be started",
                  tp, dp, grid->world_size, SHARD_MAX);
        error_set_agreed(true);
        return WEFT_USAGE;
    }
    int rank = grid->world_rank;
    grid->tp = tp;
    grid->dp = dp;
    grid->surplus = rank >= tp * dp;
    grid->tensor_rank = grid->surplus ? -1 : rank % tp;
    grid->data_rank = grid->surplus ? -1 : rank / tp;
    if (!grid->mpi) return 0;

    GridMpi *mpi = grid->mpi;
    int colour[GROUP_COUNT] = {
        [GROUP_GRID] = grid->surplus ? MPI_UNDEFINED : 0,
        [GROUP_TENSOR] = grid->surplus ? MPI_UNDEFINED : grid->data_rank,
        [GROUP_DATA] = grid->surplus ? MPI_UNDEFINED : grid->tensor_rank,
    };
    comm_tell(grid, GROUP_WORLD, "setting up of groups");
    for (int group = GROUP_GRID; group < GROUP_COUNT; group++)
        MPI_Comm_split(mpi->comm[GROUP_WORLD], colour[group], rank, &mpi->comm[group]);
    if (!grid->surplus) group_by_node(grid);
    watch_leave(grid->watch);
    return 0;
}

void grid_close(Grid *grid) {
    GridMpi *mpi = grid->mpi;
    if (!mpi) return;
    comm_tell(grid, GROUP_WORLD, "closing of groups");
    for (int group = GROUP_GRID; group < GROUP_COUNT; group++)
        if (mpi->comm[group] != MPI_COMM_NULL) MPI_Comm_free(&mpi->comm[group]);
    if (mpi->node != MPI_COMM_NULL) MPI_Comm_free(&mpi->node);
    watch_leave(grid->watch);
    grid->tp = grid->dp = 1;
    grid->tensor_rank = grid->data_rank = 0;
    grid->surplus = false;
}

int grid_wait_surplus(Grid *grid, int status) {
    if (grid->world_size == grid->tp * grid->dp) return status;
    MPI_Request request;
    int lowest = status, done = 0;
    comm_tell(grid, GROUP_WORLD, "meeting at the end");
    MPI_Iallreduce(&status, &lowest, 1, MPI_INT, MPI_MIN, comm_of(grid, GROUP_WORLD), &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) clock_sleep(SURPLUS_NAP);
    watch_leave(grid->watch);
    if (grid->surplus && lowest) {
        error_set(lowest, "the ranks that this surplus rank waited for have failed");
        error_set_agreed(true);
    }
    return lowest;
}

int group_rank(const Grid *grid, Group group) {
    int in_grid = grid->surplus ? -1 : grid->data_rank * grid->tp + grid->tensor_rank;
    const int rank[GROUP_COUNT] = {grid->world_rank, in_grid, grid->tensor_rank, grid->data_rank};
    return rank[group];
}

int group_size(const Grid *grid, Group group) {
    const int size[GROUP_COUNT] = {grid->world_size, grid->tp * grid->dp, grid->tp, grid->dp};
    return size[group];
}

bool group_meets(const Grid *grid, Group group) {
    return !grid->alone && group_size(grid, group) > 1;
}
