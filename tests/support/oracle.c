#include "support/oracle.h"

#include "base/error.h"
#include "support/support.h"
#include "support/whole.h"

#include <Random123/philox.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double oracle_mask(PhiloxPurpose purpose, int layer, int64_t microbatch, int64_t row,
                   int64_t channel, double probability) {
    philox4x32_key_t key = {{(uint32_t)(ORACLE_SEED & 0xffffffff), (uint32_t)(ORACLE_SEED >> 32)}};
    philox4x32_ctr_t counter = {
        {(uint32_t)(channel / 4), (uint32_t)row, ORACLE_STEP,
         (uint32_t)purpose * (1u << 26) + (uint32_t)layer * (1u << 16) + (uint32_t)microbatch}};
    double uniform = philox4x32_R(10, counter, key).v[channel % 4] * 0x1p-32;
    return uniform < floor(probability * 0x1p32) * 0x1p-32 ? 0 : 1 / (1 - probability);
}

static double naive_mask(void *context, int site, int layer, int64_t row, int64_t channel) {
    const Oracle *oracle = context;
    bool hidden = site == NAIVE_HIDDEN;
    double probability = hidden ? oracle->plan.hidden_dropout : oracle->plan.output_dropout;
    return oracle_mask(hidden ? PHILOX_HIDDEN_DROPOUT : PHILOX_OUTPUT_DROPOUT, layer,
                       oracle->microbatch, row, channel, probability);
}

/* Uniform in (-1, 1), exact in float (Knuth's MMIX). */
static double next_value(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 41) * 0x1p-22 - 1;
}

double *oracle_weight(const Oracle *oracle, const char *name) {
    const NaiveTensor *tensor = naive_tensors_find(oracle->tensors, name);
    return tensor ? tensor->weight : NULL;
}

/* Weights are spread wide enough for the activations to bend; gains lie around 1. */
static void fill_weights(const NaiveTensors *tensors) {
    uint64_t state = 20240607;
    for (int i = 0; i < tensors->count; i++) {
        const NaiveTensor *tensor = &tensors->tensor[i];
        bool gain = strstr(tensor->name, "norm") != NULL;
        double spread = strstr(tensor->name, "embed")  ? 1
                        : strstr(tensor->name, "bias") ? 0.5
                                                       : 0.25;
        for (int64_t j = 0; j < tensor->rows * tensor->columns; j++)
            tensor->weight[j] = (double)(float)(gain + spread * next_value(&state));
    }
}

static int64_t row_count(const OraclePlan *plan) { return plan->sequences * plan->context; }

static int32_t next_class(uint64_t *state, int64_t classes) {
    return (int32_t)((next_value(state) + 1) / 2 * (double)classes);
}

static void fill_tokens(Oracle *oracle) {
    const OraclePlan *plan = &oracle->plan;
    bool decoder = plan->model == MODEL_DECODER;
    int64_t count = plan->microbatches * row_count(plan);
    uint64_t state = 4711;
    oracle->tokens = calloc((size_t)count, sizeof *oracle->tokens);
    oracle->targets = calloc((size_t)count, sizeof *oracle->targets);
    ck_assert(oracle->tokens && oracle->targets);
    for (int64_t t = 0; t < count; t++) {
        if (decoder) oracle->tokens[t] = next_class(&state, plan->vocab);
        oracle->targets[t] = next_class(&state, decoder ? plan->vocab : plan->outputs);
        if (plan->masked && t % 5 == 3) oracle->targets[t] = t % 2 ? -1 : -100;
        oracle->divisor += oracle->targets[t] >= 0;
    }
}

static void fill_rows(int64_t count, uint64_t key, double **values, real **reals) {
    *values = naive_array(count);
    *reals = calloc((size_t)count, sizeof **reals);
    ck_assert_ptr_nonnull(*reals);
    for (int64_t i = 0; i < count; i++) {
        (*values)[i] = 2 * next_value(&key);
        (*reals)[i] = (real)(*values)[i];
    }
}

static double forward(Oracle *oracle, int m) {
    const OraclePlan *plan = &oracle->plan;
    int64_t first = m * row_count(plan);
    if (oracle->mlp)
        return naive_mlp_forward(oracle->mlp, oracle->inputs + first * plan->inputs,
                                 oracle->targets + first, oracle->values + first * plan->outputs,
                                 oracle->divisor);
    return naive_forward(oracle->naive, oracle->tokens + first, oracle->targets + first,
                         oracle->divisor);
}

