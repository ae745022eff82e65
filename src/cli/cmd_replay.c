#include "base/error.h"
#include "cli/command.h"
#include "run/replay.h"

int command_replay(int argc, char **argv) {
    Arguments arguments;
    Replay replay = {.proof = NULL};
    Grid grid;
    Session session;
    arguments_parse(&arguments, argc, argv, "stdX", "DIR",
                    "Repeats the steps that followed a checkpoint and compares them with its "
                    "proof.json: exit 1 names the first step and tensor that differ. Writes "
                    "nothing.");
    int status = command_start(&grid, 0);
    if (!status) status = replay_open(&replay, &grid, arguments.path);
    Config config = replay.config;
    if (!status) {
        status = arguments_apply(&arguments, &config);
        if (!status) status = replay_check(&replay, &config);
        status = comm_agree(&grid, GROUP_WORLD, status);
    }
    if (!status) status = session_open(&session, &grid, &config, arguments.tp, arguments.dp);
    if (!status) {
        status = grid.surplus ? 0 : replay_run(&replay, &config, &session, arguments.tolerance);
        if (!status || error_is_agreed()) status = session_close(&session, status);
    }
    replay_close(&replay);
    if (status != WEFT_CHECK) return command_finish(&grid, status);
    command_finish(&grid, 0); /* the verdict has been printed */
    return -status;
}
