#include "run/stats.h"

#include "base/error.h"
#include "nn/layer.h"
#include "nn/observer.h"
#include "run/ffn_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Stats {
    Trainer *trainer;
    Observer observer;
    FfnStatsWork work;
    int owner;         /* data rank that computes the first microbatch */
    bool started, due; /* a step of this start was seen; this step is one to look at */
    int64_t step;      /* of the state */
    Tensor input;      /* of the layer under way, until its output is there */
    Sharded gate, up, hidden;
    FfnStats *layer;     /* [layers] */
    GradientNorm values; /* the parameters' squares, as the trainer's norm has the gradients' */
};

/* ---- looking ---- */

static int shard_at(const AxisLayout *axis, int64_t col) {
    int s = 0;
    while (axis_units(axis, s).end <= col) s++;
    return s;
}

/* Pieces are kept as views: they stay until ffn.down of their layer has been shown. */
static void see(void *context, const Seen *seen) {
    Stats *stats = context;
    const AxisLayout *channels = &stats->work.channels;
    struct {
        const char *name;
        Sharded *views;
    } cut[] = {{"ffn.gate", &stats->gate}, {"ffn.up", &stats->up}, {"ffn.act", &stats->hidden}};
    if (seen->microbatch != 0 || seen->layer < 0 || seen->gradient) return;
    if (!strcmp(seen->name, "norm.ffn")) stats->input = seen->data;
    for (int i = 0; i < 3; i++)
        if (!strcmp(seen->name, cut[i].name))
            cut[i].views->shard[shard_at(channels, seen->col)] = seen->data;
    if (!strcmp(seen->name, "ffn.down"))
        ffn_stats_take(&stats->work, stats->input, &stats->gate, &stats->up, &stats->hidden,
                       seen->data, &stats->layer[seen->layer]);
}

int stats_open(Stats **out, Trainer *trainer) {
    Model *model = &trainer->model;
    int64_t layers = model->config.layers;
    *out = NULL;
    if (trainer->config.stats.every == 0) return 0;
    Stats *stats = *out = calloc(1, sizeof *stats);
    if (!stats) return error_set(WEFT_RUNTIME, "out of memory: statistics");
    stats->trainer = trainer;
    stats->observer = (Observer){.see = see, .context = stats};
    stats->owner = axis_owner(&trainer->batch, 0);
    stats->gate.owned = stats->up.owned = stats->hidden.owned =
        axis_owned(&model->channels, model->set.tensor_rank);
    stats->layer = memory_allocate((size_t)layers * sizeof *stats->layer, "statistics of layers");
    if (!stats->layer) return WEFT_RUNTIME;
    int status = ffn_stats_open(&stats->work, trainer->grid, &model->layer[0].ffn,
                                trainer->config.stats.threshold);
    return status ? status : gradient_norm_init(&stats->values, &model->set);
}

void stats_close(Stats *stats) {
    if (!stats) return;
    if (stats->trainer->model.space.observer == &stats->observer)
        stats->trainer->model.space.observer = NULL;
    gradient_norm_release(&stats->values);
    ffn_stats_close(&stats->work);
    free(stats->layer);
    free(stats);
}

void stats_begin(Stats *stats, Trainer *trainer) {
    if (!stats) return;
    stats->step = trainer->step;
    stats->due = !stats->started || trainer->step % trainer->config.stats.every == 0;
    stats->started = true;
    if (!stats->due) return;
    trainer->model.space.observer = &stats->observer;
    ParamSet values = trainer->model.set; /* whose gradients are the values */
    values.arena[PARAM_GRADIENT] = values.arena[PARAM_VALUE];
    gradient_norm(&stats->values, &values, trainer->grid, trainer->threads);
}

/* ---- telling ---- */

static json_t *fraction(int64_t part, int64_t whole) {
    return metrics_number((double)part / (double)whole);
}

