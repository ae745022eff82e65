/* What the options must agree on, and what a config says to a resume and to a manifest. */
#include "base/error.h"
#include "config/options.h"
#include "support/support.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_message(const char *part) {
    ck_assert_msg(strstr(error_message(), part), "\"%s\" lacks \"%s\"", error_message(), part);
}

static void set(Config *config, const char *assignment) {
    ck_assert_msg(!config_set(config, assignment), "%s", error_message());
}

/* A small config that config_check accepts. */
static Config sound_config(void) {
    Config config;
    config_defaults(&config);
    set(&config, "run.dir=runs/x");
    set(&config, "data.train=x.txt");
    set(&config, "ffn.d_ff=682");
    return config;
}

static const struct {
    const char *set[6], *message; /* NULL: accepted */
} decoder_keys[] = {
    {{"run.seed=2"}, NULL},
    {{"run.dir="}, "run.dir is not set"},
    {{"data.train="}, "data.train is not set"},
    {{"model.heads=3", "model.kv_heads=3"},
     "model.d_model = 256 is not a multiple of model.heads = 3 (remainder 1)"},
    {{"model.d_model=24", "model.heads=8", "model.kv_heads=8"},
     "24 / 8 = 3: rotary positions need an even head width"},
    {{"model.kv_heads=3"}, "model.heads = 8 is not a multiple of model.kv_heads = 3"},
    {{"model.kv_heads=16"}, "model.heads = 8 is not a multiple of model.kv_heads = 16"},
    {{"model.kv_heads=1"}, NULL},
    {{"train.global_batch=20"},
     "train.global_batch = 20 is not a multiple of grid.data * train.micro_batch = 4 * 2 = 8; "
     "the nearest above is 24"},
    {{"train.global_batch=4"}, "the nearest above is 8"},
    {{"train.micro_batch=2147483647"}, "train.global_batch = 16 is not a multiple"},
    {{"train.global_batch=131072"}, NULL},
    {{"train.global_batch=131080"}, "= 65540 microbatches; at most 65536"},
    {{"optim.warmup=300"}, NULL},
    {{"optim.warmup=301"}, "optim.warmup = 301 exceeds train.steps = 300"},
    {{"optim.min_lr=0.001"}, NULL},
    {{"optim.min_lr=0.002"}, "optim.min_lr = 0.002 exceeds optim.lr = 0.001"},
    {{"model.vocab=255"}, "model.vocab = 255: data.kind = text has 256 tokens"},
    {{"model.vocab=259"}, NULL},
    {{"model.vocab=1", "data.kind=tokens"}, NULL},
    {{"data.token_bytes=3"}, "data.token_bytes = 3: expected 2 or 4"},
    {{"data.held_out=0"}, "eval.every = 100 needs a held-out part"},
    {{"data.held_out=0", "eval.every=0"}, NULL},
    {{"data.held_out=0", "data.held=y.txt"}, NULL},
    {{"model.context=2147483647"},
     "train.micro_batch * model.context = 2 * 2147483647 * 1 is too large"},
    {{"model.vocab=2147483647", "model.d_model=1024"}, "model.vocab * model.d_model"},
    {{"model.d_model=2147483632"}, "too large"},
    {{"model.d_model=65536", "model.layers=1023"}, "model.d_model squared * model.layers"},
    {{"ffn.d_ff=2147483647"}, "model.d_model * ffn.d_ff * model.layers"},
    {{"model.context=1048576", "model.d_model=524288", "model.layers=1"},
     "train.micro_batch * model.context * model.d_model"},
    {{"ffn.d_ff=1048576", "model.context=524288"}, "the larger of ffn.d_ff and model.vocab"},
    {{"model.context=1048576"}, "model.heads * model.context squared"},
    {{"train.steps=2147483647", "train.global_batch=131072", "model.context=32768"},
     "train.steps * train.global_batch * model.context"},
    {{"ffn.swish_beta=1.5"}, NULL},
    {{"ffn.swish_beta=1.5", "ffn.activation=gelu"},
     "ffn.swish_beta = 1.5: ffn.activation = gelu has no beta"},
    {{"ffn.gate_clamp=7", "ffn.linear_clamp=7", "ffn.linear_offset=1"}, NULL},
    {{"ffn.gate_clamp=7", "ffn.activation=gelu_tanh"}, NULL},
    {{"ffn.kind=dense", "ffn.gate_clamp=7"},
     "ffn.gate_clamp = 7: ffn.kind = dense has no gate beside a linear branch"},
    {{"ffn.kind=dense", "ffn.linear_clamp=7"}, "ffn.linear_clamp = 7: ffn.kind = dense"},
    {{"ffn.kind=dual", "ffn.linear_offset=-1"}, "ffn.linear_offset = -1: ffn.kind = dual"},
    {{"ffn.kind=dual", "ffn.activation=relu"}, NULL},
    {{"ffn.kind=dense", "ffn.up_bias=true"}, NULL},
    {{"ffn.gate_bias=true"}, NULL},
    {{"data.kind=hdf5"}, "model.kind = decoder doesn't read data.kind = hdf5: an mlp reads"},
    {{"model.inputs=4"}, "model.inputs belongs to model.kind = mlp, and model.kind is decoder"},
    {{"model.outputs=4"}, "model.outputs belongs to model.kind = mlp, and model.kind is decoder"},
    {{"model.loss=squared_error"},
     "model.loss belongs to model.kind = mlp, and model.kind is decoder"},
};

