#include "support/model_checkpoint.h"

#include "base/error.h"
#include "run/setup.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const small[] = {
    "run.dir=runs/made",
    "data.train=none.txt",
    "model.d_model=16",
    "model.layers=3",
    "model.heads=2",
    "model.kv_heads=2",
    "model.context=8",
    "ffn.d_ff=12",
    "ffn.bias=true",
    "grid.tensor=4",
    "grid.data=2",
    "train.steps=8",
    "train.global_batch=12",
    "train.micro_batch=1",
    "optim.warmup=1",
    "eval.every=0",
    NULL,
};

static void set_all(Config *config, const char *const *settings) {
    for (; *settings; settings++)
        ck_assert_msg(config_set(config, *settings) == 0, "%s", error_message());
}

static void make_blocks(ModelCheckpoint *made) {
    char *text = config_format(&made->config);
    made->function = config_function(&made->config, 1000);
    made->details = config_details(&made->config);
    made->origin = json_pack("{s:s, s:s}", "host", "here", "config", text);
    free(text);
    ck_assert(made->function && made->details && made->origin);
    json_object_set_new(made->details, "training_data_digest",
                        json_string("00112233445566778899aabbccddeeff"));
    json_object_set_new(made->details, "implementation",
                        json_pack("{s:s, s:s, s:s, s:s, s:i}", "project", "weft", "revision", "1",
                                  "file", "none", "symbol", "none", "numerics_version", 1));
    int tensor = (int)made->config.grid.tensor, data = (int)made->config.grid.data;
    made->state = (CheckpointState){
        .grid_tensor = tensor,
        .grid_data = data,
        .step = 3,
        .tokens = 3 * made->config.train.global_batch * made->config.model.context,
        .function = made->function,
        .details = made->details,
        .origin = made->origin,
        .places = {axis_layout(tensor, tensor, 1), axis_layout(data, data, 1)}};
}

void model_checkpoint_declare(ModelCheckpoint *made, const char *const *settings) {
    *made = (ModelCheckpoint){0};
    grid_serial(&made->grid);
    config_defaults(&made->config);
    set_all(&made->config, small);
    set_all(&made->config, settings);
    if (made->config.ffn.d_ff == 0) made->config.ffn.d_ff = 682; /* a rule's, resolved by others */
    ck_assert_msg(config_check(&made->config) == 0, "%s", error_message());
    ModelConfig shape = setup_model(&made->config, made->config.train.micro_batch, 1);
    ck_assert_int_eq(model_declare(&made->model, &shape, 0, 1), 0);
    make_blocks(made);
}

/* Initial values, each moved by a little that depends on its place in the whole tensor. */
static void fill_row(const ParamSet *set, int index, int shard, int64_t row) {
    const Param *param = &set->param[index];
    int64_t first = (param_first_row(param, shard) + row) * param->cols;
    first += param_first_col(param, shard);
    real *value = tensor_row(param_shard(set, param, PARAM_VALUE, shard), row);
    real *moment1 = tensor_row(param_shard(set, param, PARAM_MOMENT1, shard), row);
    real *moment2 = tensor_row(param_shard(set, param, PARAM_MOMENT2, shard), row);
    for (int64_t i = 0; i < param_shard_cols(param, shard); i++) {
        double wave = sin((double)(first + i) + 1000.0 * index + 1);
        value[i] += (real)(0.1 * wave);
        moment1[i] = (real)(0.01 * wave);
        moment2[i] = (real)(0.001 * wave * wave);
    }
}

static void fill(ParamSet *set) {
    params_initialize(set, 1, 1);
    for (int i = 0; i < set->count; i++)
        for (int s = 0; s < set->param[i].shards; s++)
            for (int64_t r = 0; r < param_shard_rows(&set->param[i], s); r++)
                fill_row(set, i, s, r);
}

void model_checkpoint_open(ModelCheckpoint *made, const char *const *settings) {
    model_checkpoint_declare(made, settings);
    ck_assert_int_eq(params_allocate(&made->model.set, true), 0);
    fill(&made->model.set);
}

void model_checkpoint_close(ModelCheckpoint *made) {
    model_forget(&made->model);
    json_decref(made->function);
    json_decref(made->details);
    json_decref(made->origin);
}

static void copy(const ModelCheckpoint *made, int index, real *whole, bool back) {
    const ParamSet *set = &made->model.set;
    const Param *param = &set->param[index];
    for (int s = 0; s < param->shards; s++) {
        Tensor shard = param_shard(set, param, PARAM_VALUE, s);
        for (int64_t r = 0; r < shard.rows; r++) {
            real *place =
                whole + (param_first_row(param, s) + r) * param->cols + param_first_col(param, s);
            size_t bytes = (size_t)shard.cols * sizeof *place;
            memcpy(back ? tensor_row(shard, r) : place, back ? place : tensor_row(shard, r), bytes);
        }
    }
}

real *model_checkpoint_whole(const ModelCheckpoint *made, int param) {
    const Param *p = &made->model.set.param[param];
    real *whole = malloc((size_t)(p->rows * p->cols) * sizeof *whole);
    ck_assert_ptr_nonnull(whole);
    copy(made, param, whole, false);
    return whole;
}

void model_checkpoint_put(ModelCheckpoint *made, int param, const real *whole) {
    copy(made, param, (real *)whole, true);
}

void model_checkpoint_save(ModelCheckpoint *made, const char *run_dir) {
    int status = checkpoint_save(&made->grid, &made->model.set, &made->state, run_dir);
    ck_assert_msg(status == 0, "%s", error_message());
}
