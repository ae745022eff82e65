/* One sublayer alone, as training runs it but for norm, sum over ranks and residual: forward,
 * backward, weight gradients. */
#include "base/error.h"
#include "base/log.h"
#include "bench/figure.h"
#include "bench/one_layer.h"

#include <stdio.h>

typedef struct {
    const char *name, *inner; /* inner: what it does beside products */
    StepPart part, products;
    int (*train)(void *layer);
    /* Floating-point operations of a run: in products, and in what is beside them. */
    double (*operations)(const Model *model), (*inner_operations)(const Model *model);
} Sublayer;

typedef struct {
    const Sublayer *sublayer;
    OneLayer layer;
    Yardstick yardstick;
    int times;
    Series gemm, seconds, fraction, share, of_products, of_inner;
} SublayerBench;

static double rows_of(const Model *model) { return (double)model->space.rows; }

/* ---- ffn ---- */

static int train_ffn(void *context) {
    OneLayer *layer = context;
    Model *model = &layer->model;
    const Ffn *ffn = &model->layer[0].ffn;
    const FfnSaved *saved = &model->layer[0].saved.ffn;
    const Pass pass = {.training = true};
    Partials partials = one_layer_partials(layer, &model->channels, model->space.rows);
    int status = ffn_hidden(ffn, &pass, model->stream[0], saved);
    if (status) return status;
    ffn_down(ffn, saved, &partials);
    return ffn_backward(ffn, &pass, model->stream[0], model->gradient, saved, &partials);
}

static double ffn_operations(const Model *model) {
    const FfnConfig *config = &model->config.ffn;
    return 6.0 * ffn_find(config->kind)->projections * rows_of(model) * (double)config->d_model *
           (double)config->d_ff;
}

static double none(const Model *model) {
    (void)model;
    return 0;
}

/* ---- attention ---- */

static int train_attention(void *context) {
    OneLayer *layer = context;
    Model *model = &layer->model;
    const SelfAttention *attention = &model->layer[0].attention;
    const AttentionSaved *saved = &model->layer[0].saved.attention;
    Partials partials = one_layer_partials(layer, &model->groups, model->space.rows);
    int status = attention_heads(attention, model->stream[0], saved);
    if (status) return status;
    attention_output(attention, saved, &partials);
    return attention_backward_heads(attention, model->stream[0], model->gradient, saved,
                                    &model->attention_gradient, &partials);
}

static double attention_operations(const Model *model) {
    const AttentionConfig *config = &model->config.attention;
    double d = (double)config->d_model;
    double kv = d * (double)config->kv_heads / (double)config->heads;
    return 6.0 * rows_of(model) * (2 * d * d + 2 * d * kv);
}

/* Of the lower half of an L x L matrix: forward two products, backward five. */
static double heads_operations(const Model *model) {
    const AttentionConfig *config = &model->config.attention;
    return 7.0 * rows_of(model) * (double)config->d_model * (double)config->context;
}

/* ---- both ---- */

static const Sublayer ffn = {.name = "FFN",
                             .part = STEP_FFN,
                             .products = STEP_FFN_PRODUCTS,
                             .train = train_ffn,
                             .operations = ffn_operations,
                             .inner_operations = none};

static const Sublayer attention = {.name = "attention",
                                   .inner = "heads",
                                   .part = STEP_ATTENTION,
                                   .products = STEP_ATTENTION_PRODUCTS,
                                   .train = train_attention,
                                   .operations = attention_operations,
                                   .inner_operations = heads_operations};

/* One run after another between two looks at the yardstick, of which `before` is the first. */
static int take_pair(SublayerBench *bench, double *before) {
    const Sublayer *sublayer = bench->sublayer;
    Model *model = &bench->layer.model;
    Stopwatch watch;
    int status = 0;
    stopwatch_start(&watch);
    stopwatch_begin(&watch, sublayer->part);
    model->space.stopwatch = &watch;
    double seconds =
        bench_seconds(bench->yardstick.grid, sublayer->train, &bench->layer, bench->times, &status);
    model->space.stopwatch = NULL;
    if (status) return status;
    stopwatch_end(&watch);
    double products = watch.seconds[sublayer->products] / bench->times;
    double after = yardstick_square_rates(&bench->yardstick).best, best = (*before + after) / 2;
    double work = sublayer->operations(model), inner = sublayer->inner_operations(model);
    *before = after;
    series_add(&bench->gemm, best / bench->yardstick.cores);
    series_add(&bench->seconds, seconds);
    series_add(&bench->fraction, (work + inner) / seconds / best);
    series_add(&bench->share, products / seconds);
    series_add(&bench->of_products, work / products / best);
    series_add(&bench->of_inner, inner / (seconds - products) / best);
    return 0;
}

static void print(const SublayerBench *bench) {
    const char *name = bench->sublayer->name;
    char what[64];
    series_print(&bench->gemm, "gemm 2048 on all cores", 1e9, "GF/s per core");
    snprintf(what, sizeof what, "%s step", name);
    series_print(&bench->seconds, what, 1e-3, "ms");
    snprintf(what, sizeof what, "%s step / gemm on all cores", name);
    series_print(&bench->fraction, what, 1, "of the rate");
    series_print(&bench->of_products, "its products / gemm on all cores", 1, "of the rate");
    series_print(&bench->share, "share of products", 1, "of its time");
    if (!bench->sublayer->inner) return;
    snprintf(what, sizeof what, "its %s / gemm on all cores", bench->sublayer->inner);
    series_print(&bench->of_inner, what, 1, "of the rate");
}

static int measure(SublayerBench *bench, int pairs) {
    const Model *model = &bench->layer.model;
    double work = bench->sublayer->operations(model);
    bench->times = work < 1e9 ? 10 : 1; /* a short one is done several times */
    log_print("T %lld, D %lld, F %lld\n", (long long)model->space.rows,
              (long long)model->config.ffn.d_model, (long long)model->config.ffn.d_ff);
    int status = bench->sublayer->train(&bench->layer); /* warms up */
    double before = yardstick_square_rates(&bench->yardstick).best;
    for (int i = 0; i < pairs && !status; i++) status = take_pair(bench, &before);
    if (!status) print(bench);
    return status;
}

static int run(const Bench *given, const Sublayer *sublayer) {
    SublayerBench bench = {.sublayer = sublayer};
    int status = one_layer_open(&bench.layer, given);
    if (!status) status = yardstick_open(&bench.yardstick, given->grid, given->threads, NULL, 0);
    if (!status) status = measure(&bench, given->pairs);
    yardstick_close(&bench.yardstick);
    if (!status || error_is_agreed()) one_layer_close(&bench.layer);
    return status;
}

int bench_ffn(const Bench *bench) { return run(bench, &ffn); }

int bench_attention(const Bench *bench) {
    if (!config_is_mlp(bench->config)) return run(bench, &attention);
    error_set(WEFT_USAGE, "--part attention: model.kind = mlp has none");
    error_set_agreed(true);
    return WEFT_USAGE;
}
