/* What the plan promises against what a run has: parameters, memory, collectives and bytes, and
 * which tensors are kept, at several layouts. On 6 ranks. */
#include "base/error.h"
#include "checkpoint/saver.h"
#include "run/plan_ledger.h"
#include "run/plan_memory.h"
#include "run/plan_traffic.h"
#include "run/state.h"
#include "support/array_file.h"
#include "support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const modes[] = {"none", "act", "block"};

static void set(Config *config, const char *assignment) {
    ck_assert_msg(config_set(config, assignment) == 0, "%s", error_message());
}

static Config config_of(const char *path, const char *const *assignments) {
    Config config;
    config_defaults(&config);
    ck_assert_msg(config_read(&config, path) == 0, "%s", error_message());
    for (; *assignments; assignments++) set(&config, *assignments);
    ck_assert_msg(config_resolve(&config) == 0 && config_check(&config) == 0, "%s",
                  error_message());
    return config;
}

/* Rows for the mlp: what is in them doesn't matter. */
static ArrayFile rows_file(void) {
    enum { ROWS = 100, INPUTS = 64, OUTPUTS = 4 };
    static double value[ROWS * INPUTS];
    for (int i = 0; i < ROWS * INPUTS; i++) value[i] = i % 7 - 3;
    ArrayFile file = array_file_begin(0);
    array_file_add(&file, "inputs", H5T_IEEE_F32LE, 2, (hsize_t[]){ROWS, INPUTS}, LAYOUT_CONTIGUOUS,
                   value);
    array_file_add(&file, "targets", H5T_IEEE_F32LE, 2, (hsize_t[]){ROWS, OUTPUTS},
                   LAYOUT_CONTIGUOUS, value);
    for (int i = 0; i < ROWS; i++) value[i] = i % 2;
    array_file_add(&file, "classes", H5T_STD_I32LE, 1, (hsize_t[]){ROWS}, LAYOUT_CONTIGUOUS, value);
    array_file_end(&file);
    return file;
}

typedef struct {
    const Config *config;
    Grid *grid;
    Trainer trainer;
    Saver *saver;
} Run;

static void run_open(Run *run, const Config *config, Grid *grid) {
    *run = (Run){.config = config, .grid = grid};
    CheckpointPlaces places = state_places(config, grid->tp, grid->dp);
    ck_assert_msg(trainer_open(&run->trainer, config, grid, 1, true) == 0, "%s", error_message());
    ck_assert_msg(trainer_survey(&run->trainer) == 0, "%s", error_message());
    ck_assert_msg(saver_open(&run->saver, grid, &run->trainer.model.set, &places) == 0, "%s",
                  error_message());
}

static void run_close(Run *run) {
    saver_close(run->saver);
    trainer_close(&run->trainer);
}

static void check_memory(const Run *run) {
    const Trainer *trainer = &run->trainer;
    const Model *model = &trainer->model;
    const Grid *grid = run->grid;
    MemoryPlan plan;
    int status =
        plan_memory(run->config, 1, grid->tp, grid->dp, grid->tensor_rank, grid->data_rank, &plan);
    ck_assert_msg(status == 0, "%s", error_message());
    size_t one = params_bytes(&model->set, 1);
    ck_assert_uint_eq(plan.parameters, one);
    ck_assert_uint_eq(plan.gradients, one * (size_t)(1 + trainer->spares));
    ck_assert_uint_eq(plan.moments, 2 * one);
    ck_assert_uint_eq(plan.activations, model->arena.capacity);
    ck_assert_uint_eq(model->arena.used, model->arena.capacity);
    ck_assert_uint_eq(
        plan.exchanges,
        exchange_bytes(model->exchange_ffn) +
            (model->exchange_attention ? exchange_bytes(model->exchange_attention) : 0) +
            exchange_bytes(model->exchange_head) + exchange_bytes(trainer->exchange) +
            stream_bytes(&model->space.stream));
    ck_assert_uint_eq(plan.copy, saver_bytes(run->saver));
}