START_TEST(keys_must_agree) {
    for (size_t i = 0; i < sizeof decoder_keys / sizeof decoder_keys[0]; i++) {
        Config config = sound_config();
        for (int k = 0; k < 6 && decoder_keys[i].set[k]; k++) set(&config, decoder_keys[i].set[k]);
        int status = config_check(&config);
        ck_assert_msg(status == (decoder_keys[i].message ? WEFT_USAGE : 0), "row %zu: %d %s", i,
                      status, error_message());
        if (decoder_keys[i].message) assert_message(decoder_keys[i].message);
    }
}
END_TEST

/* The mlp with 12 numbers in and 10 classes out. */
static Config sound_mlp(void) {
    Config config = sound_config();
    set(&config, "model.kind=mlp");
    set(&config, "model.inputs=12");
    set(&config, "model.outputs=10");
    set(&config, "data.kind=hdf5");
    return config;
}

START_TEST(keys_of_an_mlp_must_agree) {
    static const struct {
        const char *set[6], *message; /* NULL: accepted */
    } rows[] = {
        {{NULL}, NULL},
        {{"data.kind=text"}, "model.kind = mlp doesn't read data.kind = text: an mlp reads hdf5"},
        {{"data.kind=tokens"}, "model.kind = mlp doesn't read data.kind = tokens"},
        {{"model.inputs=0"}, "model.inputs is not set"},
        {{"model.outputs=0"}, "model.outputs = 0: under model.loss = cross_entropy at least 2"},
        {{"model.outputs=1"}, "model.outputs = 1: under model.loss = cross_entropy at least 2"},
        {{"model.outputs=1", "model.loss=squared_error"}, NULL},
        {{"model.outputs=0", "model.loss=squared_error"}, "squared_error at least 1"},
        {{"model.d_model=7", "model.context=2147483647"}, NULL}, /* of one row, whatever is said */
        {{"model.heads=3"}, "model.heads belongs to model.kind = decoder, and model.kind is mlp"},
        {{"model.vocab=1"}, "model.vocab belongs to model.kind = decoder"},
        {{"model.tie_embeddings=false"}, "model.tie_embeddings belongs to model.kind = decoder"},
        {{"model.inputs=2147483647", "model.d_model=1024"}, "model.inputs * model.d_model"},
        {{"model.outputs=2147483647", "model.d_model=1024"}, "model.outputs * model.d_model"},
        {{"ffn.d_ff=2147483647"}, "model.d_model * ffn.d_ff * model.layers"},
        {{"model.inputs=2147483647", "train.micro_batch=1024", "train.global_batch=4096",
          "model.d_model=2"},
         "train.micro_batch * model.inputs"},
        {{"model.outputs=2147483647", "train.micro_batch=1024", "train.global_batch=4096",
          "model.d_model=2"},
         "train.micro_batch * model.outputs"},
        {{"train.micro_batch=1048576", "train.global_batch=4194304", "ffn.d_ff=1048576",
          "model.layers=1"},
         "train.micro_batch * ffn.d_ff"},
        {{"train.micro_batch=1048576", "train.global_batch=4194304", "model.d_model=1048576",
          "ffn.d_ff=1"},
         "train.micro_batch * model.d_model"},
        {{"train.global_batch=16777216"}, "microbatches; at most"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = sound_mlp();
        for (int k = 0; k < 6 && rows[i].set[k]; k++) set(&config, rows[i].set[k]);
        ck_assert_msg(!config_resolve(&config), "%s", error_message());
        ck_assert_int_eq(config.model.context, 1);
        int status = config_check(&config);
        ck_assert_msg(status == (rows[i].message ? WEFT_USAGE : 0), "row %zu: %d %s", i, status,
                      error_message());
        if (rows[i].message) assert_message(rows[i].message);
    }
}
END_TEST

START_TEST(unknown_kinds_and_activations_are_named) {
    Config config = sound_config();
    memcpy(config.ffn.kind, "swiglu", sizeof "swiglu");
    ck_assert_int_eq(config_check(&config), WEFT_USAGE);
    assert_message("ffn.kind = swiglu: there is no such kind");
    config = sound_config();
    memcpy(config.ffn.activation, "swish", sizeof "swish");
    ck_assert_int_eq(config_check(&config), WEFT_USAGE);
    assert_message("ffn.activation = swish: there is no such activation");
}
END_TEST

START_TEST(configs_of_the_project_are_sound) {
    static const char *const patterns[] = {"configs/*.ini", "tests/configs/*.ini"};
    for (int p = 0; p < 2; p++) {
        glob_t found;
        ck_assert_msg(!glob(patterns[p], 0, NULL, &found), "none: %s", patterns[p]);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            Config config;
            config_defaults(&config);
            ck_assert_msg(!config_read(&config, found.gl_pathv[i]), "%s", error_message());
            ck_assert_msg(!config_resolve(&config), "%s: %s", found.gl_pathv[i], error_message());
            ck_assert_msg(!config_check(&config), "%s: %s", found.gl_pathv[i], error_message());
        }
        globfree(&found);
    }
}
END_TEST

