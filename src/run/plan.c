#include "run/plan.h"

#include "base/error.h"
#include "base/log.h"
#include "config/width.h"
#include "run/layout.h"
#include "run/plan_print.h"
#include "run/plan_traffic.h"
#include "run/setup.h"
#include "run/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a save takes of the cores, per byte of the state: fingerprint, digests, proof, writing and
 * reading back (tests/bench/saving: a run of a 25 M model takes 1 s longer on two cores). */
static const double save_core_seconds = 7e-9;

enum { LEAST_K = 128 }; /* below this a product loses speed: C is read and written more often */

static const char *const modes[] = {"none", "act", "block"};

/* A config, and the layout that it is planned for. */
typedef struct {
    const Config *config;
    int threads;
    LayoutChoice layout;
} Plan;

/* ---- the model ---- */

static void print_row(const char *name, const LedgerRow *row) {
    log_print("%-10s %15s %12s %12s %12s %12s\n", name,
              show_count((double)(row->weights + row->biases)).text, show_count(row->forward).text,
              show_count(row->input_gradient).text, show_count(row->weight_gradient).text,
              show_count(row->again).text);
}

static void print_ledger(const Plan *plan, const Ledger *ledger) {
    bool mlp = config_is_mlp(plan->config);
    log_print("\n%-10s %15s %51s\n%-10s %15s %12s %12s %12s %12s\n", "", "",
              mlp ? "multiply-adds a row" : "multiply-adds a token", "", "parameters", "forward",
              "d input", "d weight", "block again");
    for (int g = 0; g < LEDGER_GROUPS; g++) {
        const LedgerRow *row = &ledger->row[g];
        if (row->weights || row->forward > 0) print_row(ledger_group_names[g], row);
    }
    print_row("total", &ledger->total);
    if (!mlp && !ledger->row[LEDGER_HEAD].weights)
        log_print("The head is the embedding. \"block again\" is what recompute = block adds.\n");
    else
        log_print("\"block again\" is what train.recompute = block adds.\n");
}

/* What rounding the rule's width to a whole number of channels costs. */
static void print_rounding(const Config *config, const LedgerRow *layer) {
    int64_t d_ff;
    double exact;
    if (width_of(config, &d_ff, &exact) || d_ff != config->ffn.d_ff || exact == (double)d_ff)
        return;
    double weights = (double)layer->weights / (double)d_ff * ((double)d_ff - exact);
    log_print("rounding        %s weights a layer %s than at the width unrounded\n",
              show_count(weights < 0 ? -weights : weights).text, weights < 0 ? "less" : "more");
}

static void print_ffn(const Config *config, const Ledger *ledger) {
    LedgerRow layer = ledger_ffn_layer(config, ledger);
    char width[256];
    width_describe(config, width, sizeof width);
    log_print("\nFFN             %s\n", show_kind(config).text);
    print_wrapped(width);
    log_print("of a layer      %s weights and %s biases\n", show_count((double)layer.weights).text,
              show_count((double)layer.biases).text);
    print_rounding(config, &layer);
}

static void print_small_k(const char *what, const AxisLayout *axis, int64_t unit) {
    if (axis->units == 0) return;
    int64_t smallest = axis->units * unit;
    for (int s = 0; s < axis->shards; s++)
        if (range_size(axis_units(axis, s)) * unit < smallest)
            smallest = range_size(axis_units(axis, s)) * unit;
    if (smallest < LEAST_K)
        log_print("note: a shard of %s has %lld columns; products with fewer\n"
                  "than %d run slower: a smaller grid.tensor helps\n",
                  what, (long long)smallest, LEAST_K);
}

static void print_state(const Config *config, const Model *model) {
    double state = 3 * (double)params_count(&model->set) * sizeof(real);
    log_print("parameters      %s in %d tensors\n",
              show_count((double)params_count(&model->set)).text, model->set.count);
    log_print("logical grid    %lld tensor x %lld data shards; microbatch of %lld rows\n",
              (long long)config->grid.tensor, (long long)config->grid.data,
              (long long)model->space.rows);
    log_print("checkpoint      %.1f MB in %lld files; a save takes about %.1f core-seconds\n",
              state / 1e6, (long long)(config->grid.tensor * config->grid.data + 2),
              state * save_core_seconds);
    print_small_k("d_ff", &model->channels, 1);
    if (model->groups.units > 0)
        print_small_k("the attention output", &model->groups,
                      config->model.d_model / config->model.kv_heads);
}

