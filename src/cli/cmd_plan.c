#include "base/error.h"
#include "cli/command.h"
#include "run/plan.h"

static int read_other(const Arguments *arguments, Config *other) {
    config_defaults(other);
    int status = config_read(other, arguments->against);
    if (!status) status = config_resolve(other);
    if (!status) status = config_check(other);
    return status ? error_prefix(status, "--against ") : 0;
}

int command_plan(int argc, char **argv) {
    Arguments arguments;
    Config config, other;
    arguments_parse(&arguments, argc, argv, "stdnA", "CONFIG",
                    "Parameters, products, memory and traffic of a run, without running it.");
    int status = arguments_config(&arguments, arguments.path, &config);
    if (!status && arguments.against) status = read_other(&arguments, &other);
    if (!status) status = plan_print(&config, arguments.ranks, arguments.tp, arguments.dp);
    if (!status && arguments.against)
        status =
            plan_compare(&config, &other, (const char *const[]){arguments.path, arguments.against});
    return command_finish(NULL, status);
}
