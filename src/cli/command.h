/* The subcommands: one row each in main.c, one file each. A command returns the program's exit
 * code. */
#ifndef WEFT_CLI_COMMAND_H
#define WEFT_CLI_COMMAND_H

#include "base/files.h"
#include "comm/comm.h"
#include "config/config.h"

enum { ARGUMENTS_SETS = 64, ARGUMENTS_RANKS = 6 };

/* What any command line can say; each command takes the options of its own list. */
typedef struct {
    const char *path, *path_name;    /* what was given for CONFIG or DIR; which of them */
    const char *other;               /* the second path, where path_name is two words: "A B" */
    const char *set[ARGUMENTS_SETS]; /* --set */
    int sets;
    int tp, dp;
    int ranks[ARGUMENTS_RANKS], ranks_count; /* numbers of ranks */
    int node_ranks;                          /* on each node */
    const char *net;                         /* LATENCY,BANDWIDTH */
    const char *resume;
    const char *against; /* what to compare with: a config, a file, a checkpoint */
    int64_t stop_at, bytes, seed;
    const char *prompt;
    double temperature, tolerance;
    bool verbose, deep, structure, pieces;
    int tensor, data; /* --data 0: not given */
    const char *out;
    bool dry_run;
    double bound;
    int64_t samples;
    const char *input;
    int64_t first; /* token or row of input */
    bool training;
    const char *from, *to, *from_names, *names; /* layouts of weights, and their names */
    int shards, packed_ranks;                   /* 0: not given */
    const char *part;                           /* of the bench */
    int pairs;
    bool serve;
} Arguments;

/* Parses `options`, a string of option letters: s set, t tp, d dp, r resume, e stop-at, b bytes, p
 * prompt, T temperature, S seed, n ranks, W net, z ranks-per-node, A against, x, X tolerance, v
 * verbose, D deep, q static, P pieces, G tensor, M data, o out, y dry-run, B bound, m samples, I
 * input, R first, C against (a file), u training. Of bench: j part, J pairs, V serve. Of convert: F
 * from, O to, f from-names, N names, a against, h shards, k ranks, w out. Prints usage and exits
 * with 2 on a bad command line, as every rank would say the same. */
void arguments_parse(Arguments *arguments, int argc, char **argv, const char *options,
                     const char *path_name, const char *summary);

/* Defaults, then the file `path` (NULL: none), then --set, then the check. 0 or WEFT_USAGE. */
int arguments_config(const Arguments *arguments, const char *path, Config *config);

/* --set, then the check. 0 or WEFT_USAGE. */
int arguments_apply(const Arguments *arguments, Config *config);

/* Under MPI: rank 0 looks for the checkpoint that `path` means, all get its directory and config
 * (with --set applied). Collective over the world; agreed errors. */
int arguments_checkpoint(const Arguments *arguments, Grid *grid, char directory[FILES_PATH],
                         Config *config);

/* Before MPI: when ranks x threads exceed the node's cores, waiting threads must sleep, which the
 * OpenMP library reads from the environment at its start: starts the program again with it set. */
void command_settle_waiting(const Config *config, char **argv);

/* Before MPI: the same when BLAS must be told of this machine's cores. */
void command_settle_blas(char **argv);

/* Starts MPI; from here on rank 0 alone speaks. `status` is what each rank has found out by itself
 * so far (its config, say). Collective. 0 or a negative code, agreed. */
int command_start(Grid *grid, int status);

/* Says what went wrong: once when all ranks know (or without MPI, grid NULL), else by the rank that
 * knows, which then ends the job. Returns the exit code. */
int command_finish(Grid *grid, int status);

int command_train(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_ping(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_reshard(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_replay(int argc, char **argv);
int command_gradcheck(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_convert(int argc, char **argv);

#endif
