/* What a manifest declares, against itself: fields that were changed, with every digest set right
 * again, each named; widths and older manifests; and what loaders refuse of it. */
#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"
#include "run/normalisation.h"
#include "run/state.h"
#include "support/manifest_edit.h"
#include "support/static_rig.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYER "model.layers.1."
#define SMALL "model.layers=2", "grid.tensor=2", "grid.data=1"

static StaticRig rig;

static const struct {
    const char *path, *json; /* NULL: without the field */
    const char *expected;
} descriptions[] = {
    {"topology/kind", "\"dense\"", "topology.kind is \"dense\"; by the function it is \"gated\""},
    {"topology/model", "\"mlp\"", "topology.model is \"mlp\""},
    {"topology/projections", "2", "topology.projections is 2; by the function it is 3"},
    {"topology/equation", "\"down(act(up(x)) * gate(x))\"", "topology.equation is \"down(act(up"},
    {"topology/activated_branch", "\"up\"", "topology.activated_branch is \"up\""},
    {"topology/activated_branch", NULL, "topology.activated_branch is missing"},
    {"topology/d_ff", "16", "topology.d_ff is 16; by the function it is 12"},
    {"topology/d_ff", "12.0", "topology.d_ff is 12.0"},
    {"topology/d_model", NULL, "topology.d_model is missing; by the function it is 16"},
    {"topology/width_rule/multiple_of", "7", "topology.width_rule.multiple_of is 7"},
    {"topology/width_rule", NULL, "topology.width_rule is missing"},
    {"topology/colour", "\"red\"", "topology.colour: the function has no such field"},
    {"topology", NULL, "topology is missing"},
    {"topology", "[]", "topology is []"},
    {"activation/name", "\"gelu\"", "activation.name is \"gelu\"; by the function it is \"silu\""},
    {"activation/name", NULL, "activation.name is missing"},
    {"activation/equation", "\"max(z, 0)\"", "activation.equation is"},
    {"activation/parameters", NULL, "activation.parameters is missing"},
    {"activation/parameters/beta", "1.702", "activation.parameters.beta is 1.702"},
    {"activation/parameters/gate_clamp", NULL, "activation.parameters.gate_clamp is missing"},
    {"activation", NULL, "activation is missing"},
    {"loss/name", "\"squared_error\"", "loss.name is"},
    {"loss", NULL, "loss is missing"},
    {"projections/4/bias", "false", "projections[mlp.gate_proj].bias is false"},
    {"projections/4/bias", NULL, "projections[mlp.gate_proj].bias is missing"},
    {"projections/4/name", "\"mlp.up_proj\"", "projections[mlp.gate_proj].name is \"mlp.up_proj\""},
    {"projections/4/shape", "[16, 12]", "projections[mlp.gate_proj].shape is [16,12]"},
    {"projections/5/storage", "\"[in, out]\"", "projections[mlp.up_proj].storage is"},
    {"projections/6/split", "\"out\"", "projections[mlp.down_proj].split is \"out\""},
    {"projections/3/initializer/std", "1.0",
     "projections[self_attn.o_proj].initializer.std is 1.0"},
    {"projections/7", NULL, "projections[model.embed_tokens] is missing"},
    {"packing", "\"[gate; up]\"", "packing is \"[gate; up]\"; by the function it is \"separate\""},
    {"packing", NULL, "packing is missing"},
    {"aliases", "{}", "aliases.lm_head.weight is missing"},
    {"dtypes/accumulation", "\"float16\"", "dtypes.accumulation is \"float16\""},
    {"dropout/0/probability", "0.5", "dropout[0].probability is 0.5"},
    {"dropout/1/place", "\"after the residual add\"", "dropout[1].place is"},
    {"logical_grid/tensor", "8", "logical_grid.tensor is 8; by the function it is 2"},
    {"optimizer/beta1", "0.5", "optimizer.beta1 is 0.5"},
    {"schedule/warmup", "7", "schedule.warmup is 7"},
    {"accumulation/micro_batch", "4", "accumulation.micro_batch is 4"},
    {"recompute/policy", "\"block\"", "recompute.policy is \"block\""},
    {"seed", "2", "seed is 2; by the function it is 1"},
    {"fusion", "\"fused\"", "fusion is \"fused\""},
    {"sample_order_rule", NULL, "sample_order_rule is missing"},
    {"training_data_digest", NULL, "training_data_digest is missing"},
    {"training_data_digest", "[]", "training_data_digest is no text"},
    {"training_data_digest", "\"x\"", "training_data_digest is no digest"},
    {"implementation/revision", NULL, "implementation.revision is missing"},
    {"implementation/numerics_version", "\"1\"", "implementation.numerics_version is no whole"},
};