void oracle_run(Oracle *oracle) {
    oracle->loss = 0;
    naive_tensors_zero_gradients(oracle->tensors);
    for (int m = 0; m < oracle->plan.microbatches; m++) {
        oracle->microbatch = ORACLE_FIRST_MICROBATCH + m;
        oracle->loss += forward(oracle, m);
        if (oracle->mlp)
            naive_mlp_backward(oracle->mlp);
        else
            naive_backward(oracle->naive);
    }
}

static NaiveModel *open_decoder(Oracle *oracle, NaiveMask mask) {
    const OraclePlan *plan = &oracle->plan;
    NaiveConfig config = {.vocab = plan->vocab,
                          .d_model = plan->d_model,
                          .layers = plan->layers,
                          .heads = plan->heads,
                          .kv_heads = plan->kv_heads,
                          .d_ff = plan->d_ff,
                          .sequences = plan->sequences,
                          .context = plan->context,
                          .gated = strcmp(plan->kind, "dense") != 0,
                          .tied = plan->tied,
                          .bias = plan->bias,
                          .activation = plan->activation,
                          .branches = {.dual = !strcmp(plan->kind, "dual")},
                          .rms_eps = 1e-5,
                          .rope_theta = 10000,
                          .mask = mask,
                          .mask_context = oracle};
    return naive_open(&config);
}

static NaiveMlp *open_mlp(Oracle *oracle, NaiveMask mask) {
    const OraclePlan *plan = &oracle->plan;
    bool gated = strcmp(plan->kind, "dense") != 0;
    NaiveMlpConfig config = {.inputs = plan->inputs,
                             .outputs = plan->outputs,
                             .layers = plan->layers,
                             .squared = plan->loss == LOSS_SQUARED_ERROR,
                             .gate_bias = gated && plan->bias,
                             .up_bias = plan->bias,
                             .down_bias = plan->bias,
                             .ffn = {.rows = row_count(plan),
                                     .d_model = plan->d_model,
                                     .d_ff = plan->d_ff,
                                     .gated = gated,
                                     .activation = plan->activation,
                                     .branches = {.dual = !strcmp(plan->kind, "dual")},
                                     .mask = mask,
                                     .mask_context = oracle},
                             .rms_eps = 1e-5};
    return naive_mlp_open(&config);
}

void oracle_open(Oracle *oracle, const OraclePlan *plan) {
    *oracle = (Oracle){.plan = *plan};
    int64_t rows = plan->microbatches * row_count(plan);
    NaiveMask mask = plan->hidden_dropout > 0 || plan->output_dropout > 0 ? naive_mask : NULL;
    if (plan->model == MODEL_MLP) {
        oracle->mlp = open_mlp(oracle, mask);
        oracle->tensors = naive_mlp_tensors(oracle->mlp);
        fill_rows(rows * plan->inputs, 12, &oracle->inputs, &oracle->real_inputs);
        fill_rows(rows * plan->outputs, 34, &oracle->values, &oracle->real_values);
    } else {
        oracle->naive = open_decoder(oracle, mask);
        oracle->tensors = naive_tensors(oracle->naive);
    }
    fill_weights(oracle->tensors);
    fill_tokens(oracle);
    oracle_run(oracle);
}

void oracle_close(Oracle *oracle) {
    if (oracle->naive) naive_close(oracle->naive);
    if (oracle->mlp) naive_mlp_close(oracle->mlp);
    void *const arrays[] = {oracle->tokens, oracle->targets,     oracle->inputs,
                            oracle->values, oracle->real_inputs, oracle->real_values};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *oracle = (Oracle){0};
}