/* ---- resume and manifest ---- */

/* Another value for every option: the config, changed in one place. */
static bool change(const Option *option, Config *config) {
    char *field = (char *)config + option->offset;
    switch (option->type) {
    case OPTION_TEXT: return !option_parse(option, config, "somewhere/else");
    case OPTION_INTEGER: *(int64_t *)field += 1; return true;
    case OPTION_NUMBER: *(double *)field = *(double *)field / 3 + 0.1; return true;
    case OPTION_BOOLEAN: *(bool *)field = !*(bool *)field; return true;
    case OPTION_CHOICE: break;
    }
    const char *last = strrchr(option->choices, ' ');
    return last && !option_parse(option, config, last + 1);
}

/* An option either defines what is trained, and then a change shows in the function (of the kind of
 * model that has it), or steers, and then it shows in the list of changes. */
static void check_changes(const Config *before) {
    json_t *function = config_function(before, 100);
    ck_assert_ptr_null(config_changes(before, before));
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *option = &options[i];
        Config now = *before;
        if (!change(option, &now)) continue; /* a choice of one */
        memcpy(now.model.kind, before->model.kind, sizeof now.model.kind);
        bool has = !option->only || !strcmp(option->only, before->model.kind);
        bool differs = !option_equal(option, &now, before);
        json_t *function_now = config_function(&now, 100);
        char *changes = config_changes(&now, before), name[OPTION_NAME];
        bool steers = option->role == ROLE_STEERS;
        snprintf(name, sizeof name, "%s.%s ", option->section, option->key);
        ck_assert_msg(json_equal(function, function_now) == (steers || !has || !differs), "%s",
                      name);
        ck_assert_msg(!changes == !(steers && differs), "%s", name);
        ck_assert(!changes || !strncmp(changes, name, strlen(name)));
        json_decref(function_now);
        free(changes);
    }
    json_decref(function);
}

