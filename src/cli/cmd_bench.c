#include "cli/command.h"
#include "run/bench.h"

int command_bench(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    arguments_parse(&arguments, argc, argv, "std", "CONFIG",
                    "Times training steps against this machine's single-call gemm, in turn.");
    int status = arguments_config(&arguments, arguments.path, &config);
    if (!status) command_settle_waiting(&config, argv);
    status = command_start(&grid, status);
    if (!status) status = bench_run(&config, arguments.tp, arguments.dp, &grid);
    return command_finish(&grid, status);
}