void oracle_subject(Model *model, const OraclePlan *plan, Grid *grid) {
    ModelConfig config = {
        .kind = plan->model,
        .inputs = plan->inputs,
        .outputs = plan->outputs,
        .loss = plan->loss,
        .vocab = plan->vocab,
        .layers = plan->layers,
        .context = plan->context,
        .sequences = plan->sequences,
        .tied = plan->tied,
        .norm_eps = 1e-5,
        .attention = {plan->d_model, plan->heads, plan->kv_heads, plan->context, 10000, 1, 1},
        .ffn = {plan->kind,
                {activation_find(plan->activation), 1, 0, 0, 0},
                plan->d_model,
                plan->d_ff,
                plan->bias && strcmp(plan->kind, "dense"),
                plan->bias,
                plan->bias,
                plan->hidden_dropout,
                ORACLE_SEED,
                1,
                1},
        .output_dropout = plan->output_dropout,
        .embed_init = 1,
        .seed = ORACLE_SEED,
        .grid_tensor = plan->shards,
        .reduction = plan->reduction,
        .transport = plan->transport,
        .recompute = plan->recompute,
        .fusion = plan->fusion,
        .sequence = plan->sequence,
        .threads = plan->threads ? plan->threads : 1,
    };
    int status = model_declare(model, &config, grid->tensor_rank, grid->tp);
    ck_assert_msg(status == 0, "%s: %s", plan->name, error_message());
    status = model_allocate(model, grid, true);
    ck_assert_msg(status == 0, "%s: %s", plan->name, error_message());
}

void oracle_weights(Model *model, const Oracle *oracle) {
    for (int p = 0; p < model->set.count; p++) {
        const Param *param = &model->set.param[p];
        const double *weight = oracle_weight(oracle, param->name);
        ck_assert_msg(weight != NULL, "%s: the naive model has no %s", oracle->plan.name,
                      param->name);
        whole_scatter(&model->set, param, PARAM_VALUE, weight);
    }
}

Microbatch oracle_batch(const Oracle *oracle, int m) {
    const OraclePlan *plan = &oracle->plan;
    int64_t rows = row_count(plan), first = m * rows;
    Microbatch batch = {.tokens = oracle->tokens + first, .targets = oracle->targets + first};
    if (!oracle->mlp) return batch;
    batch.tokens = NULL;
    batch.inputs = tensor_view(oracle->real_inputs + first * plan->inputs, rows, plan->inputs);
    if (plan->loss == LOSS_SQUARED_ERROR)
        batch.values =
            tensor_view(oracle->real_values + first * plan->outputs, rows, plan->outputs);
    return batch;
}

double oracle_train(Model *model, const Oracle *oracle) {
    double total = 0;
    memset(model->set.arena[PARAM_GRADIENT], 0, params_bytes(&model->set, 1));
    for (int m = 0; m < oracle->plan.microbatches; m++) {
        Pass pass = {ORACLE_STEP, ORACLE_FIRST_MICROBATCH + m, true};
        Microbatch batch = oracle_batch(oracle, m);
        double loss;
        int status = model_train(model, &pass, &batch, 1 / oracle->divisor, &loss);
        ck_assert_msg(status == 0, "%s: %s", oracle->plan.name, error_message());
        total += loss;
    }
    return total / oracle->divisor;
}

double oracle_evaluate(Model *model, const Oracle *oracle) {
    double total = 0;
    for (int m = 0; m < oracle->plan.microbatches; m++) {
        Microbatch batch = oracle_batch(oracle, m);
        double loss;
        int64_t hits;
        int status = model_evaluate(model, &batch, &loss, &hits);
        ck_assert_msg(status == 0, "%s: %s", oracle->plan.name, error_message());
        total += loss;
    }
    return total / oracle->divisor;
}

OracleResult oracle_compare(const Model *model, Grid *grid, const Oracle *oracle, double loss) {
    OracleResult result = {.loss = whole_difference(1, &loss, &oracle->loss), .tensor = "none"};
    for (int i = 0; i < oracle->tensors->count; i++) {
        const NaiveTensor *naive = &oracle->tensors->tensor[i];
        int place = params_find(&model->set, naive->name);
        ck_assert_msg(place >= 0, "%s: there is no %s", oracle->plan.name, naive->name);
        double *gradient =
            whole_gather(grid, &model->set, &model->set.param[place], PARAM_GRADIENT);
        double difference =
            whole_difference(naive->rows * naive->columns, gradient, naive->gradient);
        free(gradient);
        if (difference <= result.gradient) continue;
        result.gradient = difference;
        result.tensor = model->set.param[place].name;
    }
    ck_assert_int_eq(oracle->tensors->count, model->set.count);
    return result;
}
