/* The configuration: one table of options (options.c); nothing parses elsewhere. `--set
 * section.key=value` goes through the same row as the INI file's line. Errors name the key, the
 * value, what is allowed, and for an unknown key the nearest one.
 *
 *     config_defaults(&config);
 *     config_read(&config, "configs/x.ini");
 *     config_set(&config, "optim.lr=1e-3") ...
 *     config_resolve(&config);
 *     config_check(&config);
 *
 * Every option has one of three roles. Some define the function that is trained: they are
 * fingerprinted and must agree at resume. Some define the sample order: likewise. All others only
 * steer what comes next, and a resume may change them. */
#ifndef WEFT_CONFIG_CONFIG_H
#define WEFT_CONFIG_CONFIG_H

#include "math/activation.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line of an INI file, which inih cuts at 197 characters, must hold the longest key and text. */
#define CONFIG_TEXT   184
#define CONFIG_CHOICE 32

typedef struct {
    struct {
        char dir[CONFIG_TEXT];
        int64_t seed;
        int64_t threads; /* 0: node cores / ranks on the node */
    } run;
    struct {
        char kind[CONFIG_CHOICE]; /* decoder | mlp */
        int64_t inputs, outputs;  /* mlp */
        char loss[CONFIG_CHOICE]; /* cross_entropy | squared_error */
        int64_t vocab, d_model, layers, heads, kv_heads, context;
        bool tie_embeddings;
        double rope_theta, norm_eps;
    } model;
    struct {
        char kind[CONFIG_CHOICE];                                   /* a row of ffn_kinds */
        char activation[CONFIG_CHOICE];                             /* a row of activations */
        double swish_beta, gate_clamp, linear_clamp, linear_offset; /* clamps: 0: none */
        int64_t d_ff;
        char width[CONFIG_CHOICE]; /* explicit | llama | floor | match */
        double width_multiplier;   /* 0: none */
        int64_t width_multiple_of, match_d_ff;
        bool match_bias, width_resolved;
        bool bias;
        char gate_bias[CONFIG_CHOICE], up_bias[CONFIG_CHOICE], down_bias[CONFIG_CHOICE]; /* auto |
                                                                                true | false */
        double hidden_dropout, output_dropout;
    } ffn;
    struct {
        double std;
        char scheme[CONFIG_CHOICE]; /* fixed | fan_in */
    } init;
    struct {
        int64_t tensor, data;
        char reduction[CONFIG_CHOICE]; /* exact | allreduce */
        char transport[CONFIG_CHOICE]; /* auto | window | messages */
    } grid;
    struct {
        bool sequence;
    } parallel;
    struct {
        char fusion[CONFIG_CHOICE]; /* eager | packed | gate | block */
    } kernels;
    struct {
        int64_t steps, global_batch, micro_batch;
        char recompute[CONFIG_CHOICE];    /* none | act | block */
        int64_t drift_every;              /* compare replicas every n steps; 0: never */
        char on_nonfinite[CONFIG_CHOICE]; /* stop | skip */
        double max_minutes, hang_timeout; /* minutes, seconds; 0: no limit */
    } train;
    struct {
        double lr, min_lr, beta1, beta2, eps, weight_decay, clip; /* clip 0: no clipping */
        int64_t warmup;
        char schedule[CONFIG_CHOICE]; /* cosine | constant */
    } optim;
    struct {
        int64_t every, sequences; /* every 0: never; sequences 0: the whole held-out part */
    } eval;
    struct {
        int64_t every, keep; /* every 0: at the end only; keep 0: all */
        int64_t keep_every;  /* 0: none beside the newest */
        bool keep_best, async;
        double minutes;               /* 0: never by the clock */
        char on_error[CONFIG_CHOICE]; /* stop | warn */
        int64_t proof_steps;          /* 0: no proofs */
    } checkpoint;
    struct {
        char kind[CONFIG_CHOICE];                       /* text | tokens | hdf5 */
        char inputs[CONFIG_TEXT], targets[CONFIG_TEXT]; /* datasets of hdf5 */
        bool normalise;
        char train[CONFIG_TEXT], held[CONFIG_TEXT];
        double held_out;
        int64_t token_bytes;
    } data;
    struct {
        int64_t every;    /* 0: never */
        double threshold; /* of |hidden| */
    } stats;
    struct {
        int64_t every; /* a log line every n steps when stderr isn't a terminal */
    } log;
} Config;

/* run.dir and data.train have no default: config_check wants them. */
void config_defaults(Config *config);

/* Reads an INI file over what is there. Returns 0, or WEFT_USAGE naming file, line and key; then
 * `config` is as it was. */
int config_read(Config *config, const char *path);

/* The same from text; `name` says in messages where it came from. */
int config_read_text(Config *config, const char *text, const char *name);

/* "section.key=value". ffn.width takes the place of an ffn.d_ff that was there, and the other way
 * round. Returns 0 or WEFT_USAGE. */
int config_set(Config *config, const char *assignment);

/* Replaces rules by what they give, once: ffn.d_ff by ffn.width (see config/width.h), and what one
 * key says of others (an mlp's context is 1). Returns 0 or WEFT_USAGE. */
int config_resolve(Config *config);

bool config_is_mlp(const Config *config); /* model.kind */

/* Whether each projection of the FFN has a bias: by its own key, else by ffn.bias. A kind without
 * gate has none there. */
typedef struct {
    bool gate, up, down;
} FfnBiases;
FfnBiases config_ffn_biases(const Config *config);

/* What its branches do to their values; no activation where there is none of that name. */
Branches config_branches(const Config *config);

/* What concerns several keys: divisibility, ranges that depend on each other, sizes that would
 * overflow. Returns 0 or WEFT_USAGE. */
int config_check(const Config *config);

/* The resolved config as an INI text with every key (free()): read back it gives the same Config.
 * NULL when memory is short. */
char *config_format(const Config *config);

/* All options with type, default, what is allowed and help, for `weft help config` (log_print). */
void config_help(void);

/* Lines "section.key before -> now" of the options that only steer and differ. NULL when there are
 * none; free(). */
char *config_changes(const Config *now, const Config *before);

/* What defines the function and the sample order: {"model": {...}, "ffn": {...}, "run": {"seed"},
 * "sample_order": {...}}, keys as in the config. `samples`: in an epoch. New reference, NULL when
 * memory is short. */
json_t *config_function(const Config *config, int64_t samples);

/* The other way: sets every option that such an object tells; one that it may leave out gets its
 * default, the others stay. Each field that is missing, unknown or impossible is told by its name,
 * and leaves its option as it was. Returns how many. */
int config_take_function(Config *config, const json_t *function,
                         void (*tell)(void *context, const char *problem), void *context);

/* The manifest's other blocks: everything that a reader of the tensors would else have to guess.
 * The same for every layout. New reference, NULL when memory is short. */
json_t *config_details(const Config *config);

#endif
