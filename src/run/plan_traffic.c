#include "run/plan_traffic.h"

#include "run/setup.h"
#include "run/trainer.h"

#include <assert.h>
#include <string.h>

const char *const traffic_names[TRAFFIC_KINDS] = {
    "entry", "attention", "FFN", "head", "gains and biases", "gradients", "norm, finite?",
};

/* A declared model at one place of a layout, and what was found there. */
typedef struct {
    const Config *config;
    const Model *model;
    int tensor_rank, data_rank;
    AxisLayout batch;
    int64_t microbatches; /* of this rank in a step */
    Collective *row;
    int count;
} Place;

static void add(Place *place, Collective collective) {
    assert(place->count < COLLECTIVES_MAX);
    if (collective.calls < collective.times) collective.calls = collective.times;
    if (collective.times > 0) place->row[place->count++] = collective;
}

/* The same in each microbatch. */
static void add_each(Place *place, Collective collective) {
    collective.times *= place->microbatches;
    collective.calls *= place->microbatches;
    collective.bytes *= place->microbatches;
    add(place, collective);
}

static int partials(const AxisLayout *axis, int rank) {
    Range subtree[TREE_MAX_SUBTREES];
    return tree_subtrees(axis->shards, axis_owned(axis, rank), subtree);
}

static int partials_of_others(const AxisLayout *axis, int rank) {
    int sum = 0;
    for (int r = 0; r < axis->ranks; r++) sum += r == rank ? 0 : partials(axis, r);
    return sum;
}

/* `times` sums of floats over the group's shards, to rank `rank`. */
static Collective sums(const Place *place, TrafficKind kind, const ExchangeSpec *spec, int rank,
                       int64_t times) {
    bool exact = place->model->config.reduction == REDUCTION_EXACT;
    CollectiveForm own = spec->own_rows ? COLLECTIVE_SUM_OWN : COLLECTIVE_SUM;
    return (Collective){.kind = kind,
                        .group = spec->group,
                        .form = exact || spec->own_rows ? own : COLLECTIVE_REDUCE,
                        .window = exact && spec->transport != TRANSPORT_MESSAGES,
                        .times = times,
                        .bytes = times * exchange_received_predicted(spec, rank),
                        .block = spec->rows * spec->cols * (int64_t)sizeof(real),
                        .sends = partials(spec->axis, rank),
                        .receives = partials_of_others(spec->axis, rank)};
}

/* `times` sums of `numbers` doubles together: everybody's partials go to all. */
static Collective double_sums(TrafficKind kind, const ExchangeSpec *spec, int rank, int64_t times,
                              int64_t numbers) {
    int64_t calls = times * exchange_doubles_calls((numbers + times - 1) / times);
    int leaves = partials(spec->axis, rank) + partials_of_others(spec->axis, rank);
    return (Collective){.kind = kind,
                        .group = spec->group,
                        .form = COLLECTIVE_GATHER,
                        .times = times,
                        .calls = calls,
                        .bytes = exchange_doubles_received_predicted(spec, rank, numbers),
                        .block = leaves * numbers * (int64_t)sizeof(double) / calls};
}

static Collective reductions(TrafficKind kind, Group group, int64_t times, int64_t bytes) {
    return (Collective){.kind = kind,
                        .group = group,
                        .form = COLLECTIVE_REDUCE,
                        .times = times,
                        .bytes = bytes,
                        .block = bytes / times};
}

static void add_sums(Place *place, TrafficKind kind, const AxisLayout *axis, int64_t times) {
    ExchangeSpec spec = model_exchange_spec(place->model, axis);
    add_each(place, sums(place, kind, &spec, place->tensor_rank, times));
}

static const Stream *stream_of(const Place *place) { return &place->model->space.stream; }

/* All rows of a stream that is cut by rows, or to each rank its own. */
static void add_rows(Place *place, TrafficKind kind, CollectiveForm form, int64_t times) {
    const ModelConfig *config = &place->model->config;
    if (!stream_of(place)->cut) return;
    GatherSpec spec = stream_gather_spec(stream_of(place), config->reduction, config->transport, 1);
    int rank = place->tensor_rank;
    int64_t bytes = form == COLLECTIVE_SCATTER ? gather_scatter_received_predicted(&spec, rank)
                                               : gather_received_predicted(&spec, rank);
    add_each(place, (Collective){.kind = kind,
                                 .group = GROUP_TENSOR,
                                 .form = form,
                                 .window = config->reduction == REDUCTION_EXACT &&
                                           config->transport != TRANSPORT_MESSAGES,
                                 .times = times,
                                 .bytes = times * bytes,
                                 .block = spec.rows->units * spec.cols * (int64_t)sizeof(real)});
}

static int64_t words(size_t bytes) { return ((int64_t)bytes + 7) / 8; }

/* The stream's first rows are assembled from those who own them. Of a cut one each rank gets its
 * own, and all get the gradients. */
static void add_entry(Place *place) {
    const Model *model = place->model;
    size_t bytes = sizeof(real) * (size_t)(model->space.rows * model->config.ffn.d_model);
    if (!stream_of(place)->cut)
        add_each(place, reductions(TRAFFIC_ENTRY, GROUP_TENSOR, 1, 8 * words(bytes)));
    add_rows(place, TRAFFIC_ENTRY, COLLECTIVE_SCATTER, 1);
    add_rows(place, TRAFFIC_ENTRY, COLLECTIVE_GATHER, 1);
}

