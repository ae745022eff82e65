/* Whole training steps at every level of fusion: losses and parameters are those of one rank at
 * FUSION_EAGER, bit for bit, on tp 1, 2, 3, with and without sequence-parallel regions, under each
 * recompute mode. On 3 ranks. */
#include "base/error.h"
#include "run/trainer.h"
#include "support/support.h"
#include "support/whole.h"

#include <stdio.h>

enum { STEPS = 2, MOST_TP = 3, SETTINGS = 10 };

static const char *const levels[] = {"eager", "packed", "gate", "block"};
static const char *const modes[] = {"none", "act", "block"};
static const char *const transports[] = {"window", "messages"};

/* Every kind, with and without biases and dropout. Shards wider than a tile of any kernel, so that
 * several threads share one. */
static const struct {
    const char *name, *set[SETTINGS];
} models[] = {
    {"gated", {"ffn.bias=true", "ffn.hidden_dropout=0.1", "ffn.output_dropout=0.2"}},
    {"gated, bounded",
     {"ffn.bias=true", "ffn.gate_clamp=0.02", "ffn.linear_clamp=0.03", "ffn.linear_offset=0.5",
      "ffn.hidden_dropout=0", "ffn.output_dropout=0.2"}},
    {"gated, plain", {"ffn.bias=false", "ffn.hidden_dropout=0", "ffn.output_dropout=0"}},
    {"dual",
     {"ffn.kind=dual", "ffn.activation=relu", "ffn.bias=true", "ffn.hidden_dropout=0.3",
      "ffn.output_dropout=0"}},
    {"dense",
     {"ffn.kind=dense", "ffn.activation=gelu", "ffn.up_bias=false", "ffn.down_bias=true",
      "ffn.hidden_dropout=0.1", "ffn.output_dropout=0.2"}},
};
enum { MODELS = sizeof models / sizeof *models };

static void set(Config *config, const char *key, const char *value) {
    char text[80];
    snprintf(text, sizeof text, "%s%s%s", key, value ? "=" : "", value ? value : "");
    ck_assert_msg(config_set(config, text) == 0, "%s", error_message());
}

static Config config_of(int model) {
    static const char *const small[] = {"model.d_model=16",    "model.heads=4", "model.kv_heads=2",
                                        "ffn.d_ff=203",        "grid.tensor=3", "grid.data=1",
                                        "train.global_batch=1"};
    Config config;
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) set(&config, small[i], NULL);
    for (int i = 0; i < SETTINGS && models[model].set[i]; i++)
        set(&config, models[model].set[i], NULL);
    ck_assert_msg(config_resolve(&config) == 0 && config_check(&config) == 0, "%s",
                  error_message());
    return config;
}

/* Losses and final parameters. */
static Hash128 steps_of(const Config *config, Grid *grid, int threads) {
    Trainer trainer;
    double loss[STEPS];
    int status = trainer_open(&trainer, config, grid, threads, true);
    if (!status) status = trainer_survey(&trainer);
    ck_assert_msg(status == 0, "%s", error_message());
    for (int i = 0; i < STEPS; i++) {
        StepReport report = {0};
        ck_assert_msg(trainer_step(&trainer, &report) == 0, "%s", error_message());
        loss[i] = report.loss;
    }
    Hash128 part[] = {hash_bytes(loss, sizeof loss),
                      whole_hash(grid, &trainer.model.set, PARAM_VALUE)};
    trainer_close(&trainer);
    return hash_bytes(part, sizeof part);
}

static Hash128 reference(Config config) {
    Grid alone;
    grid_serial(&alone);
    set(&config, "kernels.fusion", "eager");
    return steps_of(&config, &alone, 1);
}

/* Transports and numbers of threads take turns. */
static void check_levels(Grid *grid, int model, Hash128 expected) {
    Config config = config_of(model);
    int turn = model;
    for (int sequence = 0; sequence <= (grid->tp > 1); sequence++)
        for (int mode = 0; mode < 3; mode++)
            for (int level = 0; level < 4; level++, turn++) {
                int threads = 1 + turn % 3;
                config.parallel.sequence = sequence;
                set(&config, "train.recompute", modes[mode]);
                set(&config, "kernels.fusion", levels[level]);
                set(&config, "grid.transport", transports[turn / 2 % 2]);
                ck_assert_msg(hash_equal(steps_of(&config, grid, threads), expected),
                              "%s: kernels.fusion = %s, tp %d, %d threads, recompute = %s, %s, own "
                              "rows %d: other bits than eager on one rank",
                              models[model].name, levels[level], grid->tp, threads, modes[mode],
                              transports[turn / 2 % 2], sequence);
            }
}

START_TEST(every_level_has_the_same_bits) {
    for (int model = 0; model < MODELS; model++) {
        Hash128 expected = reference(config_of(model));
        for (int tp = 1; tp <= MOST_TP; tp++) {
            Grid grid;
            ck_assert_int_eq(comm_start(&grid), 0);
            ck_assert_msg(grid_open(&grid, tp, 1) == 0, "%s", error_message());
            if (!grid.surplus) check_levels(&grid, model, expected);
            grid_wait_surplus(&grid, 0);
            comm_stop(&grid);
        }
    }
}
END_TEST

/* Models are different functions: the hash sees what is trained. */
START_TEST(no_two_models_have_the_same_bits) {
    Hash128 hash[MODELS];
    for (int model = 0; model < MODELS; model++) {
        hash[model] = reference(config_of(model));
        for (int other = 0; other < model; other++)
            ck_assert_msg(!hash_equal(hash[model], hash[other]), "%s and %s", models[model].name,
                          models[other].name);
    }
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "fusion",
                         TESTS(every_level_has_the_same_bits, no_two_models_have_the_same_bits));
}
