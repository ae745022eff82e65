/* What a step may cost beside its arithmetic: one exchange per region, and no memory. On 2
 * ranks. */
#include "base/error.h"
#include "run/plan_memory.h"
#include "run/trainer.h"
#include "support/support.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3 };

static Config small_config(const char *recompute, bool sequence) {
    Config config;
    char set[64];
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    snprintf(set, sizeof set, "model.layers=%d", LAYERS);
    ck_assert_int_eq(config_set(&config, set), 0);
    snprintf(set, sizeof set, "train.recompute=%s", recompute);
    ck_assert_int_eq(config_set(&config, set), 0);
    config.parallel.sequence = sequence;
    ck_assert_msg(config_check(&config) == 0, "%s", error_message());
    return config;
}

static void step(Trainer *trainer) {
    StepReport report = {0};
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
}

/* Per microbatch: one gather of embeddings; four sums a layer (two regions, each forward and
 * backward); the head's three small ones and its sum. Recomputing a block repeats its attention's
 * sum. Per step: one for the gradient norm, and one word by which all know whether it is finite.
 *
 * With each rank its own rows, a gather before each sum, and in backward another of what forward
 * had gathered (Korthikanti et al. 2022, section 4.2.2); one of the embeddings' gradients, one
 * before the head, and one sum for all gains and biases. */
static int64_t expected_collectives(const Config *config, const char *recompute) {
    int64_t microbatches = config->train.global_batch / config->train.micro_batch;
    bool again = !strcmp(recompute, "block");
    int64_t layer = again ? 5 : 4, rest = 1 + 3 + 1;
    if (config->parallel.sequence) {
        layer += again ? 7 : 6;
        rest += 3;
    }
    return microbatches * (LAYERS * layer + rest) + 2;
}

START_TEST(one_exchange_per_region) {
    static const char *const modes[] = {"none", "act", "block"};
    for (int i = 0; i < 6; i++) {
        Config config = small_config(modes[i % 3], i >= 3);
        Grid grid;
        Trainer trainer;
        ck_assert_int_eq(comm_start(&grid), 0);
        ck_assert_int_eq(grid_open(&grid, 2, 1), 0);
        ck_assert_int_eq(trainer_open(&trainer, &config, &grid, 1, true), 0);
        comm_counters_reset(&grid);
        step(&trainer);
        ck_assert_int_eq(grid.counters.collectives, expected_collectives(&config, modes[i % 3]));
        trainer_close(&trainer);
        comm_stop(&grid);
    }
}
END_TEST

/* BLAS may take memory for a small product, and gives it back: what counts is what stays. */
START_TEST(steps_keep_no_memory) {
    enum { NOTICED = 1 << 16 }; /* more than the C library sets aside for the next request */
    Config config = small_config("none", false);
    Grid grid;
    Trainer trainer;
    grid_serial(&grid);
    ck_assert_int_eq(trainer_open(&trainer, &config, &grid, 1, true), 0);
    step(&trainer); /* lists of products grow to their size once */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 3; i++) step(&trainer);
    ck_assert_uint_eq(mallinfo2().uordblks, before);
    char *control = memory_allocate(NOTICED, "control");
    ck_assert_uint_ge(mallinfo2().uordblks, before + NOTICED);
    free(control);
    trainer_close(&trainer);
}
END_TEST

START_TEST(the_plan_is_what_the_arenas_hold) {
    static const char *const modes[] = {"none", "act", "block"};
    size_t held[6];
    for (int i = 0; i < 6; i++) {
        Config config = small_config(modes[i % 3], i >= 3);
        Grid grid;
        Trainer trainer;
        MemoryPlan plan;
        ck_assert_int_eq(comm_start(&grid), 0);
        ck_assert_int_eq(grid_open(&grid, 2, 1), 0);
        ck_assert_int_eq(trainer_open(&trainer, &config, &grid, 1, true), 0);
        ck_assert_int_eq(plan_memory(&config, 1, 2, 1, grid.tensor_rank, 0, &plan), 0);
        const Model *model = &trainer.model;
        ck_assert_uint_eq(plan.activations, model->arena.capacity);
        ck_assert_uint_eq(plan.parameters, params_bytes(&model->set, 1));
        ck_assert_uint_eq(plan.gradients, params_bytes(&model->set, 1 + trainer.spares));
        ck_assert_uint_eq(plan.exchanges, exchange_bytes(model->exchange_ffn) +
                                              exchange_bytes(model->exchange_attention) +
                                              exchange_bytes(model->exchange_head) +
                                              exchange_bytes(trainer.exchange) +
                                              stream_bytes(&model->space.stream));
        held[i] = plan.activations + plan.exchanges;
        trainer_close(&trainer);
        comm_stop(&grid);
    }
    ck_assert_uint_gt(held[0], held[1]);
    ck_assert_uint_gt(held[1], held[2]);
    for (int i = 0; i < 3; i++) ck_assert_uint_gt(held[i], held[3 + i]);
}
END_TEST

int main(int argc, char **argv) {
    return run_mpi_suite(
        &argc, &argv, "cost of a step",
        TESTS(one_exchange_per_region, steps_keep_no_memory, the_plan_is_what_the_arenas_hold));
}