static void check_traffic(Run *run) {
    Grid *grid = run->grid;
    Traffic traffic[TRAFFIC_KINDS], sum = {0};
    StepReport report = {0};
    comm_counters_reset(grid);
    ck_assert_msg(trainer_step(&run->trainer, &report) == 0, "%s", error_message());
    int64_t collectives = grid->counters.collectives, bytes = grid->counters.bytes;
    int status =
        plan_traffic(run->config, grid->tp, grid->dp, grid->tensor_rank, grid->data_rank, traffic);
    ck_assert_msg(status == 0, "%s", error_message());
    for (int k = 0; k < TRAFFIC_KINDS; k++) {
        sum.collectives += traffic[k].collectives;
        sum.bytes += traffic[k].bytes;
    }
    ck_assert_int_eq(sum.collectives, collectives);
    ck_assert_int_eq(sum.bytes, bytes);
}

/* Kept: each layer has its own. Again: all have the same. */
static void check_fate(const FfnTensor *tensor, TensorFate fate, const real *first,
                       const real *second) {
    TensorFate real_fate = !first ? TENSOR_NEVER : first == second ? TENSOR_AGAIN : TENSOR_KEPT;
    ck_assert_msg(fate == real_fate, "%s: %d, in truth %d", tensor->name, fate, real_fate);
}

static const real *data_of(const Sharded *sharded) {
    return range_size(sharded->owned) ? sharded->shard[sharded->owned.begin].data : NULL;
}

/* act(G), or of a dual FFN act(U), is there at the eager level. */
static const real *ffn_tensor(const Model *model, int l, char name) {
    const LayerSaved *saved = &model->layer[l].saved;
    bool dual = !strcmp(model->config.ffn.kind, "dual");
    switch (name) {
    case 'X': return saved->normed_ffn.data;
    case 'G': return data_of(&saved->ffn.gate);
    case 'U':
    case 'Z': return data_of(&saved->ffn.up);
    case 'H': return data_of(&saved->ffn.hidden);
    case 'A': return dual ? NULL : data_of(&saved->ffn.work);
    case 'B': return data_of(&saved->ffn.work);
    default: return NULL;
    }
}

static void check_fates(const Run *run) {
    const Model *model = &run->trainer.model;
    FfnTensor tensor[FFN_TENSORS];
    int count = ledger_ffn_tensors(run->config, run->grid->tp, tensor);
    ck_assert_int_ge(count, 3);
    if (range_size(axis_owned(&model->channels, run->grid->tensor_rank)) == 0) return;
    for (int i = 0; i < count; i++)
        check_fate(&tensor[i], tensor[i].fate[model->config.recompute],
                   ffn_tensor(model, 0, tensor[i].name[0]),
                   ffn_tensor(model, 1, tensor[i].name[0]));
}

/* Every tensor once: the owned shards of all tensor ranks; a replicated one on the first. */
static void check_parameters(const Run *run) {
    const ParamSet *set = &run->trainer.model.set;
    Ledger ledger;
    ck_assert_int_eq(ledger_make(run->config, &ledger), 0);
    int64_t mine = 0, all[64] = {0}, sum = 0;
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        if (param->split == SPLIT_NONE && run->grid->tensor_rank > 0) continue;
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            Tensor view = param_shard(set, param, PARAM_VALUE, s);
            mine += view.rows * view.cols;
        }
    }
    comm_gather_all(run->grid, GROUP_TENSOR, &mine, sizeof mine, all);
    for (int r = 0; r < run->grid->tp; r++) sum += all[r];
    ck_assert_int_eq(sum, ledger.total.weights + ledger.total.biases);
    ck_assert_int_eq(sum, params_count(set));
    ck_assert_double_eq_tol(ledger.total.forward,
                            model_forward_products(&run->trainer.model.config),
                            1e-9 * ledger.total.forward);
}

/* Uneven everywhere: 172 channels, 2 kv heads and 256 tokens over 8 shards, 4 batch shards. With
 * one channel the buffers of the FFN's sum are too small for the others. */
