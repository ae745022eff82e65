#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "comm/launcher.h"
#include "run/gradcheck.h"
#include "run/state.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEY_SET = 's',
    KEY_TP = 't',
    KEY_DP = 'd',
    KEY_RESUME = 'r',
    KEY_STOP = 'e',
    KEY_BYTES = 'b',
    KEY_PROMPT = 'p',
    KEY_TEMPERATURE = 'T',
    KEY_SEED = 'S',
    KEY_RANKS = 'n',
    KEY_AGAINST = 'A',
    KEY_NET = 'W',
    KEY_NODE_RANKS = 'z',
    KEY_TOLERANCE = 'x',
    KEY_CLOSENESS = 'X',
    KEY_VERBOSE = 'v',
    KEY_DEEP = 'D',
    KEY_STATIC = 'q',
    KEY_PIECES = 'P',
    KEY_TENSOR = 'G',
    KEY_DATA = 'M',
    KEY_OUT = 'o',
    KEY_DRY_RUN = 'y',
    KEY_BOUND = 'B',
    KEY_SAMPLES = 'm',
    KEY_INPUT = 'I',
    KEY_FIRST = 'R',
    KEY_COMPARED = 'C',
    KEY_TRAINING = 'u',
    KEY_FROM = 'F',
    KEY_TO = 'O',
    KEY_FROM_NAMES = 'f',
    KEY_NAMES = 'N',
    KEY_SAME_AS = 'a',
    KEY_SHARDS = 'h',
    KEY_PACKED_RANKS = 'k',
    KEY_OUT_FILE = 'w',
    KEY_PART = 'j',
    KEY_PAIRS = 'J',
    KEY_SERVE = 'V',
    KEY_INJECT = 'i'
};

enum { HIDDEN = 256 }; /* argp shows keys that are printable as letters: ours are not letters */

