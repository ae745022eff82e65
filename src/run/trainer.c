#include "run/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "run/guard.h"
#include "run/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int trainer_spares(const AxisLayout *batch, int data_rank) {
    Range subtree[TREE_MAX_SUBTREES];
    int count = tree_subtrees(batch->shards, axis_owned(batch, data_rank), subtree), deepest = 0;
    for (int i = 0; i < count; i++) {
        int depth = 0;
        while ((1 << depth) < range_size(subtree[i])) depth++;
        if (depth > deepest) deepest = depth;
    }
    return deepest;
}

/* [rows, cols]; false when memory is short. */
static bool take_tensor(Tensor *tensor, int64_t rows, int64_t cols, const char *what) {
    *tensor = tensor_view(memory_allocate((size_t)(rows * cols) * sizeof(real), what), rows, cols);
    return tensor->data != NULL;
}

/* What the model reads, of Microbatch's members. */
static int allocate_microbatch(Microbatch *micro, const ModelConfig *model) {
    int64_t rows = model->sequences * model->context;
    size_t bytes = (size_t)rows * sizeof(int32_t);
    *micro = (Microbatch){.targets = memory_allocate(bytes, "targets of a microbatch")};
    bool good = micro->targets != NULL;
    if (model->kind == MODEL_DECODER)
        good = good && (micro->tokens = memory_allocate(bytes, "tokens of a microbatch"));
    if (model->kind == MODEL_MLP)
        good = good && take_tensor(&micro->inputs, rows, model->inputs, "inputs of a microbatch");
    if (model->loss == LOSS_SQUARED_ERROR)
        good = good && take_tensor(&micro->values, rows, model->outputs, "targets of a microbatch");
    return good ? 0 : WEFT_RUNTIME;
}

static int allocate(Trainer *trainer, bool training) {
    int status = allocate_microbatch(&trainer->micro, &trainer->model.config);
    if (status) return status;
    trainer->samples = memory_allocate((size_t)trainer->config.train.global_batch * sizeof(int64_t),
                                       "sample ids of a step");
    if (!trainer->samples) return WEFT_RUNTIME;
    if (!training) return 0;
    trainer->spares = trainer_spares(&trainer->batch, trainer->grid->data_rank);
    for (int i = 0; i < trainer->spares; i++) {
        trainer->spare[i] =
            memory_allocate(params_bytes(&trainer->model.set, 1), "spare gradients");
        if (!trainer->spare[i]) return WEFT_RUNTIME;
    }
    return gradient_norm_init(&trainer->norm, &trainer->model.set);
}

static int open_exchange(Trainer *trainer) {
    ExchangeSpec spec = {.group = GROUP_DATA,
                         .axis = &trainer->batch,
                         .rows = 1,
                         .cols = trainer->model.set.elements,
                         .reduction = trainer->model.config.reduction,
                         .transport = trainer->model.config.transport,
                         .threads = trainer->threads};
    return exchange_open(&trainer->exchange, trainer->grid, &spec);
}

/* Each rank opens the files itself: on one node another file may have the name. */
static int same_data(const Trainer *trainer) {
    char text[2 * HASH_TEXT + 128], train[HASH_TEXT], held[HASH_TEXT];
    hash_format(trainer->data_digest, train);
    hash_format(trainer->held_digest, held);
    snprintf(text, sizeof text, "training: %lld %s, digest %s; held out: %lld, digest %s",
             (long long)trainer->data.train_items, dataset_items(&trainer->data), train,
             (long long)trainer->data.held_items, held);
    return comm_same_text(trainer->grid, GROUP_GRID, "the data", text);
}

