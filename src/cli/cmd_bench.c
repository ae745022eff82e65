#include "base/error.h"
#include "bench/bench.h"
#include "cli/command.h"

#include <stdio.h>

/* With the parts, which the help shows after the options. */
static const char *summary(void) {
    static char text[1024];
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "Times training steps, or another part, against what this "
                                   "machine can do at best, in turn.\v");
    for (const BenchPart *part = bench_parts; part->name && used < sizeof text; part++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%-12s%s\n", part->name,
                                 part->summary);
    return text;
}

int command_bench(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    const BenchPart *part = NULL;
    arguments_parse(&arguments, argc, argv, "stdjJV", "CONFIG", summary());
    int status = bench_find(arguments.part, &part);
    if (!status) status = arguments_config(&arguments, arguments.path, &config);
    if (!status && arguments.serve && arguments.part)
        status = error_set(WEFT_USAGE, "--part %s: --serve answers for training steps alone",
                           arguments.part);
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