START_TEST(every_change_shows_in_one_place) {
    Config decoder = sound_config(), mlp = sound_mlp();
    check_changes(&decoder);
    check_changes(&mlp);
    json_t *function = config_function(&decoder, 1), *other = config_function(&mlp, 1);
    ck_assert(!json_equal(function, other));
    json_decref(function);
    json_decref(other);
}
END_TEST

/* Checkpoints from before an option came would else have another fingerprint now. */
START_TEST(later_options_are_left_out_at_their_defaults) {
    int later = 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *option = &options[i];
        if (!option->later) continue;
        Config config = sound_config();
        later++;
        ck_assert_int_eq(option->role, ROLE_DEFINES);
        for (int round = 0; round < 2; round++) {
            json_t *function = config_function(&config, 100);
            json_t *block = json_object_get(function, option->section);
            ck_assert_msg(!json_object_get(block, option->key) == !round, "%s", option->key);
            json_decref(function);
            change(option, &config);
        }
    }
    ck_assert_int_eq(later, 7);
}
END_TEST

START_TEST(changes_are_lines) {
    Config before = sound_config(), now = before;
    set(&now, "optim.lr=5e-4");
    set(&now, "train.recompute=block");
    char *changes = config_changes(&now, &before);
    ck_assert_str_eq(changes, "train.recompute none -> block\noptim.lr 0.001 -> 0.0005\n");
    free(changes);
}
END_TEST

static void assert_function(const Config *config, const char *expected) {
    json_t *function = config_function(config, 123);
    char *text = json_dumps(function, JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_str_eq(text, expected);
    free(text);
    json_decref(function);
}

/* That of the decoder is what the first checkpoints have. */
START_TEST(the_function_is_these_fields) {
    Config config = sound_config();
    assert_function(&config,
                    "{\"ffn\":{\"activation\":\"silu\",\"bias\":false,\"d_ff\":682,"
                    "\"hidden_dropout\":0.0,\"kind\":\"gated\",\"output_dropout\":0.0},"
                    "\"model\":{\"d_model\":256,\"heads\":8,\"kind\":\"decoder\",\"kv_heads\":4,"
                    "\"layers\":4,\"norm_eps\":1.0000000000000001e-5,\"rope_theta\":10000.0,"
                    "\"tie_embeddings\":true,\"vocab\":256},\"run\":{\"seed\":1},"
                    "\"sample_order\":{\"context\":256,\"global_batch\":16,\"samples\":123,"
                    "\"version\":1}}");
    config = sound_mlp();
    set(&config, "ffn.linear_offset=1");
    set(&config, "ffn.down_bias=true");
    ck_assert_int_eq(config_resolve(&config), 0);
    assert_function(&config,
                    "{\"data\":{\"normalise\":true},"
                    "\"ffn\":{\"activation\":\"silu\",\"bias\":false,\"d_ff\":682,"
                    "\"down_bias\":\"true\",\"hidden_dropout\":0.0,\"kind\":\"gated\","
                    "\"linear_offset\":1.0,\"output_dropout\":0.0},"
                    "\"model\":{\"d_model\":256,\"inputs\":12,\"kind\":\"mlp\",\"layers\":4,"
                    "\"loss\":\"cross_entropy\",\"norm_eps\":1.0000000000000001e-5,"
                    "\"outputs\":10},\"run\":{\"seed\":1},"
                    "\"sample_order\":{\"context\":1,\"global_batch\":16,\"samples\":123,"
                    "\"version\":1}}");
}
END_TEST

/* The projection of that name, or NULL. Borrowed. */
static const json_t *projection(const json_t *details, const char *name) {
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(details, "projections"), i, entry) {
        if (!strcmp(json_string_value(json_object_get(entry, "name")), name)) return entry;
    }
    return NULL;
}

