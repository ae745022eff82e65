#include "bench/bench.h"
#include "cli/command.h"

int command_bench(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    const BenchPart *part = NULL;
    arguments_parse(&arguments, argc, argv, "stdjJV", "CONFIG",
                    "Times training steps, or another part, against what this machine can do at "
                    "best, in turn.");
    int status = bench_find(arguments.part, &part);
    if (!status) status = arguments_config(&arguments, arguments.path, &config);
    if (arguments.serve) {
        part = &bench_server;
        config.train.hang_timeout = 0; /* it waits as long as it is let */
    }
    if (!status) command_settle_blas(argv);
    if (!status) command_settle_waiting(&config, argv);
    status = command_start(&grid, status);
    if (!status)
        status = bench_run(&config, part, arguments.pairs, arguments.tp, arguments.dp, &grid);
    return command_finish(&grid, status);
}
