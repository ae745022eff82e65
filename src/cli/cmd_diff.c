#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/diff.h"
#include "cli/command.h"

static int find(const char *path, char directory[FILES_PATH]) {
    int64_t step;
    int status = checkpoint_newest(path, directory, &step);
    if (status || directory[0]) return status;
    return error_set(WEFT_INPUT, "%s: there is no checkpoint in it", path);
}

int command_diff(int argc, char **argv) {
    Arguments arguments;
    char a[FILES_PATH], b[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "xv", "A B",
                    "How far two checkpoints, on whatever logical grids, are from each other: "
                    "tensor by tensor, then function, step and tokens. Exit 1 when they differ. "
                    "Equal means equal bits: +0 and -0 differ, by one ulp; a NaN equals only "
                    "itself.");
    int status = find(arguments.path, a);
    if (!status) status = find(arguments.other, b);
    DiffOptions options = {arguments.tolerance, arguments.verbose};
    if (!status) status = checkpoint_diff(a, b, &options);
    if (status == WEFT_CHECK) return -status; /* the table has told it */
    return command_finish(NULL, status);
}