static double initial(const json_t *details, const char *name, const char *field) {
    const json_t *block = json_object_get(projection(details, name), "initializer");
    return json_real_value(json_object_get(block, field));
}

static const char *detail(const json_t *details, const char *block, const char *field) {
    return json_string_value(json_object_get(json_object_get(details, block), field));
}

START_TEST(details_leave_nothing_to_guess) {
    static const char *const blocks[] = {
        "topology", "activation",   "projections",       "packing",
        "aliases",  "dtypes",       "dropout",           "recompute",
        "fusion",   "accumulation", "logical_grid",      "optimizer",
        "schedule", "seed",         "sample_order_rule", "loss"};
    Config config = sound_config();
    json_t *details = config_details(&config);
    ck_assert_uint_eq(json_object_size(details), sizeof blocks / sizeof blocks[0]);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        ck_assert_msg(json_object_get(details, blocks[i]), "%s", blocks[i]);
    ck_assert_str_eq(detail(details, "topology", "equation"), "down(act(gate(x)) * up(x))");
    ck_assert_str_eq(detail(details, "topology", "activated_branch"), "gate");
    ck_assert_str_eq(detail(details, "aliases", "lm_head.weight"), "model.embed_tokens.weight");
    ck_assert_ptr_null(projection(details, "lm_head"));
    ck_assert_double_eq(initial(details, "mlp.gate_proj", "std"), 0.02);
    ck_assert_double_eq_tol(initial(details, "mlp.down_proj", "std"), 0.02 / sqrt(8), 1e-17);
    json_decref(details);
}
END_TEST

START_TEST(details_follow_the_config) {
    Config config = sound_config();
    set(&config, "ffn.kind=dense");
    set(&config, "ffn.activation=gelu");
    set(&config, "ffn.bias=true");
    set(&config, "model.tie_embeddings=false");
    set(&config, "init.scheme=fan_in");
    set(&config, "kernels.fusion=packed");
    json_t *details = config_details(&config);
    ck_assert_str_eq(json_string_value(json_object_get(details, "fusion")), "packed");
    ck_assert_str_eq(detail(details, "topology", "equation"), "down(act(up(x)))");
    ck_assert_str_eq(detail(details, "topology", "activated_branch"), "up");
    ck_assert_str_eq(detail(details, "activation", "name"), "gelu");
    ck_assert_ptr_null(detail(details, "aliases", "lm_head.weight"));
    ck_assert_ptr_nonnull(projection(details, "lm_head"));
    ck_assert_ptr_null(projection(details, "mlp.gate_proj"));
    ck_assert(json_is_true(json_object_get(projection(details, "mlp.up_proj"), "bias")));
    ck_assert(json_is_false(json_object_get(projection(details, "self_attn.q_proj"), "bias")));
    ck_assert_double_eq(initial(details, "mlp.up_proj", "std"), 1.0 / 16);
    ck_assert_double_eq_tol(initial(details, "mlp.down_proj", "std"), 1 / sqrt(682 * 8.0), 1e-17);
    ck_assert_double_eq(initial(details, "model.embed_tokens", "std"), 0.02);
    json_decref(details);
}
END_TEST

static double parameter(const json_t *details, const char *name) {
    const json_t *block = json_object_get(json_object_get(details, "activation"), "parameters");
    return json_number_value(json_object_get(block, name));
}

