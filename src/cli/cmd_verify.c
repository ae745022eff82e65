#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/verify.h"
#include "cli/command.h"
#include "run/static.h"

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

static int verify_static(const char *directory) {
    StaticReport report;
    int status = static_verify(directory, &report);
    for (int i = 0; i < report.findings.count; i++) log_error("%s", report.findings.text[i]);
    for (int i = 0; i < report.notes.count; i++) log_print("note: %s\n", report.notes.text[i]);
    if (!status)
        log_print(
            "manifest: function, config and %d descriptive blocks agree\n"
            "%d tensors in %d roles: names, order, shapes, types, axes and pieces follow from "
            "the function\n"
            "%d files, %" PRId64 " datasets: names, shapes, types, attributes and sources are "
            "the manifest's\n"
            "%d biases: none missing, undeclared or zero-filled\n",
            report.blocks, report.tensors, report.roles, report.files, report.datasets,
            report.biases);
    else if (status == WEFT_CHECK)
        log_error("%s: %d finding%s", directory, report.findings.count,
                  report.findings.count == 1 ? "" : "s");
    static_release(&report);
    return status;
}

int command_verify(int argc, char **argv) {
    Arguments arguments;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "Dq", "DIR",
                    "Re-reads a checkpoint; exit 1 naming the file and dataset that is damaged.");
    int64_t step;
    int status = checkpoint_newest(arguments.path, directory, &step);
    if (!status && !directory[0]) status = none_in(arguments.path);
    if (!status && arguments.structure) status = verify_static(directory);
    if (!status && arguments.deep)
        status = verify_and_tell(directory);
    else if (!status && !arguments.structure)
        status = checkpoint_verify(directory);
    if (status == WEFT_CHECK) return -status; /* each damage has been named already */
    if (!status) log_print("%s: good\n", directory);
    return command_finish(NULL, status);
}

int command_inspect(int argc, char **argv) {
    Arguments arguments;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "P", "DIR", "Prints what a checkpoint holds.");
    int status = checkpoint_find(arguments.path, false, directory, FILES_PATH);
    if (!status && !directory[0]) status = none_in(arguments.path);
    if (!status) status = checkpoint_inspect(directory, arguments.pieces);
    return command_finish(NULL, status);
}
