#include "run/scaling.h"

#include "run/plan_memory.h"
#include "run/trainer.h"

#include <stdio.h>

const char *const scaling_part_names[SCALING_PARTS] = {
    "products",           "attention, activations, loss",
    "norms, residuals",   "tensor axis: latency",
    "tensor axis: bytes", "data axis: latency",
    "data axis: bytes",   "gradients, optimizer",
};

/* ---- what ranks do by themselves ---- */

static const ScalingPart part_of_step[STEP_PARTS] = {
    [STEP_REST] = SCALING_POINTWISE,
    [STEP_DATA] = SCALING_POINTWISE,
    [STEP_EMBEDDING] = SCALING_POINTWISE,
    [STEP_NORM] = SCALING_ROWS,
    [STEP_ATTENTION_PRODUCTS] = SCALING_PRODUCTS,
    [STEP_ATTENTION] = SCALING_POINTWISE,
    [STEP_FFN_PRODUCTS] = SCALING_PRODUCTS,
    [STEP_FFN] = SCALING_POINTWISE,
    [STEP_RESIDUAL] = SCALING_ROWS,
    [STEP_HEAD_PRODUCTS] = SCALING_PRODUCTS,
    [STEP_HEAD] = SCALING_POINTWISE,
    [STEP_EXCHANGE] = SCALING_POINTWISE,
    [STEP_GRADIENT] = SCALING_OPTIMIZER,
    [STEP_GRADIENT_NORM] = SCALING_OPTIMIZER,
    [STEP_OPTIMIZER] = SCALING_OPTIMIZER,
};

static AxisLayout batch_axis(const Config *config, int dp) {
    return axis_layout(config->grid.data, (int)config->grid.data, dp);
}

/* The data rank that has most batch shards. */
static int busiest_data_rank(const AxisLayout *batch) {
    int busiest = 0;
    for (int d = 1; d < batch->ranks; d++)
        if (range_size(axis_owned(batch, d)) > range_size(axis_owned(batch, busiest))) busiest = d;
    return busiest;
}

static void add_share(const Config *config, const ShareRates *share, int dp, double *part) {
    AxisLayout batch = batch_axis(config, dp);
    Range subtree[TREE_MAX_SUBTREES], owned = axis_owned(&batch, busiest_data_rank(&batch));
    double shards = (double)range_size(owned);
    double microbatches = shards * (double)(config->train.global_batch / config->grid.data /
                                            config->train.micro_batch);
    for (int i = 0; i < STEP_PARTS; i++) part[part_of_step[i]] += microbatches * share->part[i];
    int sums = tree_subtrees(batch.shards, owned, subtree);
    part[SCALING_OPTIMIZER] +=
        shards * share->zero + (shards - sums) * share->add + share->norm + share->update;
}

/* ---- what they tell each other ---- */

typedef struct {
    CollectiveCost tensor, data;
} Exchanged;

/* At one place of the layout. */
static int exchanged(const ScalingCase *scaling, const Link link[GROUP_COUNT], int tensor_rank,
                     int data_rank, Exchanged *sum) {
    Collective row[COLLECTIVES_MAX];
    int count, tp = link[GROUP_TENSOR].ranks, dp = link[GROUP_DATA].ranks;
    *sum = (Exchanged){{0, 0}, {0, 0}};
    int status = plan_collectives(scaling->config, tp, dp, tensor_rank, data_rank, row, &count);
    for (int i = 0; i < count; i++) {
        CollectiveCost cost = collective_cost(&row[i], &link[row[i].group]);
        bool tensor = row[i].group == GROUP_TENSOR || (row[i].group == GROUP_GRID && dp == 1);
        CollectiveCost *to = tensor ? &sum->tensor : &sum->data;
        to->latency += cost.latency;
        to->bytes += cost.bytes;
    }
    return status;
}

static void keep_larger(CollectiveCost *most, CollectiveCost cost) {
    if (cost.latency + cost.bytes > most->latency + most->bytes) *most = cost;
}

/* All wait for the last: along the tensor ranks of the busiest data rank, and along data ranks. */
static int most_exchanged(const ScalingCase *scaling, const Link link[GROUP_COUNT],
                          Exchanged *most) {
    int tp = link[GROUP_TENSOR].ranks, dp = link[GROUP_DATA].ranks;
    AxisLayout batch = batch_axis(scaling->config, dp);
    int busiest = busiest_data_rank(&batch), status = 0;
    *most = (Exchanged){{0, 0}, {0, 0}};
    for (int i = 0; i < tp + dp && !status; i++) {
        Exchanged here;
        bool along_tensor = i < tp;
        status =
            exchanged(scaling, link, along_tensor ? i : 0, along_tensor ? busiest : i - tp, &here);
        keep_larger(&most->tensor, here.tensor);
        keep_larger(&most->data, here.data);
    }
    return status;
}

/* ---- the whole ---- */

int scaling_predict(const ScalingCase *scaling, int tp, int dp, const ShareRates *share,
                    const MemoryRates *memory, Prediction *prediction) {
    int total = tp * dp, node = scaling->node_ranks;
    const Network *network = &scaling->network;
    const Link link[GROUP_COUNT] = {
        [GROUP_GRID] = link_of(total, 1, total, node, network, memory),
        [GROUP_TENSOR] = link_of(tp, 1, total, node, network, memory),
        [GROUP_DATA] = link_of(dp, tp, total, node, network, memory),
    };
    Exchanged most;
    *prediction = (Prediction){.tp = tp, .dp = dp};
    double *part = prediction->part;
    int status = most_exchanged(scaling, link, &most);
    if (status) return status;
    add_share(scaling->config, share, dp, part);
    part[SCALING_TENSOR_LATENCY] = most.tensor.latency;
    part[SCALING_TENSOR_BYTES] = most.tensor.bytes;
    part[SCALING_DATA_LATENCY] = most.data.latency;
    part[SCALING_DATA_BYTES] = most.data.bytes;
    for (int i = 0; i < SCALING_PARTS; i++) prediction->seconds += part[i];
    return 0;
}

/* *most becomes that of one place, where it is more. */
static int keep_most(const Config *config, int threads, int tp, int dp, int tensor_rank,
                     int data_rank, size_t *most) {
    MemoryPlan memory;
    int status = plan_memory(config, threads, tp, dp, tensor_rank, data_rank, &memory);
    if (!status && memory_plan_total(&memory) > *most) *most = memory_plan_total(&memory);
    return status;
}

/* The busiest, and the first, which makes the views of what is saved. */
int scaling_memory(const ScalingCase *scaling, int tp, int dp, size_t *bytes) {
    Config config = *scaling->config;
    int threads = scaling->threads;
    AxisLayout batch = batch_axis(&config, dp);
    *bytes = 0;
    if (tp * dp > scaling->node_ranks) /* the data axis reaches across nodes */
        snprintf(config.grid.transport, sizeof config.grid.transport, "messages");
    int status = keep_most(&config, threads, tp, dp, 0, 0, bytes);
    for (int r = 0; r < tp && !status; r++)
        status = keep_most(&config, threads, tp, dp, r, busiest_data_rank(&batch), bytes);
    return status;
}

double prediction_exposed(const Prediction *prediction) {
    double sum = 0;
    for (int i = SCALING_TENSOR_LATENCY; i <= SCALING_DATA_BYTES; i++) sum += prediction->part[i];
    return sum;
}

double scaling_excess(const Prediction *layout, const Prediction *more, ScalingPart part) {
    double ideal = layout->part[part] * (layout->tp * layout->dp) / (more->tp * more->dp);
    return more->part[part] - ideal;
}
