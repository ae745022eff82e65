#include "run/rates.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"
#include "optim/adamw.h"
#include "run/rates_quiet.h"
#include "run/setup.h"
#include "run/team.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PASSES = 40, LEAST_PASSES = 4 };

/* Multiply-adds of a pass and thread, and seconds of all passes, that are enough to go by. */
static const double PASS_PRODUCTS = 3e10, PASSES_SECONDS = 1;

/* One pass: a microbatch, and then what comes once a step. */
typedef struct {
    ShareRates rates;
    double seconds;
} PassTime;

/* One of the ranks at once. */
typedef struct {
    const Config *config;
    Grid grid;
    Model model;
    GradientNorm norm;
    Microbatch micro;
    real *others; /* gradients to add */
    PassTime time[MOST_PASSES];
} Worker;

typedef struct {
    Team team;
    Worker *worker;
    int count, passes; /* the first says how many there are after the warm-up */
} Workers;

/* ---- what a rank needs ---- */

static int take_rows(Tensor *rows, int64_t count, int64_t cols) {
    *rows =
        tensor_view(memory_allocate((size_t)(count * cols) * sizeof(real), "rows"), count, cols);
    for (int64_t i = 0; rows->data && i < count * cols; i++)
        rows->data[i] = (real)(i * 37 % 101) / 50 - 1;
    return rows->data ? 0 : WEFT_RUNTIME;
}

static int take_numbers(int32_t **numbers, int64_t count, int64_t below) {
    *numbers = memory_allocate((size_t)count * sizeof **numbers, "tokens");
    for (int64_t i = 0; *numbers && i < count; i++) (*numbers)[i] = (int32_t)(i * 7919 % below);
    return *numbers ? 0 : WEFT_RUNTIME;
}

static int take_microbatch(Microbatch *micro, const ModelConfig *shape) {
    int64_t rows = shape->sequences * shape->context;
    bool mlp = shape->kind == MODEL_MLP;
    int status = take_numbers(&micro->targets, rows, mlp ? shape->outputs : shape->vocab);
    if (!status && !mlp) status = take_numbers(&micro->tokens, rows, shape->vocab);
    if (!status && mlp) status = take_rows(&micro->inputs, rows, shape->inputs);
    if (!status && shape->loss == LOSS_SQUARED_ERROR)
        status = take_rows(&micro->values, rows, shape->outputs);
    return status;
}

static int open_worker(Worker *worker, const ModelConfig *shape, int tp, int tensor_rank) {
    Model *model = &worker->model;
    grid_alone(&worker->grid, tp, 1, tensor_rank, 0);
    int status = model_declare(model, shape, tensor_rank, tp);
    if (!status) status = model_allocate(model, &worker->grid, true);
    if (!status) status = take_microbatch(&worker->micro, shape);
    if (!status) status = gradient_norm_init(&worker->norm, &model->set);
    if (status) return status;
    params_initialize(&model->set, shape->seed, shape->threads);
    worker->others = memory_allocate(params_bytes(&model->set, 1), "gradients to add");
    return worker->others ? 0 : WEFT_RUNTIME;
}

static void close_worker(Worker *worker) {
    gradient_norm_release(&worker->norm);
    model_release(&worker->model);
    free(worker->micro.tokens);
    free(worker->micro.targets);
    free(worker->micro.inputs.data);
    free(worker->micro.values.data);
    free(worker->others);
}

/* ---- passes ---- */

static double lap(double *since) {
    double now = clock_seconds(), taken = now - *since;
    *since = now;
    return taken;
}

/* The rate of learning is 0: the parameters stay, the work is the same. */
static void once_a_step(Worker *worker, ShareRates *rates) {
    ParamSet *set = &worker->model.set;
    int threads = worker->model.config.threads;
    AdamW adamw = setup_adamw(worker->config);
    double since = clock_seconds();
    tree_add(set->arena[PARAM_GRADIENT], worker->others, set->elements, threads);
    rates->add = lap(&since);
    double norm = gradient_norm(&worker->norm, set, &worker->grid, threads);
    rates->norm = lap(&since);
    adamw_update(&adamw, set, 1, 0, gradient_clip_scale(norm, 1), threads);
    rates->update = lap(&since);
}