static int print_model(const Plan *plan) {
    const Config *config = plan->config;
    Model model;
    Ledger ledger;
    ModelConfig shape = setup_model(config, config->train.micro_batch, plan->threads);
    int status = model_declare(&model, &shape, 0, 1);
    if (!status) status = ledger_make(config, &ledger);
    if (!status) {
        print_state(config, &model);
        print_ledger(plan, &ledger);
        double tokens = (double)(config->train.global_batch * config->model.context);
        LedgerRow *sum = &ledger.total;
        bool again = !strcmp(config->train.recompute, "block");
        log_print("a step: %.3g multiply-adds\n",
                  tokens * (sum->forward + sum->input_gradient + sum->weight_gradient +
                            (again ? sum->again : 0)));
        print_ffn(config, &ledger);
    }
    model_forget(&model);
    return status;
}

/* ---- what a rank keeps ---- */

static const char *fate_text(TensorFate fate) {
    static const char *const words[] = {"kept", "again", "never"};
    return words[fate];
}

/* Bytes of all layers on the rank that has most channels. */
static double tensor_bytes(const Plan *plan, const FfnTensor *tensor, int mode) {
    const Config *config = plan->config;
    AxisLayout channels = axis_layout(config->ffn.d_ff, (int)config->grid.tensor, plan->layout.tp);
    int64_t cols = tensor->is_wide ? axis_largest_load(&channels) : config->model.d_model;
    int64_t copies[] = {config->model.layers, 1, 0};
    return (double)copies[tensor->fate[mode]] *
           ledger_tensor_bytes(config->train.micro_batch * config->model.context, cols,
                               sizeof(real));
}

static void print_tensors(const Plan *plan) {
    FfnTensor tensor[FFN_TENSORS];
    int count = ledger_ffn_tensors(plan->config, plan->layout.tp, tensor);
    for (int i = 0; i < count; i++) {
        log_print("  %s  %-12s %s", tensor[i].name, tensor[i].what,
                  tensor[i].is_wide ? "T x d_ff   " : "T x d_model");
        for (int mode = 0; mode < 3; mode++)
            log_print("  %6s %8s", fate_text(tensor[i].fate[mode]),
                      show_megabytes(tensor_bytes(plan, &tensor[i], mode)).text);
        log_print("\n");
    }
}

/* On the rank that has most, with and without sequence-parallel regions. */
static int print_sequence(const Plan *plan) {
    int tp = plan->layout.tp;
    size_t most[2] = {0};
    if (tp == 1) return 0;
    for (int rank = 0; rank < 2 * tp; rank++) {
        size_t bytes;
        int status = plan_sequence(plan->config, plan->threads, tp, rank / 2, rank % 2, &bytes);
        if (status) return status;
        if (bytes > most[rank % 2]) most[rank % 2] = bytes;
    }
    log_print("with exchanges' buffers: %s MB; under parallel.sequence%s %s MB\n",
              show_megabytes((double)most[0]).text, plan->config->parallel.sequence ? " (now)" : "",
              show_megabytes((double)most[1]).text);
    return 0;
}

/* Of the rank that has most of them. */
static int print_activations(const Plan *plan) {
    const Config *config = plan->config;
    size_t most[3] = {0};
    for (int mode = 0; mode < 3; mode++) {
        for (int rank = 0; rank < plan->layout.tp; rank++) {
            size_t bytes;
            int status =
                plan_activations(config, plan->threads, plan->layout.tp, rank, modes[mode], &bytes);
            if (status) return status;
            if (bytes > most[mode]) most[mode] = bytes;
        }
    }
    log_print("\n%-29s", "activations of a rank (MB)");
    for (int mode = 0; mode < 3; mode++) {
        bool now = !strcmp(modes[mode], config->train.recompute);
        log_print("%*s%s", now ? 11 : 17, modes[mode], now ? " (now)" : "");
    }
    log_print("\n");
    print_tensors(plan);
    log_print("%-29s", "  all that is held");
    for (int mode = 0; mode < 3; mode++) log_print("%17s", show_megabytes((double)most[mode]).text);
    log_print("\nkept: by each layer; again: computed again, one serves all; never: not stored\n");
    return print_sequence(plan);
}

/* ---- what ranks tell each other ---- */

static int64_t bytes_of(const Traffic traffic[TRAFFIC_KINDS]) {
    int64_t sum = 0;
    for (int k = 0; k < TRAFFIC_KINDS; k++) sum += traffic[k].bytes;
    return sum;
}

