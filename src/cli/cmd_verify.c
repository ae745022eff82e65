#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"

static int none_in(const char *path) {
    return error_set(WEFT_INPUT, "%s: there is no checkpoint in it", path);
}

int command_verify(int argc, char **argv) {
    Arguments arguments;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "", "DIR",
                    "Re-reads a checkpoint; exit 1 naming the file and dataset that is damaged.");
    int64_t step;
    int status = checkpoint_newest(arguments.path, directory, &step);
    if (!status && !directory[0]) status = none_in(arguments.path);
    if (!status) status = checkpoint_verify(directory);
    if (status == WEFT_CHECK) return -status; /* each damage has been named already */
    if (!status) log_print("%s: good\n", directory);
    return command_finish(NULL, status);
}

int command_inspect(int argc, char **argv) {
    Arguments arguments;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "", "DIR", "Prints what a checkpoint holds.");
    int status = checkpoint_find(arguments.path, false, directory, FILES_PATH);
    if (!status && !directory[0]) status = none_in(arguments.path);
    if (!status) status = checkpoint_inspect(directory);
    return command_finish(NULL, status);
}
