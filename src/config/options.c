#include "config/options.h"

#include "base/error.h"
#include "tensor/philox.h"
#include "tensor/shard.h"

#include <math.h>
#include <string.h>

#define AT(section, key) #section, #key, offsetof(Config, section.key)

enum { MOST = INT32_MAX };

const Option options[OPTION_COUNT] = {
    {AT(run, dir), OPTION_TEXT, .initial = "",
     .help = "directory of the run: metrics, resolved config, checkpoints"},
    {AT(run, seed), OPTION_INTEGER, ROLE_DEFINES, .initial = "1", .least = 0, .most = INT64_MAX,
     .help = "key of initial weights, dropout masks and sample order"},
    {AT(run, threads), OPTION_INTEGER, .initial = "0", .least = 0, .most = 1024,
     .help = "threads of a rank; 0: cores of the node / ranks on it"},

    {AT(model, kind), OPTION_CHOICE, ROLE_DEFINES, .initial = "decoder", .choices = "decoder | mlp",
     .help = "decoder: pre-norm, rotary positions; mlp: rows of numbers through residual FFNs"},
    {AT(model, inputs), OPTION_INTEGER, ROLE_DEFINES, .initial = "0", .least = 0, .most = MOST,
     .help = "numbers in a row that an mlp reads", .only = "mlp"},
    {AT(model, outputs), OPTION_INTEGER, ROLE_DEFINES, .initial = "0", .least = 0, .most = MOST,
     .help = "classes, or numbers in a target, of an mlp", .only = "mlp"},
    {AT(model, loss), OPTION_CHOICE, ROLE_DEFINES, .initial = "cross_entropy",
     .choices = "cross_entropy | squared_error", .help = "of an mlp; cross_entropy is a decoder's",
     .only = "mlp"},
    {AT(model, vocab), OPTION_INTEGER, ROLE_DEFINES, .initial = "256", .least = 1, .most = MOST,
     .help = "number of different tokens", .only = "decoder"},
    {AT(model, d_model), OPTION_INTEGER, ROLE_DEFINES, .initial = "256", .least = 2, .most = MOST,
     .help = "width of the residual stream"},
    {AT(model, layers), OPTION_INTEGER, ROLE_DEFINES, .initial = "4", .least = 1,
     .most = PHILOX_MAX_LAYERS - 1, .help = "blocks"},
    {AT(model, heads), OPTION_INTEGER, ROLE_DEFINES, .initial = "8", .least = 1, .most = MOST,
     .help = "query heads", .only = "decoder"},
    {AT(model, kv_heads), OPTION_INTEGER, ROLE_DEFINES, .initial = "4", .least = 1, .most = MOST,
     .help = "key and value heads; heads must be a multiple", .only = "decoder"},
    {AT(model, context), OPTION_INTEGER, ROLE_ORDERS, .initial = "256", .least = 1, .most = MOST,
     .help = "tokens of a sequence; of an mlp 1"},
    {AT(model, tie_embeddings), OPTION_BOOLEAN, ROLE_DEFINES, .initial = "true",
     .help = "the lm head is the embedding table", .only = "decoder"},
    {AT(model, rope_theta), OPTION_NUMBER, ROLE_DEFINES, .initial = "10000", .low = 1, .high = 1e12,
     .help = "base of the rotary positions", .only = "decoder"},
    {AT(model, norm_eps), OPTION_NUMBER, ROLE_DEFINES, .initial = "1e-5", .low = 0, .high = 1,
     .ends = ENDS_OPEN_LOW, .help = "added to the mean square in RMSNorm"},

    {AT(ffn, kind), OPTION_CHOICE, ROLE_DEFINES, .initial = "gated",
     .choices = "gated | dense | dual",
     .help =
         "gated: down(act(gate(x)) * up(x)); dense: down(act(up(x))); dual: act on both branches"},
    {AT(ffn, activation), OPTION_CHOICE, ROLE_DEFINES, .initial = "silu",
     .choices = "silu | gelu | gelu_tanh | relu | quick_gelu | sigmoid | identity",
     .help = "act; gelu is the erf form"},
    {AT(ffn, swish_beta), OPTION_NUMBER, ROLE_DEFINES, .initial = "1", .low = 0.01, .high = 100,
     .help = "silu is z / (1 + exp(-beta z))", .later = true},
    {AT(ffn, gate_clamp), OPTION_NUMBER, ROLE_DEFINES, .initial = "0", .low = 0, .high = 1e6,
     .help = "gate's preactivation is at most this; 0: no limit", .later = true},
    {AT(ffn, linear_clamp), OPTION_NUMBER, ROLE_DEFINES, .initial = "0", .low = 0, .high = 1e6,
     .help = "up of a gated FFN is within +- this; 0: no limit", .later = true},
    {AT(ffn, linear_offset), OPTION_NUMBER, ROLE_DEFINES, .initial = "0", .low = -1e6, .high = 1e6,
     .help = "added to up of a gated FFN after its clamp", .later = true},
    {AT(ffn, d_ff), OPTION_INTEGER, ROLE_DEFINES, .initial = "0", .least = 1, .most = MOST,
     .help = "hidden channels; when not given, as ffn.width says, or 682"},
    {AT(ffn, width), OPTION_CHOICE, .initial = "explicit",
     .choices = "explicit | llama | floor | match",
     .help =
         "ffn.d_ff as given; llama: 2/3 of 4 d_model, times, up to a multiple; floor: 8/3 d_model; "
         "match: as many parameters as a dense FFN"},
    {AT(ffn, width_multiplier), OPTION_NUMBER, .initial = "0", .low = 0, .high = 1e3,
     .help = "of the llama rule; 0: none"},
    {AT(ffn, width_multiple_of), OPTION_INTEGER, .initial = "256", .least = 1, .most = MOST,
     .help = "of the llama rule"},
    {AT(ffn, match_d_ff), OPTION_INTEGER, .initial = "0", .least = 0, .most = MOST,
     .help = "match: width of the dense FFN whose parameter count is met; 0: 4 * model.d_model"},
    {AT(ffn, match_bias), OPTION_BOOLEAN, .initial = "false",
     .help = "match: the dense FFN has biases"},
    {AT(ffn, width_resolved), OPTION_BOOLEAN, .initial = "false",
     .help = "ffn.d_ff is what the rule gave: it stays (written by weft)"},
    {AT(ffn, bias), OPTION_BOOLEAN, ROLE_DEFINES, .initial = "false",
     .help = "biases in the projections of the FFN"},
    {AT(ffn, gate_bias), OPTION_CHOICE, ROLE_DEFINES, .initial = "auto",
     .choices = "auto | true | false", .help = "gate's; auto: as ffn.bias", .later = true},
    {AT(ffn, up_bias), OPTION_CHOICE, ROLE_DEFINES, .initial = "auto",
     .choices = "auto | true | false", .help = "up's; auto: as ffn.bias", .later = true},
    {AT(ffn, down_bias), OPTION_CHOICE, ROLE_DEFINES, .initial = "auto",
     .choices = "auto | true | false", .help = "down's; auto: as ffn.bias", .later = true},
    {AT(ffn, hidden_dropout), OPTION_NUMBER, ROLE_DEFINES, .initial = "0", .low = 0, .high = 1,
     .ends = ENDS_OPEN_HIGH, .help = "probability of dropping a hidden channel before down"},
    {AT(ffn, output_dropout), OPTION_NUMBER, ROLE_DEFINES, .initial = "0", .low = 0, .high = 1,
     .ends = ENDS_OPEN_HIGH, .help = "probability of dropping an output before the residual add"},

    {AT(init, std), OPTION_NUMBER, .initial = "0.02", .low = 0, .high = 10, .ends = ENDS_OPEN_LOW,
     .help = "standard deviation of initial weights"},
    {AT(init, scheme), OPTION_CHOICE, .initial = "fixed", .choices = "fixed | fan_in",
     .help = "fixed: init.std everywhere; fan_in: 1/sqrt(inputs) per projection of a layer"},

    {AT(grid, tensor), OPTION_INTEGER, .initial = "8", .least = 1, .most = SHARD_MAX,
     .help = "logical shards of the model: the most tensor ranks"},
    {AT(grid, data), OPTION_INTEGER, .initial = "4", .least = 1, .most = SHARD_MAX,
     .help = "logical shards of the batch: the most data ranks"},
    {AT(grid, reduction), OPTION_CHOICE, .initial = "exact", .choices = "exact | allreduce",
     .help = "exact: one tree at every layout; allreduce: MPI_Allreduce, not bit-identical"},
    {AT(grid, transport), OPTION_CHOICE, .initial = "auto", .choices = "auto | window | messages",
     .help = "how ranks of a node exchange; auto: shared windows where they fit"},

    {AT(parallel, sequence), OPTION_BOOLEAN, .initial = "false",
     .help = "tensor ranks share out the rows between the blocks: norms, adds, activation memory"},

    {AT(kernels, fusion), OPTION_CHOICE, .initial = "block",
     .choices = "eager | packed | gate | block",
     .help = "same bits; eager: each operation apart; packed: gate and up as one list; gate: "
             "activation while gate and up are in cache; block: output and residual add too"},

    {AT(train, steps), OPTION_INTEGER, .initial = "300", .least = 1, .most = MOST,
     .help = "steps of the whole run"},
    {AT(train, global_batch), OPTION_INTEGER, ROLE_ORDERS, .initial = "16", .least = 1,
     .most = MOST, .help = "sequences of a step: grid.data * train.micro_batch * accumulation"},
    {AT(train, micro_batch), OPTION_INTEGER, .initial = "2", .least = 1, .most = MOST,
     .help = "sequences of one forward and backward"},
    {AT(train, recompute), OPTION_CHOICE, .initial = "none", .choices = "none | act | block",
     .help = "what backward computes again: nothing, the pointwise work, the block"},
    {AT(train, drift_every), OPTION_INTEGER, .initial = "100", .least = 0, .most = MOST,
     .help = "compare replicas every n steps; 0: never"},

    {AT(train, on_nonfinite), OPTION_CHOICE, .initial = "stop", .choices = "stop | skip",
     .help = "a loss or norm not finite when computed again too; skip: no update, 10 in a row at "
             "most"},
    {AT(train, max_minutes), OPTION_NUMBER, .initial = "0", .low = 0, .high = 1e7,
     .help = "save and stop before this much time has passed; 0: never"},
    {AT(train, hang_timeout), OPTION_NUMBER, .initial = "300", .low = 0, .high = 1e7,
     .help = "seconds without progress after which a rank ends the job; 0: never"},

    {AT(optim, lr), OPTION_NUMBER, .initial = "1e-3", .low = 0, .high = 1e3,
     .help = "learning rate after the warm-up"},
    {AT(optim, min_lr), OPTION_NUMBER, .initial = "0", .low = 0, .high = 1e3,
     .help = "learning rate at the end of the cosine"},
    {AT(optim, beta1), OPTION_NUMBER, .initial = "0.9", .low = 0, .high = 1, .ends = ENDS_OPEN_HIGH,
     .help = "decay of the first moment"},
    {AT(optim, beta2), OPTION_NUMBER, .initial = "0.95", .low = 0, .high = 1,
     .ends = ENDS_OPEN_HIGH, .help = "decay of the second moment"},
    {AT(optim, eps), OPTION_NUMBER, .initial = "1e-8", .low = 0, .high = 1, .ends = ENDS_OPEN_LOW,
     .help = "added to the root of the second moment"},
    {AT(optim, weight_decay), OPTION_NUMBER, .initial = "0.1", .low = 0, .high = 1e3,
     .help = "decoupled decay of matrices"},
    {AT(optim, clip), OPTION_NUMBER, .initial = "1", .low = 0, .high = 1e9,
     .help = "largest global gradient norm; 0: no clipping"},
    {AT(optim, warmup), OPTION_INTEGER, .initial = "20", .least = 0, .most = MOST,
     .help = "steps in which the learning rate rises linearly"},
    {AT(optim, schedule), OPTION_CHOICE, .initial = "cosine", .choices = "cosine | constant",
     .help = "after the warm-up"},

    {AT(eval, every), OPTION_INTEGER, .initial = "100", .least = 0, .most = MOST,
     .help = "held-out loss every n steps; 0: never"},
    {AT(eval, sequences), OPTION_INTEGER, .initial = "0", .least = 0, .most = MOST,
     .help = "held-out sequences to take, evenly spread; 0: all"},

    {AT(checkpoint, every), OPTION_INTEGER, .initial = "100", .least = 0, .most = MOST,
     .help = "save every n steps; 0: at the end only"},
    {AT(checkpoint, keep), OPTION_INTEGER, .initial = "3", .least = 0, .most = MOST,
     .help = "newest checkpoints that stay; 0: all"},
    {AT(checkpoint, keep_every), OPTION_INTEGER, .initial = "0", .least = 0, .most = MOST,
     .help = "those of every n-th step stay as well; 0: none"},
    {AT(checkpoint, keep_best), OPTION_BOOLEAN, .initial = "false",
     .help = "the one with the lowest held-out loss stays as well"},
    {AT(checkpoint, minutes), OPTION_NUMBER, .initial = "0", .low = 0, .high = 1e7,
     .help = "save every n minutes too; 0: never"},
    {AT(checkpoint, async), OPTION_BOOLEAN, .initial = "true",
     .help = "a thread writes a copy of the state while training goes on"},
    {AT(checkpoint, on_error), OPTION_CHOICE, .initial = "stop", .choices = "stop | warn",
     .help = "after a save that failed: end the run, or go on without it"},
    {AT(checkpoint, proof_steps), OPTION_INTEGER, .initial = "2", .least = 0, .most = 64,
     .help = "steps after a checkpoint whose results its proof.json keeps; 0: none"},

    {AT(data, kind), OPTION_CHOICE, .initial = "text", .choices = "text | tokens | hdf5",
     .help =
         "text: bytes of a file; tokens: little-endian unsigned integers; hdf5: rows of numbers"},
    {AT(data, inputs), OPTION_TEXT, .initial = "inputs", .help = "hdf5: dataset [N, model.inputs]",
     .only = "mlp"},
    {AT(data, targets), OPTION_TEXT, .initial = "targets",
     .help = "hdf5: dataset [N, model.outputs], or [N] of classes", .only = "mlp"},
    {AT(data, normalise), OPTION_BOOLEAN, ROLE_DEFINES, .initial = "true",
     .help = "hdf5: inputs (and targets that aren't classes) to mean 0, deviation 1 by column",
     .only = "mlp"},
    {AT(data, train), OPTION_TEXT, .initial = "", .help = "file to train on"},
    {AT(data, held), OPTION_TEXT, .initial = "",
     .help = "held-out file; empty: the end of data.train"},
    {AT(data, held_out), OPTION_NUMBER, .initial = "0.05", .low = 0, .high = 1,
     .ends = ENDS_OPEN_HIGH, .help = "held-out part of data.train when data.held is empty"},
    {AT(data, token_bytes), OPTION_INTEGER, .initial = "2", .least = 2, .most = 4,
     .help = "size of a token in a tokens file: 2 or 4"},

    {AT(stats, every), OPTION_INTEGER, .initial = "0", .least = 0, .most = MOST,
     .help = "statistics of each layer's FFN into the metrics every n steps; 0: never"},
    {AT(stats, threshold), OPTION_NUMBER, .initial = "1e-3", .low = 0, .high = 1e6,
     .help = "the fraction of hidden values nearer to 0 than this is counted"},

    {AT(log, every), OPTION_INTEGER, .initial = "10", .least = 1, .most = MOST,
     .help = "a progress line every n steps when stderr isn't a terminal"},
};