static int busiest(const Plan *plan, Traffic most[TRAFFIC_KINDS]) {
    memset(most, 0, TRAFFIC_KINDS * sizeof *most);
    for (int r = 0; r < plan->layout.tp * plan->layout.dp; r++) {
        Traffic traffic[TRAFFIC_KINDS];
        int status = plan_traffic(plan->config, plan->layout.tp, plan->layout.dp,
                                  r % plan->layout.tp, r / plan->layout.tp, traffic);
        if (status) return status;
        if (r == 0 || bytes_of(traffic) > bytes_of(most)) memcpy(most, traffic, sizeof traffic);
    }
    return 0;
}

static int print_traffic(const Plan *plan) {
    Traffic traffic[TRAFFIC_KINDS], sum = {0};
    if (plan->layout.tp * plan->layout.dp == 1) return 0;
    int status = busiest(plan, traffic);
    if (status) return status;
    log_print("\na step's collectives      number  MB received (by the rank that gets most)\n");
    for (int k = 0; k < TRAFFIC_KINDS; k++) {
        sum.collectives += traffic[k].collectives;
        sum.bytes += traffic[k].bytes;
        if (traffic[k].collectives)
            log_print("  %-20s %9lld  %11.3f\n", traffic_names[k],
                      (long long)traffic[k].collectives, (double)traffic[k].bytes / 1e6);
    }
    log_print("  %-20s %9lld  %11.3f\n", "all", (long long)sum.collectives,
              (double)sum.bytes / 1e6);
    return 0;
}

/* ---- memory ---- */

typedef struct {
    char text[80];
    int first, ranks; /* the first that holds this, and how many do */
} MemoryRow;

static void show_memory(const MemoryPlan *m, MemoryRow *row) {
    const size_t part[] = {m->parameters,          m->gradients, m->moments,
                           m->activations,         m->exchanges, m->copy,
                           m->buffers + m->process};
    int at = 0;
    for (int i = 0; i < 7; i++)
        at += snprintf(row->text + at, sizeof row->text - (size_t)at, " %8s",
                       show_megabytes((double)part[i]).text);
    snprintf(row->text + at, sizeof row->text - (size_t)at, " %7s",
             show_megabytes((double)memory_plan_total(m)).text);
}

/* One row for all ranks of which the same would be shown. */
static void add_row(MemoryRow *rows, int *count, const MemoryRow *row) {
    int i = 0;
    while (i < *count && strcmp(rows[i].text, row->text) != 0) i++;
    if (i == *count) rows[(*count)++] = *row;
    rows[i].ranks++;
}

static void print_rows(const MemoryRow *rows, int count, int ranks, double total) {
    log_print("\nMB of     params    grads  moments   activ.    exch.     copy     rest   total\n");
    for (int i = 0; i < count; i++) {
        char alike[32];
        snprintf(alike, sizeof alike, rows[i].ranks > 1 ? "%d x%d" : "%d", rows[i].first,
                 rows[i].ranks);
        log_print("%-7s%s\n", alike, rows[i].text);
    }
    log_print("all %75.1f\n", total / 1e6);
    log_print("copy: for saving; rest: batch, program%s\n",
              count < ranks ? "; N xK: rank N and others, K alike" : "");
}

static int print_memory(const Plan *plan) {
    int ranks = plan->layout.tp * plan->layout.dp, count = 0, status = 0;
    double total = 0;
    MemoryRow *rows = calloc((size_t)ranks, sizeof *rows);
    if (!rows) return error_set(WEFT_RUNTIME, "out of memory: rows of the plan");
    for (int r = 0; r < ranks && !status; r++) {
        MemoryPlan memory;
        MemoryRow row = {.first = r};
        status = plan_memory(plan->config, plan->threads, plan->layout.tp, plan->layout.dp,
                             r % plan->layout.tp, r / plan->layout.tp, &memory);
        show_memory(&memory, &row);
        add_row(rows, &count, &row);
        total += (double)memory_plan_total(&memory);
    }
    if (!status) print_rows(rows, count, ranks, total);
    free(rows);
    return status;
}

int plan_print(const Config *config, int ranks, int tp, int dp) {
    bool possible = tp <= config->grid.tensor && dp <= config->grid.data;
    int least = possible ? (tp ? tp : 1) * (dp ? dp : 1) : 0;
    if (ranks < least) ranks = least; /* a layout says how many there are */
    Plan plan = {config, setup_threads(config, ranks), {0}};
    int status = layout_choose(config, ranks, plan.threads, tp, dp, &plan.layout);
    if (!status) status = print_model(&plan);
    if (status) return status;
    char text[256];
    layout_describe(&plan.layout, ranks, text, sizeof text);
    log_print("\n");
    print_wrapped(text);
    status = print_activations(&plan);
    if (!status) status = print_traffic(&plan);
    if (!status) status = print_memory(&plan);
    return status;
}