static int run_pass(Worker *worker, PassTime *time) {
    Model *model = &worker->model;
    Pass pass = {0, 0, true};
    Stopwatch stopwatch;
    double loss, start = clock_seconds(), since = start;
    params_clear_gradients(&model->set, model->config.threads);
    time->rates.zero = lap(&since);
    worker->grid.stopwatch = model->space.stopwatch = &stopwatch;
    stopwatch_start(&stopwatch);
    int status = model_train(model, &pass, &worker->micro, 1e-6, &loss);
    stopwatch_stop(&stopwatch);
    worker->grid.stopwatch = model->space.stopwatch = NULL;
    memcpy(time->rates.part, stopwatch.seconds, sizeof stopwatch.seconds);
    once_a_step(worker, &time->rates);
    time->seconds = clock_seconds() - start;
    return status;
}

static int passes_after(double warm_up) {
    double passes = PASSES_SECONDS / warm_up;
    if (warm_up > 2 * PASSES_SECONDS) return 1;
    return passes < LEAST_PASSES ? LEAST_PASSES : passes > MOST_PASSES ? MOST_PASSES : (int)passes;
}

/* One that has failed keeps the others company. */
static int run_worker(int member, void *context) {
    Workers *workers = context;
    Worker *worker = &workers->worker[member];
    PassTime warm_up;
    team_meet(&workers->team);
    int status = run_pass(worker, &warm_up);
    if (member == 0) workers->passes = passes_after(warm_up.seconds);
    for (int i = 0; team_meet(&workers->team), i < workers->passes; i++)
        if (!status) status = run_pass(worker, &worker->time[i]);
    return status;
}

static int compare_passes(const void *a, const void *b) {
    double x = ((const PassTime *)a)->seconds, y = ((const PassTime *)b)->seconds;
    return (x > y) - (x < y);
}

/* The slowest of each pass, and of those the one that a quarter is faster than: other programs
 * disturb some. */
static ShareRates quiet_pass(const Workers *workers) {
    PassTime slowest[MOST_PASSES];
    double seconds[MOST_PASSES];
    const Worker *worker = workers->worker;
    for (int i = 0; i < workers->passes; i++) {
        slowest[i] = worker[0].time[i];
        for (int w = 1; w < workers->count; w++)
            if (worker[w].time[i].seconds > slowest[i].seconds) slowest[i] = worker[w].time[i];
    }
    qsort(slowest, (size_t)workers->passes, sizeof *slowest, compare_passes);
    for (int i = 0; i < workers->passes; i++) seconds[i] = slowest[i].seconds;
    ShareRates quiet = slowest[workers->passes / 4].rates;
    quiet.passes = workers->passes;
    quiet.spread = rates_spread(seconds, workers->passes);
    return quiet;
}

/* ---- from so many layers to all ---- */

static int64_t layers_to_measure(const ModelConfig *all, int tp) {
    ModelProducts products = model_products(all);
    double rows = (double)(all->sequences * all->context);
    double layer = 3 * rows * (products.attention + products.ffn) / (double)all->layers / tp;
    double layers = PASS_PRODUCTS * all->threads / layer;
    return layers < 1 ? 1 : layers < (double)all->layers ? (int64_t)layers : all->layers;
}

/* Norms of a model: each sublayer's and the head's. */
static double norms(const ModelConfig *shape, int64_t layers) {
    return (double)((shape->kind == MODEL_MLP ? 1 : 2) * layers + 1);
}

static void scale_layers(ShareRates *rates, const ModelConfig *all, int64_t measured) {
    static const StepPart of_layers[] = {STEP_REST,      STEP_ATTENTION_PRODUCTS,
                                         STEP_ATTENTION, STEP_FFN_PRODUCTS,
                                         STEP_FFN,       STEP_RESIDUAL};
    double times = (double)all->layers / (double)measured;
    for (size_t i = 0; i < sizeof of_layers / sizeof *of_layers; i++)
        rates->part[of_layers[i]] *= times;
    rates->part[STEP_NORM] *= norms(all, all->layers) / norms(all, measured);
}

/* Of the rank that has most parameters. */
static int most_elements(const ModelConfig *shape, int tp, int64_t *elements) {
    int status = 0;
    *elements = 0;
    for (int rank = 0; rank < tp && !status; rank++) {
        Model model;
        status = model_declare(&model, shape, rank, tp);
        if (!status && model.set.elements > *elements) *elements = model.set.elements;
        model_forget(&model);
    }
    return status;
}

static void scale_elements(ShareRates *rates, double times) {
    double *once[] = {&rates->zero, &rates->add, &rates->norm, &rates->update};
    for (int i = 0; i < 4; i++) *once[i] *= times;
}

