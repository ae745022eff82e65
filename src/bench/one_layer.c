#include "bench/one_layer.h"

#include "base/error.h"
#include "nn/linear.h"
#include "run/setup.h"

#include <stdlib.h>

static void fill(Tensor x) {
    for (int64_t i = 0; i < x.rows; i++)
        for (int64_t j = 0; j < x.cols; j++)
            tensor_row(x, i)[j] = (real)((i * 31 + j * 17) % 101) / 50 - 1;
}

static void fill_shards(const Sharded *sharded) {
    for (int s = (int)sharded->owned.begin; s < sharded->owned.end; s++) fill(sharded->shard[s]);
}

static void fill_all(Model *model) {
    const LayerSaved *saved = &model->layer[0].saved;
    const Tensor whole[] = {model->stream[0], model->gradient, model->branch, model->sum};
    const Sharded *cut[] = {&saved->ffn.hidden, &saved->ffn.up, &model->head.logits};
    const Sharded *attention[] = {&saved->attention.q,          &saved->attention.k,
                                  &saved->attention.v,          &saved->attention.o,
                                  &model->attention_gradient.q, &model->attention_gradient.k,
                                  &model->attention_gradient.v, &model->attention_gradient.o};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) fill(whole[i]);
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) fill_shards(cut[i]);
    if (model->layer[0].ffn.gate >= 0) fill_shards(&saved->ffn.gate);
    if (model->config.kind != MODEL_DECODER) return;
    for (size_t i = 0; i < sizeof attention / sizeof *attention; i++) fill_shards(attention[i]);
}

int one_layer_open(OneLayer *layer, const Bench *bench) {
    const Config *config = bench->config;
    *layer = (OneLayer){0};
    ModelConfig model = setup_model(config, config->train.micro_batch, bench->threads);
    model.layers = 1;
    model.sequence = false; /* all rows are here: products are the same */
    Grid *grid = bench->grid;
    int status = model_declare(&layer->model, &model, grid->tensor_rank, grid->tp);
    int64_t size = layer->model.space.rows * model.ffn.d_model;
    if (!status) {
        layer->partials = memory_allocate((size_t)(TREE_MAX_SUBTREES * size) * sizeof(real),
                                          "partial sums of the bench");
        if (!layer->partials) status = WEFT_RUNTIME;
    }
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) status = model_allocate(&layer->model, grid, true);
    if (status) return status;
    params_initialize(&layer->model.set, model.seed, bench->threads);
    fill_all(&layer->model);
    return 0;
}

void one_layer_close(OneLayer *layer) {
    model_release(&layer->model);
    free(layer->partials);
}

Partials one_layer_partials(const OneLayer *layer, const AxisLayout *axis, int64_t rows) {
    const Model *model = &layer->model;
    int64_t cols = model->config.ffn.d_model;
    Partials partials = {0};
    Range owned = axis_owned(axis, model->set.tensor_rank);
    partials.count = tree_subtrees(axis->shards, owned, partials.subtree);
    for (int i = 0; i < partials.count; i++)
        partials.sum[i] = tensor_view(layer->partials + i * rows * cols, rows, cols);
    return partials;
}

/* ---- products ---- */

static void add_attention(Model *model, ProductGroup *qkv, ProductGroup *o) {
    const SelfAttention *attention = &model->layer[0].attention;
    const AttentionSaved *saved = &model->layer[0].saved.attention;
    int64_t d = model->config.ffn.d_model, rows = model->space.rows;
    int64_t kv = model->config.attention.kv_heads * attention->head_dim;
    *qkv = (ProductGroup){.name = "q, k, v",
                          .column = true,
                          .weights = 3,
                          .weight = {attention->q, attention->k, attention->v},
                          .cut = {&saved->q, &saved->k, &saved->v},
                          .rows = rows,
                          .in = d,
                          .out = d + 2 * kv,
                          .axis = &model->groups};
    *o = (ProductGroup){.name = "o",
                        .weights = 1,
                        .weight = {attention->o},
                        .cut = {&saved->o},
                        .rows = rows,
                        .in = d,
                        .out = d,
                        .axis = &model->groups};
}