/* Sums forward and backward, and where the block is done again attention's once more. Of a cut
 * stream rows are gathered before each sum; backward both inputs and gradients. */
static void add_attention(Place *place) {
    int64_t again = place->model->config.recompute == RECOMPUTE_BLOCK;
    int64_t layers = place->model->config.layers;
    if (config_is_mlp(place->config)) return;
    add_sums(place, TRAFFIC_ATTENTION, &place->model->groups, (2 + again) * layers);
    add_rows(place, TRAFFIC_ATTENTION, COLLECTIVE_GATHER, (3 + again) * layers);
}

static void add_ffn(Place *place) {
    int64_t layers = place->model->config.layers;
    add_sums(place, TRAFFIC_FFN, &place->model->channels, 2 * layers);
    add_rows(place, TRAFFIC_FFN, COLLECTIVE_GATHER, 3 * layers);
}

/* Gradients of what all ranks hold, of a cut stream: sums over rows. */
static void add_row_sums(Place *place) {
    const ParamSet *set = &place->model->set;
    ExchangeSpec spec = stream_sums_spec(stream_of(place));
    int64_t numbers = 0;
    if (!stream_of(place)->cut) return;
    for (int i = 0; i < set->count; i++)
        if (set->param[i].split == SPLIT_NONE) numbers += set->param[i].cols;
    add_each(place, double_sums(TRAFFIC_ROWS, &spec, place->tensor_rank, 1, numbers));
}

/* By chunk of rows: a sum over the shards' outputs, and of a cross entropy the largest logit before
 * it and the target's after it. Then the sum of the input's gradient. */
static void add_head(Place *place) {
    const Model *model = place->model;
    const Head *head = &model->head;
    ExchangeSpec spec = model_exchange_spec(model, &head->axis);
    int64_t rows = model->space.rows;
    add_sums(place, TRAFFIC_HEAD, &head->axis, 1);
    add_rows(place, TRAFFIC_HEAD, COLLECTIVE_GATHER, 1);
    add_each(place, double_sums(TRAFFIC_HEAD, &spec, place->tensor_rank, head->chunks, rows));
    if (model->config.loss != LOSS_CROSS_ENTROPY) return;
    const size_t widths[] = {sizeof(real), sizeof(double)};
    for (int i = 0; i < 2; i++)
        add_each(place,
                 reductions(TRAFFIC_HEAD, GROUP_TENSOR, head->chunks, rows * (int64_t)widths[i]));
}

/* Gradients and the loss. */
static void add_gradients(Place *place) {
    ExchangeSpec spec = {.group = GROUP_DATA,
                         .axis = &place->batch,
                         .rows = 1,
                         .cols = place->model->set.elements,
                         .transport = place->model->config.transport};
    add(place, sums(place, TRAFFIC_GRADIENTS, &spec, place->data_rank, 1));
    add(place, double_sums(TRAFFIC_GRADIENTS, &spec, place->data_rank, 1, 1));
}

static void add_norm(Place *place) {
    const ParamSet *set = &place->model->set;
    int64_t shards = 0;
    for (int i = 0; i < set->count; i++) shards += set->param[i].shards;
    add(place, reductions(TRAFFIC_STEP, GROUP_TENSOR, 1, shards * (int64_t)sizeof(double)));
}

static void list(Place *place, int tp, int dp) {
    if (tp > 1) {
        add_entry(place);
        add_attention(place);
        add_ffn(place);
        add_head(place);
        add_row_sums(place);
        add_norm(place);
    }
    if (dp > 1) add_gradients(place);
    if (tp * dp > 1) add(place, reductions(TRAFFIC_STEP, GROUP_GRID, 1, (int64_t)sizeof(int64_t)));
}

int plan_collectives(const Config *config, int tp, int dp, int tensor_rank, int data_rank,
                     Collective row[COLLECTIVES_MAX], int *count) {
    Model model;
    ModelConfig shape = setup_model(config, config->train.micro_batch, 1);
    *count = 0;
    int status = model_declare(&model, &shape, tensor_rank, tp);
    if (!status) {
        Place place = {.config = config,
                       .model = &model,
                       .tensor_rank = tensor_rank,
                       .data_rank = data_rank,
                       .batch = axis_layout(config->grid.data, (int)config->grid.data, dp),
                       .row = row};
        place.microbatches =
            range_size(axis_owned(&place.batch, data_rank)) *
            (config->train.global_batch / config->train.micro_batch / config->grid.data);
        list(&place, tp, dp);
        *count = place.count;
    }
    model_forget(&model);
    return status;
}

int plan_traffic(const Config *config, int tp, int dp, int tensor_rank, int data_rank,
                 Traffic traffic[TRAFFIC_KINDS]) {
    Collective row[COLLECTIVES_MAX];
    int count;
    memset(traffic, 0, TRAFFIC_KINDS * sizeof *traffic);
    int status = plan_collectives(config, tp, dp, tensor_rank, data_rank, row, &count);
    for (int i = 0; i < count; i++) {
        traffic[row[i].kind].collectives += row[i].times;
        traffic[row[i].kind].bytes += row[i].bytes;
    }
    return status;
}
