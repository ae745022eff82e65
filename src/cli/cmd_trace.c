#include "base/error.h"
#include "cli/command.h"
#include "run/trace.h"

/* A directory is a run or a checkpoint, anything else a config. */
static int read_model(const Arguments *arguments, Grid *grid, char directory[FILES_PATH],
                      Config *config) {
    int64_t is_directory = grid->world_rank == 0 && files_is_directory(arguments->path);
    comm_broadcast(grid, GROUP_WORLD, &is_directory, sizeof is_directory, 0);
    if (is_directory) return arguments_checkpoint(arguments, grid, directory, config);
    return comm_agree(grid, GROUP_WORLD, arguments_config(arguments, arguments->path, config));
}

int command_trace(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    Session session;
    char directory[FILES_PATH] = "";
    arguments_parse(&arguments, argc, argv, "stIRwuCx", "PATH",
                    "One forward pass of a checkpoint (PATH is its DIR) or of the initial weights "
                    "(PATH is a CONFIG), with every tensor whole, in order, into an HDF5 file: the "
                    "same bytes at every layout.");
    int status = command_start(&grid, 0);
    if (!status && (!arguments.input || !arguments.out))
        status = error_set(WEFT_USAGE, "--input FILE and --out FILE are expected");
    if (!status && arguments.tolerance > 0 && !arguments.against)
        status = error_set(WEFT_USAGE, "--tolerance is for --against FILE, which isn't there");
    status = comm_agree(&grid, GROUP_WORLD, status);
    if (!status) status = read_model(&arguments, &grid, directory, &config);
    TraceOptions options = {directory[0] ? directory : NULL,
                            arguments.input,
                            arguments.first,
                            arguments.out,
                            arguments.training,
                            arguments.against,
                            arguments.tolerance};
    if (!status) status = session_open(&session, &grid, &config, arguments.tp, 1);
    if (!status) {
        status = grid.surplus ? 0 : trace_run(&config, &options, &session);
        if (!status || error_is_agreed()) status = session_close(&session, status);
    }
    if (status != WEFT_CHECK) return command_finish(&grid, status);
    command_finish(&grid, 0); /* the verdict has been printed */
    return -status;
}