START_TEST(blocks_that_describe_another_model) {
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    for (size_t i = 0; i < sizeof descriptions / sizeof *descriptions; i++) {
        manifest_edit(rig.directory, rig.manifest, descriptions[i].path,
                      static_rig_json(descriptions[i].json));
        static_rig_finds(&rig, descriptions[i].path, 1, descriptions[i].expected);
    }
    manifest_edit(rig.directory, rig.manifest, "weather", static_rig_json("\"fine\""));
    static_rig_clean(&rig, "a block more");
    static_rig_end(&rig);
}
END_TEST

/* The second text is "" where one finding is all. */
START_TEST(functions_that_contradict_the_rest) {
    static const struct {
        const char *path, *json, *expected, *also;
    } rows[] = {
        {"function/ffn/activation", "\"gelu\"",
         "function.ffn.activation: says gelu, and the config in origin silu",
         "activation.name is \"silu\"; by the function it is \"gelu\""},
        {"function/ffn/activation", NULL, "function.ffn.activation is missing", ""},
        {"function/ffn/kind", NULL, "function.ffn.kind is missing", ""},
        {"function/ffn/bias", NULL, "function.ffn.bias is missing", ""},
        {"function/ffn/d_ff", NULL, "function.ffn.d_ff is missing", ""},
        {"function/model/kind", NULL, "function.model.kind is missing", ""},
        {"function/run", NULL, "function.run.seed is missing", ""},
        {"function/sample_order/samples", NULL, "function.sample_order.samples is missing", ""},
        {"function/sample_order/samples", "0",
         "function.sample_order.samples isn't a whole number from 1 on", ""},
        {"function/normalisation", "\"0\"", "function.normalisation: nothing is known of it", ""},
        {"tokens", "287", "tokens is 287; step 3 of 12 sequences of 8 each has 288", ""},
        {"function/sample_order/version", "9",
         "function.sample_order.version is 9; by the function it is 1", ""},
        {"function/ffn/activation", "\"tanh\"", "function: ffn.activation = tanh: expected silu",
         ""},
        {"function/ffn/bias", "1", "function.ffn.bias isn't of its type", ""},
        {"function/ffn/d_ff", "12.0", "function.ffn.d_ff isn't of its type", ""},
        {"function/ffn/hidden_dropout", "0", "function.ffn.hidden_dropout isn't of its type", ""},
        {"function/ffn/swish_beta", "1.702",
         "function.ffn.swish_beta: says 1.702, and the config in origin has none",
         "activation.parameters.beta is 1.0; by the function it is 1.702"},
        {"function/ffn/gate_clamp", "0.0", "function.ffn.gate_clamp is its default", ""},
        {"function/ffn/shape", "\"round\"", "function.ffn.shape: a model of kind decoder has no",
         ""},
        {"function/model/inputs", "3", "function.model.inputs: a model of kind decoder has no", ""},
        {"function/colour", "\"red\"", "function.colour: nothing is known of it", ""},
        {"function/model/heads", "3", "function.model.heads: says 3",
         "function: model.d_model = 16 is not a multiple of model.heads = 3"},
        {"function/ffn/d_ff", "16", "topology.d_ff is 12; by the function it is 16",
         "tensor " LAYER "mlp.down_proj.weight: shape is [16, 12], by the function [16, 16]"},
        {"function/model/layers", "1", "tensor model.layers.1.mlp.down_proj.weight is extra",
         "bias model.layers.1.mlp.down_proj.bias is undeclared"},
        {"function/model/layers", "3", "tensor model.layers.2.mlp.down_proj.weight is missing",
         "bias model.layers.2.mlp.down_proj.bias is missing"},
        {"function/model/layers", "1000", "function.model.layers is 1000, there are no more than",
         ""},
        {"function/ffn/bias", "false", "bias " LAYER "mlp.up_proj.bias is undeclared",
         "projections[mlp.up_proj].bias is true; by the function it is false"},
        {"function/model/tie_embeddings", "false", "tensor lm_head.weight is missing",
         "aliases.lm_head.weight: the function has no such field"},
        {"function/ffn/kind", "\"dense\"", "tensor " LAYER "mlp.gate_proj.weight is extra",
         "topology.kind is \"gated\"; by the function it is \"dense\""},
    };
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool alone = !rows[i].also[0] && strcmp(rows[i].json ? rows[i].json : "", "1000") != 0;
        manifest_edit(rig.directory, rig.manifest, rows[i].path, static_rig_json(rows[i].json));
        static_rig_finds(&rig, rows[i].path, alone, rows[i].expected);
        static_rig_finds(&rig, rows[i].path, 0, rows[i].also);
    }
    static_rig_end(&rig);
}
END_TEST