static json_t *branch_json(const BranchStats *branch, int64_t values) {
    json_t *quantiles = json_array();
    for (int q = 0; q < QUANTILES; q++)
        json_array_append_new(quantiles, metrics_number(branch->quantile[q]));
    return json_pack("{s:o, s:o, s:o, s:o, s:I}", "mean", metrics_number(branch->mean), "std",
                     metrics_number(branch->std), "quantiles", quantiles, "saturated",
                     fraction(branch->saturated, values), "nonfinite",
                     (json_int_t)branch->nonfinite);
}

static json_t *hidden_json(const FfnStats *layer) {
    return json_pack("{s:o, s:o, s:o, s:I}", "rms", metrics_number(layer->hidden_rms), "zero",
                     fraction(layer->zeros, layer->values), "near_zero",
                     fraction(layer->small, layer->values), "nonfinite",
                     (json_int_t)layer->hidden_nonfinite);
}

static json_t *layer_json(const FfnStats *layer) {
    json_t *object = json_pack(
        "{s:o, s:o, s:I, s:o, s:o}", "input_rms", metrics_number(layer->input_rms), "output_rms",
        metrics_number(layer->output_rms), "nonfinite",
        (json_int_t)(layer->input_nonfinite + layer->output_nonfinite), "up",
        branch_json(&layer->branch[BRANCH_UP], layer->values), "hidden", hidden_json(layer));
    if (!layer->has_gate) return object;
    json_object_set_new(object, "gate", branch_json(&layer->branch[BRANCH_GATE], layer->values));
    json_object_set_new(object, "gate_up_correlation", metrics_number(layer->correlation));
    return object;
}

/* Of one tensor, from its shards' sums of squares. */
static double rms_of(const Param *param, const double *shard) {
    return sqrt(tree_sum_doubles(shard, param->shards) / (double)(param->rows * param->cols));
}

/* Adds the tensors' values or gradients to the objects of their layers, the others' to the top. */
static int add_tensors(json_t *object, const ParamSet *set, const char *key, const double *shard) {
    json_t *layers = json_object_get(object, "layers"), *layer;
    size_t i;
    int failed = json_object_set_new(object, key, json_object());
    json_array_foreach(layers, i, layer) failed |= json_object_set_new(layer, key, json_object());
    for (int p = 0; p < set->count && !failed; p++) {
        int l;
        const char *name = layer_split_name(set->param[p].name, &l);
        json_t *where = l < 0 ? object : json_array_get(layers, (size_t)l);
        failed = json_object_set_new(json_object_get(where, key), name,
                                     metrics_number(rms_of(&set->param[p], shard)));
        shard += set->param[p].shards;
    }
    return failed;
}

static json_t *stats_json(const Stats *stats, const Trainer *trainer) {
    const ParamSet *set = &trainer->model.set;
    json_t *layers = json_array();
    json_t *object = json_pack("{s:I, s:o}", "step", (json_int_t)stats->step, "layers", layers);
    int failed = !object;
    for (int l = 0; l < trainer->model.config.layers && !failed; l++)
        failed = json_array_append_new(layers, layer_json(&stats->layer[l]));
    failed = failed || add_tensors(object, set, "parameter_rms", stats->values.shard) ||
             add_tensors(object, set, "gradient_rms", trainer->norm.shard);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

int stats_end(Stats *stats, Trainer *trainer, json_t **object) {
    *object = NULL;
    if (!stats || !stats->due) return 0;
    Grid *grid = trainer->grid;
    trainer->model.space.observer = NULL;
    if (stats->owner != 0)
        comm_broadcast(grid, GROUP_DATA, stats->layer,
                       (size_t)trainer->model.config.layers * sizeof *stats->layer, stats->owner);
    if (group_rank(grid, GROUP_GRID) != 0) return 0;
    *object = stats_json(stats, trainer);
    return *object ? 0 : error_set(WEFT_RUNTIME, "out of memory: statistics");
}
