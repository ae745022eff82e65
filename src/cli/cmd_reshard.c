#include "base/error.h"
#include "cli/command.h"
#include "run/reshard.h"

int command_reshard(int argc, char **argv) {
    Arguments arguments;
    arguments_parse(&arguments, argc, argv, "GMoy", "DIR",
                    "Puts the state of a checkpoint on another logical grid: the same fingerprint, "
                    "in the new run directory --out. Needs no mpirun.");
    ReshardRequest request = {.from = arguments.path,
                              .out = arguments.out,
                              .tensor = arguments.tensor,
                              .data = arguments.data,
                              .dry_run = arguments.dry_run};
    int status = request.tensor && request.out ? reshard_directory(&request)
                                               : error_set(WEFT_USAGE, "reshard: --%s is needed",
                                                           request.tensor ? "out DIR" : "tensor N");
    return command_finish(NULL, status);
}