/* The text of the embedded config with one word in place of another; NULL: none. */
static void edit_config(const char *word, const char *other) {
    const char *text =
        json_string_value(json_object_get(json_object_get(rig.manifest, "origin"), "config"));
    const char *place = word ? strstr(text, word) : NULL;
    char *changed = NULL;
    ck_assert(!word || place);
    if (word)
        ck_assert_int_gt(
            asprintf(&changed, "%.*s%s%s", (int)(place - text), text, other, place + strlen(word)),
            0);
    manifest_edit(rig.directory, rig.manifest, "origin/config",
                  changed ? json_string(changed) : NULL);
    free(changed);
}

START_TEST(configs_that_contradict_the_function) {
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    edit_config("activation = silu", "activation = relu");
    static_rig_finds(&rig, "activation", 1,
                     "function.ffn.activation: says silu, and the config in origin relu");
    edit_config("up_bias = auto", "up_bias = false");
    static_rig_finds(&rig, "bias", 1,
                     "function.ffn.up_bias: says has none, and the config in origin false");
    edit_config("tensor = 2", "tensor = 8");
    static_rig_finds(&rig, "grid", 1, "grid.tensor is 2, the config in origin has grid.tensor = 8");
    edit_config("beta1 = 0.9", "beta1 = 0.8");
    static_rig_finds(&rig, "optimizer", 1, "optimizer.beta1 is 0.9; by the function it is 0.8");
    edit_config("[ffn]", "[fnn]");
    static_rig_finds(&rig, "unreadable", 1, "unknown section [fnn]");
    edit_config(NULL, NULL);
    static_rig_finds(&rig, "none", 1, "origin.config is missing");
    static_rig_end(&rig);
}
END_TEST

static void ignore(void *context, const char *problem) {
    (void)context;
    (void)problem;
}

/* Puts a block and, where it can be read, its digest into a copy of the manifest. */
static json_t *with_normalisation(const char *block, const int64_t columns[ARRAY_PARTS]) {
    char json[512] = "", digest[HASH_TEXT];
    json_t *manifest = json_deep_copy(rig.manifest);
    Normalisation numbers;
    for (size_t c = 0; c <= strlen(block); c++) json[c] = block[c] == '\'' ? '"' : block[c];
    json_t *value = static_rig_json(json);
    if (!json_object_get(value, "rule"))
        json_object_set_new(value, "rule",
                            json_string("(x - mean) / scale by column; mean and deviation of the "
                                        "training rows; the loss is of normalised targets"));
    manifest_put(manifest, "normalisation", value);
    ck_assert_int_eq(normalisation_open(&numbers, columns), 0);
    normalisation_read(&numbers, manifest, ignore, NULL);
    normalisation_digest(&numbers, digest);
    manifest_put(manifest, "function/normalisation", json_string(digest));
    normalisation_close(&numbers);
    return manifest;
}

#define INPUTS  "'inputs': {'mean': [0, 1], 'scale': [1, 2]}"
#define TARGETS "'targets': {'mean': [4, 5, 6], 'scale': [1, 1, 1]}"
#define NONE    "'targets': {'mean': [], 'scale': []}"
#define MLP_OF(loss)                                                                               \
    SETTINGS("model.kind=mlp", "data.kind=hdf5", "model.inputs=2", "model.outputs=3",              \
             "model.context=1", "model.heads=8", "model.kv_heads=4", loss, SMALL)

