#include "cli/command.h"
#include "run/plan.h"

int command_plan(int argc, char **argv) {
    Arguments arguments;
    Config config;
    arguments_parse(&arguments, argc, argv, "stdn", "CONFIG",
                    "Parameters, layout and memory of a run, without running it.");
    int status = arguments_config(&arguments, arguments.path, &config);
    if (!status) status = plan_print(&config, arguments.ranks, arguments.tp, arguments.dp);
    return command_finish(NULL, status);
}