/* To evaluate takes no training data where what is held out has a file of its own. */
static int open_data(Trainer *trainer, bool training) {
    DatasetSpec spec = setup_dataset(&trainer->config);
    if (!training) spec.global_batch = 0;
    bool held_alone = !training && spec.held[0];
    if (held_alone) spec.train = spec.held;
    watch_phase(trainer->grid->watch, PHASE_DATA);
    int status = fault_point(PHASE_DATA);
    if (!status) status = dataset_open(&trainer->data, &spec);
    if (status == WEFT_INPUT && !files_exists(spec.train) && spec.train[0] != '/')
        error_set(status, "%s (%s; a relative path starts at the current directory)",
                  error_message(), held_alone ? "data.held" : "data.train");
    if (!status)
        status = dataset_digests(&trainer->data, &trainer->data_digest, &trainer->held_digest);
    return status;
}

/* One rank reads all rows: the others would read the same. */
int trainer_survey(Trainer *trainer) {
    Grid *grid = trainer->grid;
    Normalisation *normalisation = &trainer->data.normalisation;
    bool wanted = normalisation->number && !normalisation->known;
    int status = 0;
    watch_phase(grid->watch, PHASE_DATA);
    if (group_rank(grid, GROUP_GRID) == 0) {
        status = dataset_check(&trainer->data);
        if (!status) status = dataset_normalise(&trainer->data);
    }
    status = comm_agree(grid, GROUP_GRID, status);
    if (status || !wanted) return status;
    comm_broadcast(grid, GROUP_GRID, normalisation->number,
                   (size_t)normalisation->numbers * sizeof *normalisation->number, 0);
    normalisation->known = true;
    return 0;
}

int trainer_open(Trainer *trainer, const Config *config, Grid *grid, int threads, bool training) {
    *trainer = (Trainer){.config = *config,
                         .grid = grid,
                         .threads = threads,
                         .adamw = setup_adamw(config),
                         .schedule = setup_schedule(config)};
    ModelConfig model = setup_model(config, config->train.micro_batch, threads);
    trainer->batch = axis_layout(config->grid.data, (int)config->grid.data, grid->dp);
    int status = open_data(trainer, training);
    if (!status) status = model_declare(&trainer->model, &model, grid->tensor_rank, grid->tp);
    if (!status) status = allocate(trainer, training);
    status = comm_agree(grid, GROUP_GRID, status);
    if (!status) status = same_data(trainer);
    if (!status) status = model_allocate(&trainer->model, grid, training);
    if (!status && training) status = open_exchange(trainer);
    if (!status) params_initialize(&trainer->model.set, model.seed, threads);
    trainer->gradient = trainer->model.set.arena[PARAM_GRADIENT];
    return status;
}

void trainer_close(Trainer *trainer) {
    exchange_close(trainer->exchange);
    trainer->model.set.arena[PARAM_GRADIENT] = trainer->gradient;
    model_release(&trainer->model);
    dataset_close(&trainer->data);
    gradient_norm_release(&trainer->norm);
    for (int i = 0; i < trainer->spares; i++) free(trainer->spare[i]);
    free(trainer->micro.tokens);
    free(trainer->micro.targets);
    free(trainer->micro.inputs.data);
    free(trainer->micro.values.data);
    free(trainer->samples);
    *trainer = (Trainer){0};
}

/* One batch shard: its microbatches one after another, into the gradient `into` (overwritten). */
static int accumulate_leaf(Trainer *trainer, int shard, real *into, double *loss) {
    const Config *config = &trainer->config;
    int64_t microbatches =
        config->train.global_batch / config->train.micro_batch / config->grid.data;
    double targets = (double)(config->train.global_batch * config->model.context);
    Stopwatch *stopwatch = trainer->grid->stopwatch;
    stopwatch_begin(stopwatch, STEP_GRADIENT);
    trainer->model.set.arena[PARAM_GRADIENT] = into;
    params_clear_gradients(&trainer->model.set, trainer->threads);
    stopwatch_end(stopwatch);
    *loss = 0;
    for (int64_t m = shard * microbatches; m < (shard + 1) * microbatches; m++) {
        watch_phase(trainer->grid->watch, PHASE_DATA);
        stopwatch_begin(stopwatch, STEP_DATA);
        int status = dataset_train_batch(&trainer->data, trainer->step, config->train.global_batch,
                                         m, &trainer->micro, NULL);
        stopwatch_end(stopwatch);
        Pass pass = {trainer->step, m, true};
        double part = 0;
        if (!status)
            status = model_train(&trainer->model, &pass, &trainer->micro, 1 / targets, &part);
        if (status) return status;
        *loss += part;
    }
    return 0;
}