START_TEST(details_tell_the_branches) {
    static const struct {
        const char *set[6], *equation;
    } rows[] = {
        {{NULL}, "down(act(gate(x)) * up(x))"},
        {{"ffn.gate_clamp=7"}, "down(act(min(gate(x), 7)) * up(x))"},
        {{"ffn.linear_clamp=7"}, "down(act(gate(x)) * min(max(up(x), -7), 7))"},
        {{"ffn.linear_offset=1"}, "down(act(gate(x)) * (up(x) + 1))"},
        {{"ffn.gate_clamp=7", "ffn.linear_clamp=6.5", "ffn.linear_offset=-0.5",
          "ffn.swish_beta=1.702"},
         "down(act(min(gate(x), 7)) * (min(max(up(x), -6.5), 6.5) + -0.5))"},
        {{"ffn.kind=dense"}, "down(act(up(x)))"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = sound_config();
        for (int k = 0; k < 6 && rows[i].set[k]; k++) set(&config, rows[i].set[k]);
        json_t *details = config_details(&config);
        ck_assert_str_eq(detail(details, "topology", "equation"), rows[i].equation);
        ck_assert_double_eq(parameter(details, "beta"), config.ffn.swish_beta);
        ck_assert_double_eq(parameter(details, "gate_clamp"), config.ffn.gate_clamp);
        ck_assert_double_eq(parameter(details, "linear_clamp"), config.ffn.linear_clamp);
        ck_assert_double_eq(parameter(details, "linear_offset"), config.ffn.linear_offset);
        json_decref(details);
    }
}
END_TEST

START_TEST(details_tell_the_rule_of_the_width) {
    Config config = sound_config();
    set(&config, "model.d_model=4096");
    set(&config, "ffn.width=llama");
    ck_assert_int_eq(config_resolve(&config), 0);
    json_t *details = config_details(&config);
    const json_t *rule = json_object_get(json_object_get(details, "topology"), "width_rule");
    ck_assert_uint_eq(json_object_size(rule), 7);
    ck_assert_str_eq(json_string_value(json_object_get(rule, "rule")), "llama");
    ck_assert_int_eq(json_integer_value(json_object_get(rule, "multiple_of")), 256);
    ck_assert_int_eq(json_integer_value(json_object_get(rule, "d_ff")), 11008);
    ck_assert_double_eq_tol(json_real_value(json_object_get(rule, "exact")), 32768.0 / 3, 1e-9);
    json_decref(details);
}
END_TEST

START_TEST(details_of_an_mlp) {
    Config config = sound_mlp();
    set(&config, "model.loss=squared_error");
    set(&config, "ffn.up_bias=true");
    ck_assert_int_eq(config_resolve(&config), 0);
    json_t *details = config_details(&config);
    static const char *const absent[] = {"self_attn.q_proj", "self_attn.o_proj", "lm_head",
                                         "model.embed_tokens"};
    for (int i = 0; i < 4; i++) ck_assert_ptr_null(projection(details, absent[i]));
    static const struct {
        const char *name;
        int64_t out, in;
        const char *split;
        bool bias;
    } rows[] = {{"input", 256, 12, "out", true},
                {"mlp.gate_proj", 682, 256, "out", false},
                {"mlp.up_proj", 682, 256, "out", true},
                {"mlp.down_proj", 256, 682, "in", false},
                {"output", 10, 256, "out", true}};
    ck_assert_uint_eq(json_array_size(json_object_get(details, "projections")), 5);
    for (int i = 0; i < 5; i++) {
        const json_t *found = projection(details, rows[i].name);
        const json_t *shape = json_object_get(found, "shape");
        ck_assert_msg(found != NULL, "%s", rows[i].name);
        ck_assert_int_eq(json_integer_value(json_array_get(shape, 0)), rows[i].out);
        ck_assert_int_eq(json_integer_value(json_array_get(shape, 1)), rows[i].in);
        ck_assert_str_eq(json_string_value(json_object_get(found, "split")), rows[i].split);
        ck_assert(json_is_true(json_object_get(found, "bias")) == rows[i].bias);
    }
    ck_assert_uint_eq(json_object_size(json_object_get(details, "aliases")), 0);
    ck_assert_str_eq(detail(details, "loss", "name"), "squared_error");
    ck_assert_str_eq(detail(details, "topology", "model"), "mlp");
    json_decref(details);
}
END_TEST

int main(void) {
    return run_suite("config-check",
                     TESTS(keys_must_agree, keys_of_an_mlp_must_agree,
                           unknown_kinds_and_activations_are_named,
                           configs_of_the_project_are_sound, every_change_shows_in_one_place,
                           later_options_are_left_out_at_their_defaults, changes_are_lines,
                           the_function_is_these_fields, details_leave_nothing_to_guess,
                           details_follow_the_config, details_tell_the_branches,
                           details_tell_the_rule_of_the_width, details_of_an_mlp));
}
