#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/verify.h"
#include "cli/command.h"

#include <inttypes.h>

static int none_in(const char *path) {
    return error_set(WEFT_INPUT, "%s: there is no checkpoint in it", path);
}

static int verify_and_tell(const char *directory) {
    VerifyReport report;
    int status = verify_deep(directory, true, &report);
    if (status) return status;
    log_print("%d files, %" PRId64 " bytes: none missing, none extra\n"
              "%" PRId64 " datasets: type, shape, attributes and digest as in the manifest\n"
              "%d tensors in %d roles, %" PRId64 " cells: each in one dataset; all finite%s\n"
              "view: sources and values are those of the shard files\n"
              "manifest: its digests and its fingerprint, computed again from the data\n"
              "proof.json: %s\n",
              report.files, report.bytes, report.datasets, report.tensors, report.roles,
              report.cells, report.roles > 1 ? ", second moments not negative" : "",
              report.proof ? "whole, and of this checkpoint" : "none");
    return 0;
}

int command_verify(int argc, char **argv) {
    Arguments arguments;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "D", "DIR",
                    "Re-reads a checkpoint; exit 1 naming the file and dataset that is damaged.");
    int64_t step;
    int status = checkpoint_newest(arguments.path, directory, &step);
    if (!status && !directory[0]) status = none_in(arguments.path);
    if (!status)
        status = arguments.deep ? verify_and_tell(directory) : checkpoint_verify(directory);
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
