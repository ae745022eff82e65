#include "cli/command.h"
#include "run/ping.h"

int command_ping(int argc, char **argv) {
    Arguments arguments;
    Grid grid;
    arguments_parse(&arguments, argc, argv, "", "",
                    "Measures latency and bandwidth between the "
                    "first rank and the last, as plan --net takes "
                    "them.");
    int status = command_start(&grid, 0);
    if (!status) status = ping_run(&grid);
    return command_finish(&grid, status);
}
