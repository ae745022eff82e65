#include "run/layout.h"

#include "base/error.h"
#include "nn/model.h"
#include "run/setup.h"

#include <stdio.h>
#include <string.h>

/* Round figures of a current server core and its memory. They only rank layouts against each other.
 */
static const double core_rate = 25e9; /* multiply-adds per second and core */
static const double link_bytes = 3e9; /* per second and rank */
static const double link_start = 20e-6;

/* Largest share of an axis on one rank. */
static double share(int64_t units, int shards, int ranks) {
    AxisLayout axis = axis_layout(units, shards, ranks);
    return (double)axis_largest_load(&axis) / (double)units;
}

/* Products of one token's forward through this layout's busiest rank: each region ends in a sum
 * that all wait for, so the busiest rank of every axis counts, whoever it is. */
static double busiest_products(const Config *config, const ModelProducts *products, int tp) {
    bool mlp = config_is_mlp(config);
    int shards = (int)config->grid.tensor;
    double sum =
        products->input * share(config->model.d_model, shards, tp) +
        products->ffn * share(config->ffn.d_ff, shards, tp) +
        products->head * share(mlp ? config->model.outputs : config->model.vocab, shards, tp);
    return mlp ? sum : sum + products->attention * share(config->model.kv_heads, shards, tp);
}

/* Bytes of the busiest rank's gradients: what data-parallel ranks exchange. */
static double gradient_bytes(const Config *config, int tp) {
    ModelConfig m = setup_model(config, 1, 1);
    Model model;
    double bytes = 0;
    if (!model_declare(&model, &m, 0, tp)) bytes = (double)params_bytes(&model.set, 1);
    model_forget(&model);
    return bytes;
}

LayoutChoice layout_predict(const Config *config, int threads, int tp, int dp) {
    ModelConfig m = setup_model(config, 1, 1);
    AxisLayout batch = axis_layout(config->grid.data, (int)config->grid.data, dp);
    double batch_shards = (double)axis_largest_load(&batch);
    double microbatches = batch_shards * (double)(config->train.global_batch / config->grid.data /
                                                  config->train.micro_batch);
    double rows = (double)(config->train.micro_batch * config->model.context);
    ModelProducts parts = model_products(&m);
    double products = 3 * rows * microbatches * busiest_products(config, &parts, tp);
    double whole = 3 * (double)(config->train.global_batch * config->model.context) *
                   model_forward_products(&m);
    int regions = config_is_mlp(config) ? 1 : 2;       /* of a layer */
    double sums = config->parallel.sequence ? 2.5 : 2; /* with what is gathered again in backward */
    double seconds = products / (core_rate * threads);
    if (tp > 1) {
        double bytes = rows * (double)m.attention.d_model * sizeof(real) * 2 * (tp - 1) / tp;
        seconds += microbatches * (sums * regions * (double)m.layers + 2) *
                   (link_start + bytes / link_bytes);
    }
    if (dp > 1) seconds += link_start + gradient_bytes(config, tp) * 2 * (dp - 1) / dp / link_bytes;
    return (LayoutChoice){tp, dp, seconds, products / whole};
}

static int check_fixed(const char *option, int value, const char *key, int64_t most) {
    if (value >= 0 && value <= most) return 0;
    return error_set(WEFT_USAGE, "%s %d: between 1 and %s = %lld is possible", option, value, key,
                     (long long)most);
}

int layout_choose(const Config *config, int ranks, int threads, int tp, int dp,
                  LayoutChoice *choice) {
    int status = check_fixed("--tp", tp, "grid.tensor", config->grid.tensor);
    if (!status) status = check_fixed("--dp", dp, "grid.data", config->grid.data);
    if (status) return status;
    int least_tp = tp ? tp : 1, least_dp = dp ? dp : 1, least = least_tp * least_dp;
    if (least > ranks)
        return error_set(
            WEFT_USAGE,
            "--tp %d --dp %d needs %d ranks, there are %d: start as many (launch/local "
            "-n %d, mpirun -n %d)",
            least_tp, least_dp, least, ranks, least, least);
    *choice = (LayoutChoice){0};
    for (int t = least_tp; t <= (tp ? tp : (int)config->grid.tensor) && t <= ranks; t++) {
        for (int d = least_dp; d <= (dp ? dp : (int)config->grid.data) && t * d <= ranks; d++) {
            LayoutChoice candidate = layout_predict(config, threads, t, d);
            if (choice->tp == 0 || candidate.seconds < choice->seconds) *choice = candidate;
        }
    }
    return 0;
}

void layout_describe(const LayoutChoice *choice, int ranks, char *text, size_t capacity) {
    int used = choice->tp * choice->dp;
    char idle[32] = "";
    if (used < ranks) snprintf(idle, sizeof idle, " (%d idle)", ranks - used);
    int length = snprintf(text, capacity, "layout tp %d x dp %d on %d rank%s%s", choice->tp,
                          choice->dp, ranks, ranks == 1 ? "" : "s", idle);
    if (used > 1 && length >= 0 && (size_t)length < capacity)
        snprintf(text + length, capacity - (size_t)length,
                 ": the busiest does %.1f %% of the products, so at best %.2f times as fast as one",
                 100 * choice->load, 1 / choice->load);
}