#define TINY     "tests/configs/tiny.ini"
#define MLP      "tests/configs/mlp.ini"
#define SEQUENCE "parallel.sequence=true"
static const struct {
    const char *path;
    int tp, dp;
    const char *set[8];
} rows[] = {
    {TINY, 1, 1, {NULL}},
    {TINY, 2, 1, {NULL}},
    {TINY, 3, 2, {NULL}},
    {TINY, 6, 1, {NULL}},
    {TINY, 1, 4, {NULL}},
    {TINY, 2, 3, {NULL}},
    {TINY, 3, 2, {"ffn.kind=dense", "ffn.activation=gelu", "model.tie_embeddings=false"}},
    {TINY, 2, 2, {"ffn.kind=dual", "ffn.activation=relu", "ffn.d_ff=1"}},
    {TINY, 3, 2, {"grid.transport=messages"}},
    {TINY, 3, 2, {"grid.transport=messages", "ffn.d_ff=1"}},
    {TINY, 3, 1, {"grid.reduction=allreduce"}},
    {TINY, 5, 1, {"train.micro_batch=2", "model.kv_heads=4", "model.vocab=30000"}},
    {TINY, 2, 1, {SEQUENCE, NULL}},
    {TINY, 3, 2, {SEQUENCE, NULL}},
    {TINY, 6, 1, {SEQUENCE, NULL}},
    {TINY, 5, 1, {SEQUENCE, "model.context=3", "ffn.bias=false"}}, /* more ranks than rows */
    {TINY, 2, 3, {SEQUENCE, "grid.transport=messages", "ffn.kind=dense"}},
    {TINY, 3, 1, {SEQUENCE, "grid.reduction=allreduce", "model.tie_embeddings=false"}},
    {TINY, 2, 2, {SEQUENCE, "ffn.kind=dual", "ffn.activation=relu", "ffn.d_ff=1"}},
    {TINY, 3, 2, {SEQUENCE, "grid.transport=messages", "ffn.d_ff=1"}},
    {TINY, 2, 1, {SEQUENCE, "kernels.fusion=eager"}},
    {TINY, 3, 1, {"kernels.fusion=eager", "ffn.kind=dual", "ffn.activation=relu"}},
    {TINY, 2, 1, {"kernels.fusion=packed", "ffn.kind=dense"}},
    {TINY, 1, 2, {"kernels.fusion=eager", "ffn.kind=dense"}},
    {MLP, 1, 1, {NULL}},
    {MLP, 2, 3, {SEQUENCE, NULL}},
    {MLP, 6, 1, {SEQUENCE, "ffn.d_ff=1"}},
    {MLP, 2, 3, {NULL}},
    {MLP, 3, 2, {"model.loss=cross_entropy", "data.targets=classes", "ffn.kind=dense"}},
    {MLP, 6, 1, {"ffn.d_ff=1"}},
};

/* One row under one recompute mode; ranks beyond the layout wait. */
static void check_run(const Config *config, int tp, int dp) {
    Grid grid;
    Run run;
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, tp, dp) == 0, "%s", error_message());
    if (!grid.surplus) {
        run_open(&run, config, &grid);
        check_memory(&run);
        check_traffic(&run);
        check_fates(&run);
        check_parameters(&run);
        run_close(&run);
    }
    grid_wait_surplus(&grid, 0);
    grid_close(&grid);
    comm_stop(&grid);
}

static bool is_cut(const char *const *set) { return set[0] && !strcmp(set[0], SEQUENCE); }

/* All modes on the first layouts, and where the stream is cut by rows; one on each of the others.
 */
START_TEST(the_plan_is_what_a_run_has) {
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        ArrayFile file = rows_file();
        Config config = config_of(rows[i].path, rows[i].set);
        if (!strcmp(rows[i].path, MLP)) snprintf(config.data.train, CONFIG_TEXT, "%s", file.path);
        for (int mode = 0; mode < 3; mode++) {
            if (i > 3 && !is_cut(rows[i].set) && mode != i % 3) continue;
            snprintf(config.train.recompute, sizeof config.train.recompute, "%s", modes[mode]);
            check_run(&config, rows[i].tp, rows[i].dp);
        }
        array_file_close(&file);
    }
}
END_TEST

int main(int argc, char **argv) {
    return run_mpi_suite(&argc, &argv, "ledger", TESTS(the_plan_is_what_a_run_has));
}