/* ---- a share ---- */

static int measure_workers(Workers *workers, const ModelConfig *all, int tp, ShareRates *rates) {
    Worker *first = &workers->worker[0];
    int64_t elements;
    int status = team_run(&workers->team, workers->count, run_worker, workers);
    if (!status) status = most_elements(all, tp, &elements);
    if (status) return status;
    *rates = quiet_pass(workers);
    scale_layers(rates, all, first->model.config.layers);
    scale_elements(rates, (double)elements / (double)first->model.set.elements);
    return 0;
}

/* What is measured of one tensor rank. */
static int measure_rank(const Config *config, RatesNode node, int tp, int rank, ShareRates *rates) {
    ModelConfig all = setup_model(config, config->train.micro_batch, node.threads), some = all;
    Workers workers = {.count = node.at_once,
                       .worker = calloc((size_t)node.at_once, sizeof *workers.worker)};
    int status = workers.worker ? 0 : error_set(WEFT_RUNTIME, "out of memory: ranks to measure");
    some.layers = layers_to_measure(&all, tp);
    for (int i = 0; i < node.at_once && !status; i++) {
        workers.worker[i].config = config;
        status = open_worker(&workers.worker[i], &some, tp, rank);
    }
    if (!status) status = measure_workers(&workers, &all, tp, rates);
    for (int i = 0; i < node.at_once && workers.worker; i++) close_worker(&workers.worker[i]);
    free(workers.worker);
    return status;
}

/* ---- the ranks that others wait for ---- */

static bool is_busiest(const AxisLayout *axis, int rank) {
    return range_size(axis_owned_units(axis, rank)) == axis_largest_load(axis);
}

static int axes_led(const AxisLayout *const axis[RATES_AXES], int rank) {
    int count = 0;
    for (int i = 0; i < RATES_AXES; i++) count += is_busiest(axis[i], rank);
    return count;
}

/* Of axis `which`, after those before it. */
static int busiest_rank(const AxisLayout *const axis[RATES_AXES], int which, const int *before) {
    int best = -1;
    for (int i = 0; i < which; i++)
        if (is_busiest(axis[which], before[i])) return before[i];
    for (int r = 0; r < axis[which]->ranks; r++)
        if (is_busiest(axis[which], r) && (best < 0 || axes_led(axis, r) > axes_led(axis, best)))
            best = r;
    return best;
}

int rates_busiest(const Config *config, int tp, int rank[RATES_AXES]) {
    Model model;
    ModelConfig shape = setup_model(config, config->train.micro_batch, 1);
    int status = model_declare(&model, &shape, 0, tp);
    const AxisLayout *const axis[RATES_AXES] = {&model.channels, &model.groups, &model.vocab};
    for (int i = 0; i < RATES_AXES && !status; i++) rank[i] = busiest_rank(axis, i, rank);
    model_forget(&model);
    return status;
}

/* What each axis is behind. Those of the channels' rank that no row names are everybody's alike. */
static void take_parts(ShareRates *rates, const ShareRates of[RATES_AXES]) {
    static const struct {
        int axis;
        StepPart part;
    } behind[] = {{1, STEP_ATTENTION_PRODUCTS},
                  {1, STEP_ATTENTION},
                  {2, STEP_HEAD_PRODUCTS},
                  {2, STEP_HEAD},
                  {2, STEP_EMBEDDING}};
    *rates = of[0];
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
        rates->part[behind[i].part] = of[behind[i].axis].part[behind[i].part];
    for (int i = 1; i < RATES_AXES; i++) {
        if (of[i].spread > rates->spread) rates->spread = of[i].spread;
        if (of[i].passes < rates->passes) rates->passes = of[i].passes;
    }
}

int rates_share(const Config *config, RatesNode node, int tp, ShareRates *rates) {
    int rank[RATES_AXES] = {0};
    ShareRates of[RATES_AXES];
    int status = rates_busiest(config, tp, rank);
    for (int i = 0; i < RATES_AXES && !status; i++) {
        int same = 0;
        while (rank[same] != rank[i]) same++;
        if (same < i)
            of[i] = of[same];
        else
            status = measure_rank(config, node, tp, rank[i], &of[i]);
    }
    if (status) return error_prefix(status, "measuring a rank of %d: ", tp);
    take_parts(rates, of);
    return 0;
}
