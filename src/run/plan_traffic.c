#include "run/plan_traffic.h"

#include "run/setup.h"
#include "run/trainer.h"

#include <string.h>

const char *const traffic_names[TRAFFIC_KINDS] = {
    "entry", "attention", "FFN", "head", "gains and biases", "gradients", "norm, finite?",
};

/* A declared model at one place of a layout. */
typedef struct {
    const Config *config;
    const Model *model;
    int tensor_rank, data_rank;
    AxisLayout batch;
    int64_t microbatches; /* of this rank in a step */
} Place;

static Traffic sums(const Place *place, const AxisLayout *axis, int64_t count) {
    ExchangeSpec spec = model_exchange_spec(place->model, axis);
    return (Traffic){count, count * exchange_received_predicted(&spec, place->tensor_rank)};
}

static const Stream *stream_of(const Place *place) { return &place->model->space.stream; }

/* All rows of a stream that is cut by rows. */
static Traffic gathers(const Place *place, int64_t count) {
    const ModelConfig *config = &place->model->config;
    if (!stream_of(place)->cut) return (Traffic){0, 0};
    GatherSpec spec = stream_gather_spec(stream_of(place), config->reduction, config->transport, 1);
    return (Traffic){count, count * gather_received_predicted(&spec, place->tensor_rank)};
}

static Traffic both(Traffic a, Traffic b) {
    return (Traffic){a.collectives + b.collectives, a.bytes + b.bytes};
}

static int64_t words(size_t bytes) { return ((int64_t)bytes + 7) / 8; }

/* The stream's first rows are assembled from those who own them. Of a cut one each rank gets its
 * own, and all get the gradients. */
static Traffic entry_traffic(const Place *place) {
    const Model *model = place->model;
    size_t bytes = sizeof(real) * (size_t)(model->space.rows * model->config.ffn.d_model);
    if (!stream_of(place)->cut) return (Traffic){1, 8 * words(bytes)};
    GatherSpec spec = stream_gather_spec(stream_of(place), REDUCTION_EXACT, TRANSPORT_AUTO, 1);
    Traffic own = {1, gather_scatter_received_predicted(&spec, place->tensor_rank)};
    return both(own, gathers(place, 1));
}

/* Sums forward and backward, and where the block is done again attention's once more. Of a cut
 * stream rows are gathered before each sum; backward both inputs and gradients. */
static Traffic attention_traffic(const Place *place) {
    int64_t again = place->model->config.recompute == RECOMPUTE_BLOCK;
    int64_t layers = place->model->config.layers;
    return both(sums(place, &place->model->groups, (2 + again) * layers),
                gathers(place, (3 + again) * layers));
}

static Traffic ffn_traffic(const Place *place) {
    int64_t layers = place->model->config.layers;
    return both(sums(place, &place->model->channels, 2 * layers), gathers(place, 3 * layers));
}

/* Gradients of what all ranks hold, of a cut stream: sums over rows. */
static Traffic row_sums_traffic(const Place *place) {
    const ParamSet *set = &place->model->set;
    ExchangeSpec spec = stream_sums_spec(stream_of(place));
    int64_t numbers = 0;
    if (!stream_of(place)->cut) return (Traffic){0, 0};
    for (int i = 0; i < set->count; i++)
        if (set->param[i].split == SPLIT_NONE) numbers += set->param[i].cols;
    return (Traffic){1, exchange_doubles_received_predicted(&spec, place->tensor_rank, numbers)};
}

/* By chunk of rows: a sum over the shards' outputs, and of a cross entropy the largest logit before
 * it and the target's after it. Then the sum of the input's gradient. */
static Traffic head_traffic(const Place *place) {
    const Model *model = place->model;
    const Head *head = &model->head;
    ExchangeSpec spec = model_exchange_spec(model, &head->axis);
    int64_t rows = model->space.rows;
    Traffic sum = both(sums(place, &head->axis, 1), gathers(place, 1));
    sum.collectives += head->chunks;
    sum.bytes += exchange_doubles_received_predicted(&spec, place->tensor_rank, rows);
    if (model->config.loss == LOSS_CROSS_ENTROPY) {
        sum.collectives += 2 * head->chunks;
        sum.bytes += rows * (int64_t)(sizeof(real) + sizeof(double));
    }
    return sum;
}

/* Gradients and the loss. */
static Traffic gradient_traffic(const Place *place) {
    ExchangeSpec spec = {
        .group = GROUP_DATA, .axis = &place->batch, .rows = 1, .cols = place->model->set.elements};
    return (Traffic){2, exchange_received_predicted(&spec, place->data_rank) +
                            exchange_doubles_received_predicted(&spec, place->data_rank, 1)};
}

static Traffic norm_traffic(const Place *place) {
    const ParamSet *set = &place->model->set;
    int64_t shards = 0;
    for (int i = 0; i < set->count; i++) shards += set->param[i].shards;
    return (Traffic){1, shards * (int64_t)sizeof(double)};
}

static void add(Traffic *sum, Traffic one, int64_t times) {
    sum->collectives += times * one.collectives;
    sum->bytes += times * one.bytes;
}

static void count(const Place *place, int tp, int dp, Traffic traffic[TRAFFIC_KINDS]) {
    bool attends = !config_is_mlp(place->config);
    if (tp > 1) {
        add(&traffic[TRAFFIC_ENTRY], entry_traffic(place), place->microbatches);
        if (attends)
            add(&traffic[TRAFFIC_ATTENTION], attention_traffic(place), place->microbatches);
        add(&traffic[TRAFFIC_FFN], ffn_traffic(place), place->microbatches);
        add(&traffic[TRAFFIC_HEAD], head_traffic(place), place->microbatches);
        add(&traffic[TRAFFIC_ROWS], row_sums_traffic(place), place->microbatches);
        add(&traffic[TRAFFIC_STEP], norm_traffic(place), 1);
    }
    if (dp > 1) add(&traffic[TRAFFIC_GRADIENTS], gradient_traffic(place), 1);
    if (tp * dp > 1) add(&traffic[TRAFFIC_STEP], (Traffic){1, sizeof(int64_t)}, 1);
}

int plan_traffic(const Config *config, int tp, int dp, int tensor_rank, int data_rank,
                 Traffic traffic[TRAFFIC_KINDS]) {
    Model model;
    ModelConfig shape = setup_model(config, config->train.micro_batch, 1);
    memset(traffic, 0, TRAFFIC_KINDS * sizeof *traffic);
    int status = model_declare(&model, &shape, tensor_rank, tp);
    if (!status) {
        Place place = {config,
                       &model,
                       tensor_rank,
                       data_rank,
                       axis_layout(config->grid.data, (int)config->grid.data, dp),
                       0};
        place.microbatches =
            range_size(axis_owned(&place.batch, data_rank)) *
            (config->train.global_batch / config->train.micro_batch / config->grid.data);
        count(&place, tp, dp, traffic);
    }
    model_forget(&model);
    return status;
}
