#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"

#include <string.h>

/* The step directory that `path` means: itself, or of a run directory the newest, whether good or
 * not. */
static int newest_step(const char *path, char directory[FILES_PATH]) {
    FileNames names;
    int status = files_list(path, &names);
    if (status) return status;
    const char *newest = NULL;
    for (int i = 0; i < names.count; i++)
        if (!strncmp(names.name[i], "step-", 5)) newest = names.name[i];
    status = newest ? files_join(directory, FILES_PATH, path, newest)
                    : files_join(directory, FILES_PATH, path, "");
    files_names_release(&names);
    if (status) return status;
    for (size_t end = strlen(directory); end > 1 && directory[end - 1] == '/'; end--)
        directory[end - 1] = '\0';
    return 0;
}

int command_verify(int argc, char **argv) {
    Arguments arguments;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "", "DIR",
                    "Re-reads a checkpoint; exit 1 naming the file and dataset that is damaged.");
    int status = newest_step(arguments.path, directory);
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
    if (!status && !directory[0])
        status = error_set(WEFT_INPUT, "%s: there is no checkpoint in it", arguments.path);
    if (!status) status = checkpoint_inspect(directory);
    return command_finish(NULL, status);
}