static const struct argp_option all_options[] = {
    {"set", KEY_SET + HIDDEN, "SECTION.KEY=VALUE", 0, "overrides the config; may be repeated", 0},
    {"tp", KEY_TP + HIDDEN, "N", 0, "tensor-parallel ranks (chosen by default)", 0},
    {"dp", KEY_DP + HIDDEN, "N", 0, "data-parallel ranks (chosen by default)", 0},
    {"resume", KEY_RESUME + HIDDEN, "auto|DIR", 0,
     "continue from the newest checkpoint of the run that verifies, or from DIR", 0},
    {"stop-at", KEY_STOP + HIDDEN, "STEP", 0, "save at that step and end; the schedule stays", 0},
    {"bytes", KEY_BYTES + HIDDEN, "N", 0, "how many bytes to write (400)", 0},
    {"prompt", KEY_PROMPT + HIDDEN, "TEXT", 0, "what the text begins with", 0},
    {"temperature", KEY_TEMPERATURE + HIDDEN, "X", 0, "0 takes the likeliest byte (0.8)", 0},
    {"seed", KEY_SEED + HIDDEN, "N", 0, "of the random choices (1)", 0},
    {"ranks", KEY_RANKS + HIDDEN, "N[,N...]", 0, "plan for so many ranks (1); a list wants --net",
     0},
    {"net", KEY_NET + HIDDEN, "LATENCY,BANDWIDTH", 0,
     "predicts the time of a step on each number of ranks, from what this machine does in some "
     "seconds and a network between nodes, like 2us,10GB/s: ns, us, ms or s, and B/s, kB/s, MB/s, "
     "GB/s, kbit/s, Mbit/s or Gbit/s (`weft ping` measures one)",
     0},
    {"ranks-per-node", KEY_NODE_RANKS + HIDDEN, "N", 0, "of that prediction (1)", 0},
    {"against", KEY_AGAINST + HIDDEN, "OTHER", 0,
     "the FFN of another config (--set isn't for it) beside this one's", 0},
    {"tolerance", KEY_TOLERANCE + HIDDEN, "X", 0,
     "differences up to X times the tensor's largest magnitude count as equal (0)", 0},
    {"tolerance", KEY_CLOSENESS + HIDDEN, "X", 0,
     "loss and gradient norm may differ by X relative, and fingerprints aren't compared: for "
     "another kind of machine (0: every bit is compared)",
     0},
    {"verbose", KEY_VERBOSE + HIDDEN, NULL, 0, "a row for equal tensors too", 0},
    {"deep", KEY_DEEP + HIDDEN, NULL, 0,
     "also that values are finite, second moments not negative, proof.json whole; and what was "
     "checked",
     0},
    {"static", KEY_STATIC + HIDDEN, NULL, 0,
     "what must be there by the manifest alone, and whether it is, before any data are read; all "
     "that is found is told",
     0},
    {"pieces", KEY_PIECES + HIDDEN, NULL, 0, "also where the pieces lie, with their digests", 0},
    {"tensor", KEY_TENSOR + HIDDEN, "N", 0, "tensor shards of the new logical grid", 0},
    {"data", KEY_DATA + HIDDEN, "M", 0, "its data shards (as many as now)", 0},
    {"out", KEY_OUT + HIDDEN, "DIR", 0, "the new directory", 0},
    {"bound", KEY_BOUND + HIDDEN, "X", 0, "largest relative error that passes (1e-6)", 0},
    {"samples", KEY_SAMPLES + HIDDEN, "N", 0,
     "elements of each shard, beside its largest gradient (2); some times that of a tensor of few "
     "shards",
     0},
    {"input", KEY_INPUT + HIDDEN, "FILE", 0,
     "what the model reads: text or tokens, by data.kind; rows of an HDF5 file for an mlp", 0},
    {"first", KEY_FIRST + HIDDEN, "N", 0,
     "token or row of FILE to begin with (0); at most model.context tokens or 1024 rows are read",
     0},
    {"against", KEY_COMPARED + HIDDEN, "FILE", 0,
     "compare with the tensors of the same names in another HDF5 file; exit 1 names the first that "
     "differs",
     0},
    {"training", KEY_TRAINING + HIDDEN, NULL, 0, "with dropout, as in microbatch 0 of step 0", 0},
    {"dry-run", KEY_DRY_RUN + HIDDEN, NULL, 0, "print what would go where, touch nothing", 0},
    {"from", KEY_FROM + HIDDEN, "LAYOUT", 0,
     "of SOURCE, unless it is a checkpoint or a file of weft's, which say it", 0},
    {"to", KEY_TO + HIDDEN, "LAYOUT", 0, "of the new file", 0},
    {"from-names", KEY_FROM_NAMES + HIDDEN, "NAMES", 0, "what SOURCE calls its tensors (hf)", 0},
    {"names", KEY_NAMES + HIDDEN, "NAMES", 0, "what the new file calls them (hf)", 0},
    {"against", KEY_SAME_AS + HIDDEN, "DIR|FILE", 0,
     "a checkpoint, or a file of weft's, that SOURCE must compute the same as", 0},
    {"shards", KEY_SHARDS + HIDDEN, "N", 0, "of packed_shard (a checkpoint's grid)", 0},
    {"ranks", KEY_PACKED_RANKS + HIDDEN, "R", 0, "of packed_ranks", 0},
    {"out", KEY_OUT_FILE + HIDDEN, "FILE", 0, "the new file", 0},
    {"part", KEY_PART + HIDDEN, "NAME", 0, "what to measure (step): one of those below", 0},
    {"pairs", KEY_PAIRS + HIDDEN, "N", 0, "how often, in turn: 7 to 64 (9)", 0},
    {"serve", KEY_SERVE + HIDDEN, NULL, 0,
     "answer each line of stdin (step, gemm, memory, quit) with its seconds, or bytes", 0},
#ifdef WEFT_FAULTS
    {"inject", KEY_INJECT + HIDDEN, "KIND@rank=R,step=N,phase=P", 0, "a fault, for tests", 0},
#endif
    {0},
};

enum { OPTION_LIMIT = sizeof all_options / sizeof all_options[0] };

static int64_t parse_within(struct argp_state *state, const char *option, const char *text,
                            int64_t least, int64_t most) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        argp_error(state, "--%s %s: a whole number from %lld to %lld is expected", option, text,
                   (long long)least, (long long)most);
    return value;
}

static int64_t parse_integer(struct argp_state *state, const char *option, const char *text,
                             int64_t least) {
    return parse_within(state, option, text, least, INT32_MAX);
}

static double parse_number(struct argp_state *state, const char *option, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || value > 100)
        argp_error(state, "--%s %s: a number from 0 to 100 is expected", option, text);
    return value;
}

static bool has_ranks(const Arguments *a, long ranks) {
    bool found = false;
    for (int i = 0; i < a->ranks_count; i++) found |= a->ranks[i] == ranks;
    return found;
}

/* Whole numbers with commas between them; one that is given twice counts once. */
static void parse_ranks(Arguments *a, const char *text, struct argp_state *state) {
    const char *at = text;
    a->ranks_count = 0;
    for (char end = ','; end == ','; at++) {
        char *after;
        long ranks = strtol(at, &after, 10);
        end = *after;
        if (after == at || (end && end != ',') || ranks < 1 || ranks > INT32_MAX)
            argp_error(state,
                       "--ranks %s: a whole number from 1 to %d is expected, or several with "
                       "commas between them",
                       text, INT32_MAX);
        at = after;
        if (has_ranks(a, ranks)) continue;
        if (a->ranks_count == ARGUMENTS_RANKS)
            argp_error(state, "--ranks %s: at most %d numbers are possible", text, ARGUMENTS_RANKS);
        a->ranks[a->ranks_count++] = (int)ranks;
    }
}

