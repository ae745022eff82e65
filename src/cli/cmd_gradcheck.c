#include "base/error.h"
#include "cli/command.h"
#include "run/gradcheck.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Differences of a loss in float tell nothing: the same program in double, beside this one, goes on
 * in its place. Returns only when it can't. */
static int hand_over(char **argv) {
    char path[FILES_PATH];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "-f64");
    if (length < 0)
        return error_set(WEFT_RUNTIME, "/proc/self/exe can't be read: %s", strerror(errno));
    memcpy(path + length, "-f64", sizeof "-f64");
    if (!files_exists(path))
        return error_set(WEFT_USAGE,
                         "gradcheck computes in double, with a program that isn't there: %s (make "
                         "programs builds it)",
                         path);
    execv(path, argv);
    return error_set(WEFT_RUNTIME, "%s can't be started: %s", path, strerror(errno));
}

int command_gradcheck(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    Session session;
    arguments_parse(&arguments, argc, argv, "stdBmS", "CONFIG",
                    "Central differences of the loss, in double, against the gradient of every "
                    "tensor and of the first layer's input, shard by shard; exit 1 names the "
                    "tensor whose gradient is wrong. For small configs.");
    int status = sizeof(real) == 8 ? 0 : hand_over(argv);
    if (!status) status = arguments_config(&arguments, arguments.path, &config);
    if (!status) command_settle_waiting(&config, argv);
    status = command_start(&grid, status);
    GradcheckOptions options = {arguments.bound, arguments.samples, arguments.seed};
    if (!status) status = session_open(&session, &grid, &config, arguments.tp, arguments.dp);
    if (!status) {
        status = grid.surplus ? 0 : gradcheck_run(&config, &options, &session);
        if (!status || error_is_agreed()) status = session_close(&session, status);
    }
    if (status != WEFT_CHECK) return command_finish(&grid, status);
    command_finish(&grid, 0); /* the verdict has been printed */
    return -status;
}
