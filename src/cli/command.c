#include "cli/command.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/launcher.h"
#include "math/gemm.h"
#include "run/setup.h"

#include <stdlib.h>
#include <unistd.h>

void command_settle_waiting(const Config *config, char **argv) {
    int ranks = launcher_local_ranks();
    if (getenv("OMP_WAIT_POLICY") || setup_threads(config, ranks) * ranks <= setup_node_cores())
        return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

void command_settle_blas(char **argv) {
    const char *core = gemm_blas_better_core();
    if (!core) return;
    setenv("OPENBLAS_CORETYPE", core, 1);
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