/* Node [begin, end) of the tree over batch shards, into `into`; right children go to the spares
 * from `level` on. */
static int accumulate(Trainer *trainer, int begin, int end, real *into, int level, double *loss) {
    if (end - begin == 1) return accumulate_leaf(trainer, begin, into, loss);
    int middle = tree_split(begin, end);
    double right = 0;
    int status = accumulate(trainer, begin, middle, into, level + 1, loss);
    if (!status)
        status = accumulate(trainer, middle, end, trainer->spare[level], level + 1, &right);
    if (status) return status;
    stopwatch_begin(trainer->grid->stopwatch, STEP_GRADIENT);
    tree_add(into, trainer->spare[level], trainer->model.set.elements, trainer->threads);
    stopwatch_end(trainer->grid->stopwatch);
    *loss += right;
    return 0;
}

int trainer_gradient(Trainer *trainer, double *loss, double *norm) {
    ParamSet *set = &trainer->model.set;
    double partial[TREE_MAX_SUBTREES];
    watch_phase(trainer->grid->watch, PHASE_FORWARD);
    Partials part =
        exchange_begin(trainer->exchange, tensor_view(trainer->gradient, 1, set->elements));
    int status = 0;
    trainer->own_loss = 0;
    for (int i = 0; i < part.count && !status; i++) {
        status = accumulate(trainer, (int)part.subtree[i].begin, (int)part.subtree[i].end,
                            part.sum[i].data, 0, &partial[i]);
        if (!status) trainer->own_loss += partial[i];
    }
    if (!status) status = exchange_sum(trainer->exchange);
    if (!status) status = exchange_sum_doubles(trainer->exchange, partial, 1, loss);
    set->arena[PARAM_GRADIENT] = trainer->gradient;
    if (status) return status;
    *loss /= (double)(trainer->config.train.global_batch * trainer->config.model.context);
    watch_phase(trainer->grid->watch, PHASE_OPTIMIZER);
    stopwatch_begin(trainer->grid->stopwatch, STEP_GRADIENT_NORM);
    *norm = gradient_norm(&trainer->norm, set, trainer->grid, trainer->threads);
    stopwatch_end(trainer->grid->stopwatch);
    if (isnan(*loss)) *loss = NAN; /* whichever it was: the sign may depend on the layout */
    if (isnan(*norm)) *norm = NAN;
    return 0;
}

void trainer_watch(Trainer *trainer, Stopwatch *stopwatch) {
    trainer->grid->stopwatch = trainer->model.space.stopwatch = stopwatch;
}

MetricWords trainer_words(const Trainer *trainer) {
    const ModelConfig *model = &trainer->model.config;
    return (MetricWords){.rows = model->kind == MODEL_MLP,
                         .classes = model->loss == LOSS_CROSS_ENTROPY};
}

static void report_samples(Trainer *trainer, StepReport *report) {
    int64_t count = trainer->config.train.global_batch;
    for (int64_t i = 0; i < count; i++)
        trainer->samples[i] = order_sample(&trainer->data.order, trainer->step, count, i);
    report->samples = hash_bytes(trainer->samples, (size_t)count * sizeof *trainer->samples);
}

