#include "base/error.h"
#include "cli/command.h"
#include "run/plan.h"
#include "run/scaling_print.h"

static int read_other(const Arguments *arguments, Config *other) {
    config_defaults(other);
    int status = config_read(other, arguments->against);
    if (!status) status = config_resolve(other);
    if (!status) status = config_check(other);
    return status ? error_prefix(status, "--against ") : 0;
}

static int plan(const Arguments *arguments, const Config *config) {
    if (arguments->ranks_count > 1 || arguments->node_ranks)
        return error_set(WEFT_USAGE, "%s are for a prediction: --net LATENCY,BANDWIDTH is missing",
                         arguments->node_ranks ? "--ranks-per-node and several --ranks"
                                               : "several numbers of --ranks");
    return plan_print(config, arguments->ranks[0], arguments->tp, arguments->dp);
}

static int predict(const Arguments *arguments, const Config *config) {
    Network network;
    int status = network_parse(arguments->net, &network);
    if (status) return status;
    return scaling_print(config, &network, arguments->node_ranks ? arguments->node_ranks : 1,
                         arguments->ranks, arguments->ranks_count, arguments->tp, arguments->dp);
}

int command_plan(int argc, char **argv) {
    Arguments arguments;
    Config config, other;
    arguments_parse(&arguments, argc, argv, "stdnAWz", "CONFIG",
                    "Parameters, products, memory and traffic of a run, without running it; with "
                    "--net the time of "
                    "a step.");
    int status = arguments_config(&arguments, arguments.path, &config);
    if (!status && arguments.against) status = read_other(&arguments, &other);
    if (!status) status = arguments.net ? predict(&arguments, &config) : plan(&arguments, &config);
    if (!status && arguments.against)
        status =
            plan_compare(&config, &other, (const char *const[]){arguments.path, arguments.against});
    return command_finish(NULL, status);
}
