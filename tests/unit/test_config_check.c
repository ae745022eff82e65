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
    return config;
}

START_TEST(keys_must_agree) {
    static const struct {
        const char *set[3], *message; /* NULL: accepted */
    } rows[] = {
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
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Config config = sound_config();
        for (int k = 0; k < 3 && rows[i].set[k]; k++) set(&config, rows[i].set[k]);
        int status = config_check(&config);
        ck_assert_msg(status == (rows[i].message ? WEFT_USAGE : 0), "row %zu: %d %s", i, status,
                      error_message());
        if (rows[i].message) assert_message(rows[i].message);
    }
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

/* An option either defines what is trained, and then a change shows in the function, or steers, and
 * then it shows in the list of changes. */
START_TEST(every_change_shows_in_one_place) {
    Config before = sound_config();
    json_t *function = config_function(&before, 100);
    ck_assert_ptr_null(config_changes(&before, &before));
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *option = &options[i];
        Config now = before;
        if (!change(option, &now)) continue; /* a choice of one */
        json_t *function_now = config_function(&now, 100);
        char *changes = config_changes(&now, &before), name[OPTION_NAME];
        bool steers = option->role == ROLE_STEERS;
        snprintf(name, sizeof name, "%s.%s ", option->section, option->key);
        ck_assert_msg(json_equal(function, function_now) == steers, "%s", name);
        ck_assert_msg(!changes == !steers, "%s", name);
        ck_assert(!changes || !strncmp(changes, name, strlen(name)));
        json_decref(function_now);
        free(changes);
    }
    json_decref(function);
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

START_TEST(the_function_is_these_fields) {
    Config config = sound_config();
    json_t *function = config_function(&config, 123);
    char *text = json_dumps(function, JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_str_eq(text,
                     "{\"ffn\":{\"activation\":\"silu\",\"bias\":false,\"d_ff\":682,"
                     "\"hidden_dropout\":0.0,\"kind\":\"gated\",\"output_dropout\":0.0},"
                     "\"model\":{\"d_model\":256,\"heads\":8,\"kind\":\"decoder\",\"kv_heads\":4,"
                     "\"layers\":4,\"norm_eps\":1.0000000000000001e-5,\"rope_theta\":10000.0,"
                     "\"tie_embeddings\":true,\"vocab\":256},\"run\":{\"seed\":1},"
                     "\"sample_order\":{\"context\":256,\"global_batch\":16,\"samples\":123,"
                     "\"version\":1}}");
    free(text);
    json_decref(function);
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
        "topology",     "activation", "projections", "packing", "aliases",
        "dtypes",       "dropout",    "recompute",   "fusion",  "accumulation",
        "logical_grid", "optimizer",  "schedule",    "seed",    "sample_order_rule"};
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
    json_t *details = config_details(&config);
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

int main(void) {
    return run_suite("config-check",
                     TESTS(keys_must_agree, configs_of_the_project_are_sound,
                           every_change_shows_in_one_place, changes_are_lines,
                           the_function_is_these_fields, details_leave_nothing_to_guess,
                           details_follow_the_config));
}
