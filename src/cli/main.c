/* weft COMMAND ...: the table of commands. */
#include "base/error.h"
#include "base/fault.h"
#include "build_id.h"
#include "cli/command.h"
#include "run/identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name, *arguments, *summary;
    int (*run)(int argc, char **argv);
} Command;

static const Command commands[] = {
    {"train", "CONFIG", "train, under mpirun, on any number of ranks", command_train},
    {"eval", "DIR", "loss of a checkpoint on the held-out part (mpirun)", command_eval},
    {"generate", "DIR", "text written by a checkpoint (mpirun)", command_generate},
    {"plan", "CONFIG", "parameters, layout and memory, without running", command_plan},
    {"bench", "CONFIG", "a training step, or part of one, against sgemm (mpirun)", command_bench},
    {"ping", "", "latency and bandwidth between the first rank and the last (mpirun)",
     command_ping},
    {"inspect", "DIR", "what a checkpoint holds, and its fingerprint", command_inspect},
    {"verify", "DIR", "re-read a checkpoint; exit 1 naming what is damaged", command_verify},
    {"diff", "A B", "how far two checkpoints are apart; exit 1 when they differ", command_diff},
    {"replay", "DIR", "repeat the steps after a checkpoint and compare (mpirun)", command_replay},
    {"gradcheck", "CONFIG", "every gradient against the loss itself, in double (mpirun)",
     command_gradcheck},
    {"trace", "PATH", "one forward, every tensor whole, into an HDF5 file (mpirun)", command_trace},
    {"reshard", "DIR", "the same state on another logical grid, in a new directory",
     command_reshard},
    {"convert", "SOURCE", "FFN weights in another layout, in a new HDF5 file", command_convert},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static int usage(FILE *stream) {
    fprintf(stream, "usage: weft COMMAND ...\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-9s %-7s %s\n", commands[i].name, commands[i].arguments,
                commands[i].summary);
    fprintf(stream, "  %-9s %-7s %s\n", "help", "config", "every key of a config");
    fprintf(stream,
            "\nweft COMMAND --help tells its options; weft --version the build and its BLAS.\n"
            "DIR is a run directory (its newest good checkpoint) or a step directory; PATH is\n"
            "a CONFIG or a DIR.\n");
    return stream == stdout ? 0 : 2;
}

static int help_on(const char *topic) {
    if (!strcmp(topic, "config")) {
        config_help();
        return 0;
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        char *command[] = {"weft", (char *)commands[i].name, "--help", NULL};
        if (!strcmp(topic, commands[i].name)) return commands[i].run(3, command);
    }
    fprintf(stderr, "weft: there is no help on \"%s\"\n", topic);
    return usage(stderr);
}

static int run(int argc, char **argv) {
    if (argc < 2) return usage(stderr);
    if (fault_parse_environment()) {
        fprintf(stderr, "weft: %s\n", error_message());
        return 2;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc, argv);
    if (!strcmp(argv[1], "help") && argc > 2) return help_on(argv[2]);
    if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help")) return usage(stdout);
    if (!strcmp(argv[1], "--version")) {
        printf("weft %s\n%s\n", WEFT_REVISION, identity_text());
        return 0;
    }
    fprintf(stderr, "weft: there is no command \"%s\"\n", argv[1]);
    return usage(stderr);
}

/* What was printed may be all that somebody has of it: a full disk isn't passed over. */
int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (!fflush(stdout) && !ferror(stdout)) return code;
    fprintf(stderr, "weft: error: can't write all of the output: %s\n", strerror(errno));
    return code ? code : -WEFT_RUNTIME;
}