static void add_ffn(Model *model, ProductGroup *in, ProductGroup *down) {
    const Ffn *ffn = &model->layer[0].ffn;
    const FfnSaved *saved = &model->layer[0].saved.ffn;
    int64_t d = model->config.ffn.d_model, d_ff = model->config.ffn.d_ff;
    bool pair = ffn->gate >= 0;
    *in = (ProductGroup){.name = pair ? "gate, up" : "up",
                         .column = true,
                         .weights = pair ? 2 : 1,
                         .weight = {pair ? ffn->gate : ffn->up, ffn->up},
                         .cut = {pair ? &saved->gate : &saved->up, &saved->up},
                         .rows = model->space.rows,
                         .in = d,
                         .out = pair ? 2 * d_ff : d_ff,
                         .axis = &model->channels};
    *down = (ProductGroup){.name = "down",
                           .weights = 1,
                           .weight = {ffn->down},
                           .cut = {&saved->hidden},
                           .rows = model->space.rows,
                           .in = d_ff,
                           .out = d,
                           .axis = &model->channels};
}

/* The first chunk of rows. */
static void add_head(Model *model, ProductGroup *group) {
    const Head *head = &model->head;
    *group = (ProductGroup){.name = "head",
                            .column = true,
                            .weights = 1,
                            .weight = {head->weight},
                            .own = head->logits,
                            .rows = range_size(shard_range(model->space.rows, head->chunks, 0)),
                            .in = head->d_model,
                            .out = head->axis.units,
                            .axis = &model->vocab};
    group->cut[0] = &group->own;
    for (int s = (int)group->own.owned.begin; s < group->own.owned.end; s++)
        group->own.shard[s].rows = group->rows;
}

int one_layer_products(OneLayer *layer, ProductGroup group[PRODUCT_GROUPS]) {
    int count = 0;
    if (layer->model.config.kind == MODEL_DECODER) {
        add_attention(&layer->model, &group[0], &group[1]);
        count = 2;
    }
    add_ffn(&layer->model, &group[count], &group[count + 1]);
    add_head(&layer->model, &group[count + 2]);
    return count + 3;
}

ProductShape product_shape(const ProductGroup *group, ProductPass pass) {
    const ProductShape shape[] = {
        [PRODUCT_FORWARD] = {GEMM_NT, group->rows, group->out, group->in},
        [PRODUCT_INPUT] = {GEMM_NN, group->rows, group->in, group->out},
        [PRODUCT_WEIGHT] = {GEMM_TN, group->out, group->in, group->rows},
    };
    return shape[pass];
}

static void sum_partials(OneLayer *layer, const ProductGroup *group, LinearSum kind) {
    LinearTerm term[PRODUCT_WEIGHTS];
    ParamSet *set = &layer->model.set;
    for (int i = 0; i < group->weights; i++)
        term[i] = (LinearTerm){&set->param[group->weight[i]], group->cut[i]};
    Partials partials = one_layer_partials(layer, group->axis, group->rows);
    linear_partials(&layer->model.space, set, kind, term, group->weights, &partials);
}

int product_run(OneLayer *layer, const ProductGroup *group, ProductPass pass) {
    Model *model = &layer->model;
    GemmList *list = &model->space.products;
    int status = 0;
    Tensor whole = group->column ? model->stream[0] : model->gradient;
    whole.rows = group->rows;
    bool sums = pass == (group->column ? PRODUCT_INPUT : PRODUCT_FORWARD);
    if (sums) {
        sum_partials(layer, group, group->column ? LINEAR_COLUMN_BACKWARD : LINEAR_ROW_FORWARD);
        return 0;
    }
    for (int i = 0; i < group->weights && !status; i++) {
        const Param *weight = &model->set.param[group->weight[i]];
        if (group->column && pass == PRODUCT_FORWARD)
            status = linear_column_forward(list, &model->set, weight, whole, group->cut[i]);
        else if (group->column)
            status = linear_column_gradient(list, &model->set, weight, group->cut[i], whole);
        else if (pass == PRODUCT_INPUT)
            status = linear_row_input_gradient(list, &model->set, weight, whole, group->cut[i]);
        else
            status = linear_row_gradient(list, &model->set, weight, whole, group->cut[i]);
    }
    if (!status) workspace_multiply(&model->space);
    return status;
}