/* A digest goes with the numbers in each case. */
START_TEST(normalisation_has_a_number_for_each_column) {
    static const struct {
        const char *loss, *block, *expected; /* expected NULL: it is right */
    } rows[] = {
        {"model.loss=cross_entropy", "{" INPUTS ", " NONE "}", NULL},
        {"model.loss=squared_error", "{" INPUTS ", " TARGETS "}", NULL},
        {"model.loss=squared_error", "{'inputs': {'mean': [0, 1], 'scale': [1]}, " TARGETS "}",
         "normalisation.inputs.scale has 1 numbers, by the function 2"},
        {"model.loss=squared_error", "{" INPUTS ", 'targets': {'mean': [1, 2, 3]}}",
         "normalisation.targets.scale is missing"},
        {"model.loss=squared_error", "{'inputs': {'mean': [0, 1], 'scale': [1, 0]}, " TARGETS "}",
         "normalisation.inputs.scale[1] is 0; above 0 is expected"},
        {"model.loss=squared_error", "{'inputs': {'mean': [0, 1], 'scale': [-1, 1]}, " TARGETS "}",
         "normalisation.inputs.scale[0] is -1; above 0 is expected"},
        {"model.loss=squared_error", "{'inputs': {'mean': ['0', 1], 'scale': [1, 1]}, " TARGETS "}",
         "normalisation.inputs.mean[0] is no number"},
        {"model.loss=squared_error", "{'rule': 'x - mean', " INPUTS ", " TARGETS "}",
         "normalisation.rule is x - mean;"},
        {"model.loss=squared_error", "{" INPUTS ", " TARGETS ", 'more': 1}",
         "normalisation.more: nothing is known of it"},
        {"model.loss=squared_error",
         "{'inputs': {'mean': [0, 1], 'scale': [1, 2], 'more': 1}, " TARGETS "}",
         "normalisation.inputs.more: nothing is known of it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t columns[] = {2, strstr(rows[i].loss, "squared") ? 3 : 0};
        static_rig_begin(&rig, MLP_OF(rows[i].loss));
        static_rig_save(&rig);
        json_t *manifest = with_normalisation(rows[i].block, columns);
        manifest_edit(rig.directory, manifest, "packing", json_string("separate"));
        if (rows[i].expected)
            static_rig_finds(&rig, rows[i].block, 1, rows[i].expected);
        else
            static_rig_clean(&rig, rows[i].loss);
        json_decref(manifest);
        static_rig_end(&rig);
    }
}
END_TEST

/* The fingerprint covers the digest, and the digest the numbers. */
START_TEST(normalisation_is_bound_to_the_function) {
    static const struct {
        const char *path, *json, *expected;
    } rows[] = {
        {"normalisation", NULL, "normalisation is missing; data.normalise is true"},
        {"normalisation/targets/mean/1", "5.0000000000000009",
         "normalisation: its numbers have digest "},
        {"normalisation/inputs/mean/0", "-0.0", "normalisation: its numbers have digest "},
        {"function/normalisation", NULL, "function.normalisation is missing"},
        {"function/normalisation", "\"0\"", ", function.normalisation is 0"},
        {"function/normalisation", "1", "function.normalisation: nothing is known of it"},
    };
    const int64_t columns[] = {2, 3};
    Config config;
    static_rig_begin(&rig, MLP_OF("model.loss=squared_error"));
    static_rig_save(&rig);
    json_t *manifest = with_normalisation("{" INPUTS ", " TARGETS "}", columns);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        manifest_edit(rig.directory, manifest, rows[i].path, static_rig_json(rows[i].json));
        static_rig_finds(&rig, rows[i].path, 1, rows[i].expected);
        ck_assert_int_eq(state_config(rig.directory, &config), WEFT_INPUT);
        ck_assert_msg(strstr(error_message(), rows[i].expected), "%s", error_message());
    }
    json_decref(manifest);
    static_rig_end(&rig);
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    manifest_edit(rig.directory, rig.manifest, "normalisation", json_object());
    static_rig_finds(&rig, "a decoder", 1, "normalisation: the function has no such block");
    static_rig_end(&rig);
}
END_TEST

/* ---- widths, and older manifests ---- */

START_TEST(a_width_that_its_rule_would_not_give) {
    StaticReport report;
    static_rig_begin(&rig, SETTINGS("ffn.width=floor", "ffn.width_resolved=true", SMALL));
    static_rig_save(&rig);
    ck_assert_msg(static_verify(rig.directory, &report) == 0, "%s", error_message());
    ck_assert_msg(static_rig_tells(&report.notes,
                                   "ffn.d_ff is 682, its rule ffn.width = floor gives 42: the "
                                   "stored number counts"),
                  "%s", static_rig_text(&report.notes));
    static_release(&report);
    static_rig_end(&rig);
}
END_TEST