/* One path, or two where path_name is two words. */
static bool wants_two(const Arguments *a) { return strchr(a->path_name, ' ') != NULL; }

static error_t take_path(Arguments *a, const char *text, struct argp_state *state) {
    if (!*a->path_name) {
        argp_error(state, "%s: nothing is expected", text);
    } else if (!a->path) {
        a->path = text;
    } else if (wants_two(a) && !a->other) {
        a->other = text;
    } else {
        argp_error(state, "%s: %s expected, %s came first", text,
                   wants_two(a) ? "two paths are" : "one path is", a->path);
    }
    return 0;
}

static void check_paths(const Arguments *a, struct argp_state *state) {
    if (!*a->path_name) return;
    if (!a->path || (wants_two(a) && !a->other))
        argp_error(state, "%s %s expected", a->path_name, wants_two(a) ? "are" : "is");
}

/* What convert or bench alone knows. */
static error_t parse_own_option(Arguments *a, int key, char *text, struct argp_state *state) {
    switch (key) {
    case KEY_FROM + HIDDEN: a->from = text; return 0;
    case KEY_TO + HIDDEN: a->to = text; return 0;
    case KEY_FROM_NAMES + HIDDEN: a->from_names = text; return 0;
    case KEY_NAMES + HIDDEN: a->names = text; return 0;
    case KEY_SHARDS + HIDDEN: a->shards = (int)parse_integer(state, "shards", text, 1); return 0;
    case KEY_PACKED_RANKS + HIDDEN:
        a->packed_ranks = (int)parse_integer(state, "ranks", text, 1);
        return 0;
    case KEY_PART + HIDDEN: a->part = text; return 0;
    case KEY_SERVE + HIDDEN: a->serve = true; return 0;
    case KEY_PAIRS + HIDDEN:
        a->pairs = (int)parse_within(state, "pairs", text, BENCH_LEAST_PAIRS, FIGURE_MOST);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    Arguments *a = state->input;
    switch (key) {
    case KEY_SET + HIDDEN:
        if (a->sets == ARGUMENTS_SETS) argp_error(state, "more than %d --set", ARGUMENTS_SETS);
        if (!strchr(text, '='))
            argp_error(state, "--set %s: expected section.key=value, without blanks", text);
        a->set[a->sets++] = text;
        return 0;
    case KEY_TP + HIDDEN: a->tp = (int)parse_integer(state, "tp", text, 1); return 0;
    case KEY_DP + HIDDEN: a->dp = (int)parse_integer(state, "dp", text, 1); return 0;
    case KEY_RESUME + HIDDEN: a->resume = text; return 0;
    case KEY_STOP + HIDDEN: a->stop_at = parse_integer(state, "stop-at", text, 1); return 0;
    case KEY_BYTES + HIDDEN: a->bytes = parse_integer(state, "bytes", text, 0); return 0;
    case KEY_PROMPT + HIDDEN: a->prompt = text; return 0;
    case KEY_TEMPERATURE + HIDDEN:
        a->temperature = parse_number(state, "temperature", text);
        return 0;
    case KEY_SEED + HIDDEN: a->seed = parse_integer(state, "seed", text, 0); return 0;
    case KEY_CLOSENESS + HIDDEN:
    case KEY_TOLERANCE + HIDDEN: a->tolerance = parse_number(state, "tolerance", text); return 0;
    case KEY_VERBOSE + HIDDEN: a->verbose = true; return 0;
    case KEY_DEEP + HIDDEN: a->deep = true; return 0;
    case KEY_STATIC + HIDDEN: a->structure = true; return 0;
    case KEY_PIECES + HIDDEN: a->pieces = true; return 0;
    case KEY_TENSOR + HIDDEN: a->tensor = (int)parse_integer(state, "tensor", text, 1); return 0;
    case KEY_DATA + HIDDEN: a->data = (int)parse_integer(state, "data", text, 1); return 0;
    case KEY_OUT_FILE + HIDDEN:
    case KEY_OUT + HIDDEN: a->out = text; return 0;
    case KEY_DRY_RUN + HIDDEN: a->dry_run = true; return 0;
    case KEY_BOUND + HIDDEN: a->bound = parse_number(state, "bound", text); return 0;
    case KEY_SAMPLES + HIDDEN: a->samples = parse_integer(state, "samples", text, 0); return 0;
    case KEY_INPUT + HIDDEN: a->input = text; return 0;
    case KEY_FIRST + HIDDEN: a->first = parse_integer(state, "first", text, 0); return 0;
    case KEY_TRAINING + HIDDEN: a->training = true; return 0;
    case KEY_COMPARED + HIDDEN:
    case KEY_SAME_AS + HIDDEN:
    case KEY_AGAINST + HIDDEN: a->against = text; return 0;
    case KEY_RANKS + HIDDEN: parse_ranks(a, text, state); return 0;
    case KEY_NET + HIDDEN: a->net = text; return 0;
    case KEY_NODE_RANKS + HIDDEN:
        a->node_ranks = (int)parse_integer(state, "ranks-per-node", text, 1);
        return 0;
#ifdef WEFT_FAULTS
    case KEY_INJECT + HIDDEN:
        if (fault_parse(text)) argp_error(state, "%s", error_message());
        return 0;
#endif
    case ARGP_KEY_ARG: return take_path(a, text, state);
    case ARGP_KEY_END: check_paths(a, state); return 0;
    default: return parse_own_option(a, key, text, state);
    }
}

/* While argp may end the program on a rank that keeps silent. The launcher ends the others as soon
 * as one has ended, so it waits for the first rank's words. */
static bool silent_parse;

static void let_the_first_speak(void) {
    if (silent_parse) clock_sleep(0.5);
}

/* All ranks find the same mistake, or print the same help: the first one is enough. */
static void parse_once(const struct argp *argp, int argc, char **argv, Arguments *arguments) {
    int null = launcher_rank() == 0 ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    int out = dup(1), err = dup(2);
    silent_parse = null >= 0;
    if (silent_parse) {
        atexit(let_the_first_speak);
        dup2(null, 1);
        dup2(null, 2);
        close(null);
    }
    argp_parse(argp, argc, argv, 0, NULL, arguments);
    silent_parse = false;
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
}

void arguments_parse(Arguments *arguments, int argc, char **argv, const char *options,
                     const char *path_name, const char *summary) {
    struct argp_option chosen[OPTION_LIMIT];
    int count = 0;
    for (int i = 0; all_options[i].name; i++)
        if (strchr(options, all_options[i].key - HIDDEN) ||
            all_options[i].key == KEY_INJECT + HIDDEN)
            chosen[count++] = all_options[i];
    chosen[count] = (struct argp_option){0};
    *arguments = (Arguments){.path_name = path_name,
                             .bytes = 400,
                             .seed = 1,
                             .prompt = "",
                             .temperature = 0.8,
                             .ranks = {1},
                             .ranks_count = 1,
                             .pairs = BENCH_PAIRS,
                             .bound = GRADCHECK_BOUND,
                             .samples = GRADCHECK_SAMPLES};
    struct argp argp = {chosen, parse_option, path_name, summary, NULL, NULL, NULL};
    static char name[64];
    snprintf(name, sizeof name, "weft %s", argv[1]);
    char *command = argv[1];
    argv[1] = name; /* what argp's messages begin with */
    argp_err_exit_status = 2;
    parse_once(&argp, argc - 1, argv + 1, arguments);
    argv[1] = command;
}

int arguments_apply(const Arguments *arguments, Config *config) {
    for (int i = 0; i < arguments->sets; i++)
        if (config_set(config, arguments->set[i])) return WEFT_USAGE;
    int status = config_resolve(config);
    return status ? status : config_check(config);
}

int arguments_config(const Arguments *arguments, const char *path, Config *config) {
    config_defaults(config);
    int status = path ? config_read(config, path) : 0;
    return status ? status : arguments_apply(arguments, config);
}

int arguments_checkpoint(const Arguments *arguments, Grid *grid, char directory[FILES_PATH],
                         Config *config) {
    int status = 0;
    memset(directory, 0, FILES_PATH);
    if (grid->world_rank == 0) {
        status = checkpoint_find(arguments->path, true, directory, FILES_PATH);
        if (!status && !directory[0])
            status = error_set(WEFT_INPUT, "%s: there is no checkpoint in it", arguments->path);
    }
    status = comm_agree(grid, GROUP_WORLD, status);
    if (status) return status;
    comm_broadcast(grid, GROUP_WORLD, directory, FILES_PATH, 0);
    status = state_config(directory, config);
    if (!status) status = arguments_apply(arguments, config);
    if (!status) status = state_check_function(config, directory);
    return comm_agree(grid, GROUP_WORLD, status);
}
