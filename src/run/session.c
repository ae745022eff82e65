#include "run/session.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "math/gemm.h"
#include "run/identity.h"
#include "run/layout.h"
#include "run/setup.h"

#include <omp.h>
#include <stdlib.h>

static int same_everywhere(Grid *grid, const Config *config) {
    int status = comm_same_text(grid, GROUP_WORLD, "the program", identity_program());
    if (status) return status;
    char *text = config_format(config);
    status =
        comm_agree(grid, GROUP_WORLD, text ? 0 : error_set(WEFT_RUNTIME, "out of memory: config"));
    if (!status) status = comm_same_text(grid, GROUP_WORLD, "the config", text);
    free(text);
    return status;
}

/* Rank 0's choice is everybody's: the threads of nodes may differ. */
static int lay_out(Session *session, const Config *config, int tp, int dp) {
    Grid *grid = session->grid;
    LayoutChoice choice;
    int status = layout_choose(config, grid->world_size, session->threads, tp, dp, &choice);
    status = comm_agree(grid, GROUP_WORLD, status);
    if (status) return status;
    comm_broadcast(grid, GROUP_WORLD, &choice, sizeof choice, 0);
    char text[256];
    layout_describe(&choice, grid->world_size, text, sizeof text);
    log_info("%s; %d thread%s a rank", text, session->threads, session->threads == 1 ? "" : "s");
    return grid_open(grid, choice.tp, choice.dp);
}

static void end_watch(Grid *grid) {
    watch_close(grid->watch);
    grid->watch = NULL;
}

static int open_session(Session *session, const Config *config, int tp, int dp) {
    Grid *grid = session->grid;
    int status = fault_point(PHASE_STARTUP);
    if (!status) status = gemm_setup();
    status = comm_agree(grid, GROUP_WORLD, status);
    if (!status) status = same_everywhere(grid, config);
    if (!status) status = lay_out(session, config, tp, dp);
    return status;
}

int session_open(Session *session, Grid *grid, const Config *config, int tp, int dp) {
    *session = (Session){grid, setup_threads(config, grid->node_ranks)};
    fault_set_rank(grid->world_rank);
    omp_set_dynamic(0);
    omp_set_num_threads(session->threads);
    grid->watch = watch_open(grid->world_rank, config->train.hang_timeout);
    int status = open_session(session, config, tp, dp);
    if (grid->surplus || status) end_watch(grid); /* a surplus rank waits for the whole run */
    return status;
}

int session_close(Session *session, int status) {
    status = grid_wait_surplus(session->grid, status);
    end_watch(session->grid);
    grid_close(session->grid);
    return status;
}