/* As the first programs wrote it. */
static json_t *older(void) {
    json_t *manifest = json_deep_copy(rig.manifest);
    manifest_put(manifest, "topology/width_rule", json_string("d_ff explicit"));
    manifest_put(manifest, "activation/parameters", json_object());
    manifest_put(manifest, "loss", NULL);
    return manifest;
}

START_TEST(older_manifests_pass_for_what_was_possible_then) {
    static const struct {
        const char *setting, *also, *expected;
    } rows[] = {
        {"ffn.bias=true", "ffn.d_ff=12", NULL},
        {"ffn.kind=dense", "ffn.activation=gelu", NULL},
        {"ffn.gate_clamp=7", "ffn.d_ff=12", "activation.parameters.gate_clamp is missing"},
        {"ffn.swish_beta=2", "ffn.d_ff=12", "activation.parameters.beta is missing"},
        {"ffn.width=floor", "ffn.width_resolved=true", "topology.width_rule is \"d_ff explicit\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static_rig_begin(&rig, SETTINGS(rows[i].setting, rows[i].also, SMALL));
        static_rig_save(&rig);
        json_t *manifest = older();
        manifest_edit(rig.directory, manifest, "packing", json_string("separate"));
        if (rows[i].expected)
            static_rig_finds(&rig, rows[i].setting, 0, rows[i].expected);
        else
            static_rig_clean(&rig, rows[i].setting);
        manifest_edit(rig.directory, manifest, "activation/name", NULL);
        static_rig_finds(&rig, rows[i].setting, 0, "activation.name is missing");
        json_decref(manifest);
        static_rig_end(&rig);
    }
}
END_TEST

/* ---- whoever loads ---- */

/* One of today's blocks, and it is no older one. */
START_TEST(half_an_older_manifest_is_none) {
    static const struct {
        const char *path, *json, *expected;
    } rows[] = {
        {"topology/width_rule", "\"d_ff explicit\"", "topology.width_rule is \"d_ff explicit\""},
        {"activation/parameters", "{}", "activation.parameters.beta is missing"},
        {"loss", NULL, "loss is missing"},
    };
    for (size_t without = 0; without < 3; without++) {
        static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
        static_rig_save(&rig);
        json_t *manifest = json_deep_copy(rig.manifest);
        for (size_t i = 0; i < 3; i++)
            if (i != without) manifest_put(manifest, rows[i].path, static_rig_json(rows[i].json));
        manifest_edit(rig.directory, manifest, "packing", json_string("separate"));
        for (size_t i = 0; i < 3; i++)
            if (i != without) static_rig_finds(&rig, rows[i].path, 0, rows[i].expected);
        json_decref(manifest);
        static_rig_end(&rig);
    }
}
END_TEST

/* As eval, generate and trace do with --set applied. */
START_TEST(another_function_than_the_checkpoints) {
    static const struct {
        const char *set, *expected; /* NULL: the same function */
    } rows[] = {
        {"ffn.activation=gelu", "ffn.activation: checkpoint silu, config gelu"},
        {"ffn.gate_clamp=7", "ffn.gate_clamp: checkpoint has none, config 7.0"},
        {"ffn.kind=dual", "ffn.kind: checkpoint gated, config dual"},
        {"model.norm_eps=0.1", "model.norm_eps: checkpoint 1"},
        {"model.layers=1", "model.layers: checkpoint 2, config 1"},
        {"run.seed=9", "run.seed: checkpoint 1, config 9"},
        {"model.context=4", NULL},
        {"train.global_batch=24", NULL},
        {"optim.lr=1", NULL},
        {"data.held=other.txt", NULL},
    };
    Config config;
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(state_config(rig.directory, &config) == 0, "%s", error_message());
        ck_assert_int_eq(config_set(&config, rows[i].set), 0);
        int status = state_check_function(&config, rig.directory);
        ck_assert_msg(status == (rows[i].expected ? WEFT_USAGE : 0), "%s: %d", rows[i].set, status);
        ck_assert_msg(!rows[i].expected || strstr(error_message(), rows[i].expected), "%s",
                      error_message());
    }
    static_rig_end(&rig);
}
END_TEST

