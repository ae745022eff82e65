#include "base/error.h"
#include "cli/command.h"
#include "run/plan.h"

static int compare(const Arguments *arguments, const Config *config) {
    const char *const names[] = {arguments->path, arguments->against};
    Config other;
    config_defaults(&other);
    int status = config_read(&other, arguments->against);
    if (!status) status = config_resolve(&other);
    if (!status) status = config_check(&other);
    if (status) return error_prefix(status, "--against ");
    return plan_compare(config, &other, names);
}

int command_plan(int argc, char **argv) {
    Arguments arguments;
    Config config;
    arguments_parse(&arguments, argc, argv, "stdnA", "CONFIG",
                    "Parameters, products, memory and traffic of a run, without running it.");
    int status = arguments_config(&arguments, arguments.path, &config);
    if (!status) status = plan_print(&config, arguments.ranks, arguments.tp, arguments.dp);
    if (!status && arguments.against) status = compare(&arguments, &config);
    return command_finish(NULL, status);
}