int option_find(const char *section, const char *key) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!strcmp(options[i].section, section) && !strcmp(options[i].key, key)) return i;
    }
    return -1;
}

bool option_section_exists(const char *section) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!strcmp(options[i].section, section)) return true;
    }
    return false;
}

/* Levenshtein (1966): fewest insertions, deletions and substitutions that turn a into b. One row
 * of the table is kept. */
static int edit_distance(const char *a, const char *b) {
    int row[OPTION_NAME + 1];
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int substitute = diagonal + (a[i - 1] != b[j - 1]);
            int skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = substitute < skip ? substitute : skip;
        }
    }
    return row[n];
}

/* The right key in the wrong section is as near as one wrong letter, a part of a key ("dropout")
 * as two. */
static int name_distance(const char *name, const char *key, const char *known,
                         const char *known_key) {
    if (!strcmp(key, known_key)) return 1;
    int distance = edit_distance(name, known);
    bool part = strlen(key) > 2 && strstr(known_key, key);
    return part && distance > 2 ? 2 : distance;
}

int option_unknown(const char *section, const char *key) {
    char name[OPTION_NAME], best[OPTION_NAME] = "", known[OPTION_NAME];
    int least = 2 * OPTION_NAME;
    snprintf(name, sizeof name, "%s.%s", section, key);
    for (int i = 0; i < OPTION_COUNT; i++) {
        snprintf(known, sizeof known, "%s.%s", options[i].section, options[i].key);
        int distance = name_distance(name, key, known, options[i].key);
        if (distance >= least) continue;
        least = distance;
        memcpy(best, known, sizeof best);
    }
    return error_set(WEFT_USAGE, "unknown key %s; the nearest is %s", name, best);
}

int option_unknown_section(const char *section) {
    const char *best = options[0].section;
    for (int i = 1; i < OPTION_COUNT; i++) {
        if (edit_distance(section, options[i].section) < edit_distance(section, best))
            best = options[i].section;
    }
    return error_set(WEFT_USAGE, "unknown section [%s]; the nearest is [%s]", section, best);
}
