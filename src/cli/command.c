#include "cli/command.h"

#include "base/error.h"
#include "base/log.h"
#include "run/setup.h"

#include <stdlib.h>
#include <unistd.h>

/* Ranks of this job on this node, as the launcher says it; 1 when it says nothing. */
static int local_ranks(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_LOCAL_SIZE",
                                        "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        long count = text ? strtol(text, NULL, 10) : 0;
        if (count > 0) return (int)count;
    }
    return 1;
}

void command_settle_waiting(const Config *config, char **argv) {
    int ranks = local_ranks();
    if (getenv("OMP_WAIT_POLICY") || setup_threads(config, ranks) * ranks <= setup_node_cores())
        return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

int command_start(Grid *grid, int status) {
    if (comm_start(grid)) exit(command_finish(NULL, WEFT_RUNTIME));
    log_enable(grid->world_rank == 0);
    return comm_agree(grid, GROUP_WORLD, status);
}

int command_finish(Grid *grid, int status) {
    bool alone = status && grid && !error_is_agreed() && grid->world_size > 1;
    if (alone) {
        log_error("rank %d: %s", grid->world_rank, error_message());
        comm_abort(grid, -status);
    }
    if (status && (!grid || grid->world_rank == 0)) log_error("%s", error_message());
    if (grid) comm_stop(grid);
    return -status;
}
