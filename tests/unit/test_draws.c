/* Which number each initial weight is: a function of seed, tensor, layer and place that never
 * changes, or an old config would begin another run. Computed here from Random123 alone, as
 * tensor/philox.h and nn/init_keys.h write it down. */
#include "base/error.h"
#include "run/setup.h"
#include "support/support.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>

enum { PURPOSE_INIT = 1, D = 16, F = 12, LAYERS = 2 };

static const struct {
    const char *word; /* that a tensor's name holds */
    uint32_t key;
    double std;
} tensors[] = {
    {"embed_tokens", 1, 0.05}, {"lm_head", 2, 0.05},        {"q_proj", 3, 0.05},
    {"k_proj", 4, 0.05},       {"v_proj", 5, 0.05},         {"o_proj", 6, 0.025},
    {"gate_proj", 7, 0.05},    {"up_proj", 8, 0.05},        {"down_proj", 9, 0.025},
    {"input", 10, 0.05},       {"output.weight", 11, 0.05},
};

static const char *const decoder[] = {"run.dir=none",        "run.seed=11",
                                      "data.train=none",     "model.d_model=16",
                                      "model.layers=2",      "model.heads=2",
                                      "model.kv_heads=1",    "model.context=8",
                                      "ffn.d_ff=12",         "grid.tensor=4",
                                      "init.std=0.05",       "model.tie_embeddings=false",
                                      "train.micro_batch=1", NULL};

static const char *const mlp[] = {"run.dir=none",        "run.seed=11",
                                  "data.train=none",     "model.kind=mlp",
                                  "model.inputs=5",      "model.outputs=7",
                                  "model.d_model=16",    "model.layers=2",
                                  "ffn.d_ff=12",         "grid.tensor=4",
                                  "init.std=0.05",       "data.kind=hdf5",
                                  "train.micro_batch=8", NULL};

static void open_model(Model *model, const char *const *settings) {
    Config config;
    config_defaults(&config);
    for (; *settings; settings++)
        ck_assert_msg(!config_set(&config, *settings), "%s", error_message());
    ModelConfig setup = setup_model(&config, config.train.micro_batch, 1);
    ck_assert_msg(!model_declare(model, &setup, 0, 1), "%s", error_message());
    ck_assert_int_eq(params_allocate(&model->set, false), 0);
    params_initialize(&model->set, 11, 1);
}

/* Box and Muller (1958), from the two words of a pair of channels. */
static double normal_at(uint32_t key, uint32_t layer, int64_t row, int64_t col) {
    philox4x32_key_t seed = {{11, 0}};
    philox4x32_ctr_t counter = {
        {(uint32_t)(col / 4), (uint32_t)row, key, PURPOSE_INIT * (1u << 26) + layer * (1u << 16)}};
    philox4x32_ctr_t random = philox4x32_R(10, counter, seed);
    int pair = (int)(col % 4) / 2 * 2;
    double radius = sqrt(-2 * log((random.v[pair] + 0.5) / 4294967296.0));
    double angle = 2 * acos(-1) * (random.v[pair + 1] + 0.5) / 4294967296.0;
    return radius * (col % 2 ? sin(angle) : cos(angle));
}

static void check_tensor(const ParamSet *set, const Param *param, uint32_t key, double std) {
    const char *place = strstr(param->name, "layers.");
    uint32_t layer = place ? (uint32_t)(place[7] - '0') : 0;
    for (int s = 0; s < param->shards; s++) {
        Tensor shard = param_shard(set, param, PARAM_VALUE, s);
        for (int64_t r = 0; r < shard.rows; r++)
            for (int64_t c = 0; c < shard.cols; c++) {
                int64_t row = r + param_first_row(param, s), col = c + param_first_col(param, s);
                double expected = std * normal_at(key, layer, row, col);
                double found = (double)tensor_row(shard, r)[c];
                ck_assert_msg(fabs(found - expected) < 1e-7 * std + 1e-6 * fabs(expected),
                              "%s[%d, %d] is %.9g, expected %.9g", param->name, (int)row, (int)col,
                              found, expected);
            }
    }
}

static int checked(const char *const *settings) {
    Model model;
    int count = 0;
    open_model(&model, settings);
    for (int p = 0; p < model.set.count; p++) {
        const Param *param = &model.set.param[p];
        for (size_t i = 0; param->rank == 2 && i < sizeof tensors / sizeof *tensors; i++) {
            if (!strstr(param->name, tensors[i].word)) continue;
            check_tensor(&model.set, param, tensors[i].key, tensors[i].std);
            count++;
        }
    }
    model_forget(&model);
    return count;
}

START_TEST(initial_values_are_those_of_their_keys) {
    ck_assert_int_eq(checked(decoder), 2 + 7 * LAYERS);
    ck_assert_int_eq(checked(mlp), 2 + 3 * LAYERS);
}
END_TEST

int main(void) { return run_suite("draws", TESTS(initial_values_are_those_of_their_keys)); }