/* For tests: the highest bit of an exponent, of a parameter that all ranks hold. */
static void flip_bit(const ParamSet *set) {
    if (!fault_take("bitflip", PHASE_OPTIMIZER)) return;
    const Param *gain = &set->param[params_find(set, "model.norm.weight")];
    unsigned char *bytes = (unsigned char *)param_shard(set, gain, PARAM_VALUE, 0).data;
    bytes[sizeof(real) - 1] ^= 0x40;
}

static int update(Trainer *trainer, const StepReport *report) {
    watch_phase(trainer->grid->watch, PHASE_OPTIMIZER);
    int status = fault_point(PHASE_OPTIMIZER);
    if (status) return status;
    stopwatch_begin(trainer->grid->stopwatch, STEP_OPTIMIZER);
    if (!report->skipped)
        adamw_update(&trainer->adamw, &trainer->model.set,
                     trainer->step + 1 - trainer->forgotten.by_optimizer, report->rate,
                     gradient_clip_scale(report->norm, trainer->config.optim.clip),
                     trainer->threads);
    stopwatch_end(trainer->grid->stopwatch);
    flip_bit(&trainer->model.set);
    return 0;
}

int trainer_step(Trainer *trainer, StepReport *report) {
    double start = clock_seconds(), communication = trainer->grid->counters.seconds;
    report_samples(trainer, report);
    int status = trainer_gradient(trainer, &report->loss, &report->norm);
    if (!status) status = guard_step(trainer, report);
    if (status) return status;
    double before = clock_seconds();
    report->rate =
        schedule_rate(&trainer->schedule, trainer->step - trainer->forgotten.by_schedule);
    status = update(trainer, report);
    if (status) return status;
    trainer->step++;
    report->words = trainer_words(trainer);
    report->step_tokens = trainer->config.train.global_batch * trainer->config.model.context;
    trainer->tokens_seen += report->step_tokens;
    report->step = trainer->step;
    report->steps = trainer->config.train.steps;
    report->tokens = trainer->tokens_seen;
    report->optimizer = clock_seconds() - before;
    report->seconds = clock_seconds() - start;
    report->communication = trainer->grid->counters.seconds - communication;
    return 0;
}

/* Evaluation microbatches are dealt out to data-parallel ranks; each one's loss and count stand in
 * a table of their own, so that the sum's order is the microbatches'. */
typedef struct {
    double loss;
    int64_t targets, hits;
} EvalBatch;

static int evaluate_all(Trainer *trainer, int64_t batches, EvalBatch *batch) {
    const Grid *grid = trainer->grid;
    int64_t rows = trainer->model.space.rows, sequences = trainer->config.eval.sequences;
    for (int64_t m = grid->data_rank; m < batches; m += grid->dp) {
        int status = dataset_eval_batch(&trainer->data, sequences, m, &trainer->micro);
        if (!status)
            status =
                model_evaluate(&trainer->model, &trainer->micro, &batch[m].loss, &batch[m].hits);
        if (status) return status;
        for (int64_t t = 0; t < rows; t++) batch[m].targets += trainer->micro.targets[t] >= 0;
    }
    return 0;
}

int trainer_evaluate(Trainer *trainer, HeldOut *held) {
    int64_t batches = dataset_eval_batches(&trainer->data, trainer->config.eval.sequences);
    watch_phase(trainer->grid->watch, PHASE_EVALUATE);
    EvalBatch *batch = memory_allocate((size_t)batches * sizeof *batch, "held-out losses");
    int status = comm_agree(trainer->grid, GROUP_GRID, batch ? 0 : WEFT_RUNTIME);
    if (!status) status = evaluate_all(trainer, batches, batch);
    if (!status) {
        double total = 0;
        comm_assemble(trainer->grid, GROUP_DATA, batch, 3 * batches);
        *held = (HeldOut){0};
        for (int64_t m = 0; m < batches; m++) {
            total += batch[m].loss;
            held->targets += batch[m].targets;
            held->hits += batch[m].hits;
        }
        held->loss = total / (double)held->targets;
    }
    free(batch);
    return status;
}