START_TEST(loaders_refuse_what_decides_the_function) {
    static const struct {
        const char *path, *json, *expected; /* NULL: is loaded all the same */
    } rows[] = {
        {"function/ffn/activation", "\"gelu\"", "function.ffn.activation: says gelu"},
        {"function/ffn/activation", NULL, "function.ffn.activation is missing"},
        {"function/ffn/kind", NULL, "function.ffn.kind is missing"},
        {"activation/name", "\"relu\"", "activation.name is \"relu\""},
        {"activation", NULL, "activation is missing"},
        {"topology/kind", "\"dense\"", "topology.kind is \"dense\""},
        {"topology/activated_branch", NULL, "topology.activated_branch is missing"},
        {"projections/5/bias", "false", "projections[mlp.up_proj].bias is false"},
        {"packing", "\"[up; gate]\"", "packing is \"[up; gate]\""},
        {"dropout/0/place", "\"after down_proj\"", "dropout[0].place is"},
        {"optimizer/beta1", "0.5", "optimizer.beta1 is 0.5"},
        {"seed", "2", "seed is 2"},
        {"logical_grid/tensor", "8", "logical_grid.tensor is 8"},
        {"recompute/policy", "\"act\"", "recompute.policy is"},
        {"tokens", "287", "tokens is 287"},
        {"fusion", NULL, "fusion is missing"},
        {"weather", "\"fine\"", NULL},
    };
    Config config;
    static_rig_begin(&rig, SETTINGS("ffn.bias=true", SMALL));
    static_rig_save(&rig);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        manifest_edit(rig.directory, rig.manifest, rows[i].path, static_rig_json(rows[i].json));
        int status = state_config(rig.directory, &config);
        ck_assert_msg(status == (rows[i].expected ? WEFT_INPUT : 0), "%s: %d %s", rows[i].path,
                      status, error_message());
        ck_assert_msg(!rows[i].expected || strstr(error_message(), rows[i].expected), "%s",
                      error_message());
        ck_assert(!rows[i].expected || strstr(error_message(), "/" MANIFEST_FILE ": "));
    }
    static_rig_end(&rig);
}
END_TEST

/* What training resumes from, and what others load to train from. */
START_TEST(a_resume_refuses_it_too) {
    static const char *const settings[] = {"model.layers=1", "model.d_model=16", "model.context=8",
                                           "ffn.d_ff=12",    "grid.tensor=2",    "grid.data=1"};
    Trainer trainer;
    Config config;
    Grid grid;
    Saver *saver;
    json_t *manifest;
    char run_dir[SCRATCH_PATH], directory[FILES_PATH], found[FILES_PATH];
    grid_serial(&grid);
    scratch_make(run_dir);
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        ck_assert_int_eq(config_set(&config, settings[i]), 0);
    snprintf(config.run.dir, sizeof config.run.dir, "%s", run_dir);
    ck_assert_int_eq(gemm_setup(), 0);
    ck_assert_msg(trainer_open(&trainer, &config, &grid, 1, true) == 0, "%s", error_message());
    CheckpointPlaces places = state_places(&config, 1, 1);
    ck_assert_int_eq(saver_open(&saver, &grid, &trainer.model.set, &places), 0);
    ck_assert_int_eq(state_save(&trainer, saver, NAN), 0);
    ck_assert_msg(saver_finish(saver) == 0, "%s", error_message());
    saver_close(saver);
    ck_assert_int_eq(publish_path(run_dir, 0, directory), 0);
    ck_assert_int_eq(checkpoint_manifest(directory, &manifest), 0);
    ck_assert_msg(state_load(&trainer, directory) == 0, "%s", error_message());

    manifest_edit(directory, manifest, "topology/kind", json_string("dense"));
    ck_assert_int_eq(state_load(&trainer, directory), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "topology.kind is \"dense\""));
    manifest_edit(directory, manifest, "activation/name", NULL);
    ck_assert_int_eq(state_load(&trainer, directory), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "activation.name is missing"));
    ck_assert_int_eq(state_resume(&trainer, directory, found), WEFT_INPUT);
    ck_assert_ptr_nonnull(strstr(error_message(), "activation.name is missing"));
    json_decref(manifest);
    trainer_close(&trainer);
    ck_assert_int_eq(files_remove_tree(run_dir), 0);
}
END_TEST

int main(void) {
    return run_suite(
        "declared",
        TESTS(blocks_that_describe_another_model, functions_that_contradict_the_rest,
              configs_that_contradict_the_function, normalisation_has_a_number_for_each_column,
              normalisation_is_bound_to_the_function, a_width_that_its_rule_would_not_give,
              older_manifests_pass_for_what_was_possible_then, half_an_older_manifest_is_none,
              another_function_than_the_checkpoints, loaders_refuse_what_decides_the_function,
              a_resume_refuses_it_too));
}
