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

/* Weights are spread wide enough for the activations to bend; gains lie around 1. */
static void fill_weights(NaiveModel *naive) {
    const char *name;
    int64_t rows, columns;
    uint64_t state = 20240607;
    for (int i = 0; naive_tensor(naive, i, &name, &rows, &columns); i++) {
        double *weight = naive_weight(naive, name);
        bool gain = strstr(name, "norm") != NULL, embedding = strstr(name, "embed") != NULL;
        double spread = embedding ? 1 : strstr(name, "bias") ? 0.5 : 0.25;
        for (int64_t j = 0; j < rows * columns; j++)
            weight[j] = (double)(float)(gain + spread * next_value(&state));
    }
}

static int64_t row_count(const OraclePlan *plan) { return plan->sequences * plan->context; }

static void fill_tokens(Oracle *oracle) {
    const OraclePlan *plan = &oracle->plan;
    int64_t count = plan->microbatches * row_count(plan);
    uint64_t state = 4711;
    oracle->tokens = calloc((size_t)count, sizeof *oracle->tokens);
    oracle->targets = calloc((size_t)count, sizeof *oracle->targets);
    ck_assert(oracle->tokens && oracle->targets);
    for (int64_t t = 0; t < count; t++) {
        oracle->tokens[t] = (int32_t)((next_value(&state) + 1) / 2 * (double)plan->vocab);
        oracle->targets[t] = (int32_t)((next_value(&state) + 1) / 2 * (double)plan->vocab);
        if (plan->masked && t % 5 == 3) oracle->targets[t] = t % 2 ? -1 : -100;
        oracle->divisor += oracle->targets[t] >= 0;
    }
}

void oracle_run(Oracle *oracle) {
    int64_t rows = row_count(&oracle->plan);
    naive_zero_gradients(oracle->naive);
    oracle->loss = 0;
    for (int m = 0; m < oracle->plan.microbatches; m++) {
        oracle->microbatch = ORACLE_FIRST_MICROBATCH + m;
        oracle->loss += naive_forward(oracle->naive, oracle->tokens + m * rows,
                                      oracle->targets + m * rows, oracle->divisor);
        naive_backward(oracle->naive);
    }
}

void oracle_open(Oracle *oracle, const OraclePlan *plan) {
    *oracle = (Oracle){.plan = *plan};
    bool dropout = plan->hidden_dropout > 0 || plan->output_dropout > 0;
    NaiveConfig config = {.vocab = plan->vocab,
                          .d_model = plan->d_model,
                          .layers = plan->layers,
                          .heads = plan->heads,
                          .kv_heads = plan->kv_heads,
                          .d_ff = plan->d_ff,
                          .sequences = plan->sequences,
                          .context = plan->context,
                          .gated = !strcmp(plan->kind, "gated"),
                          .tied = plan->tied,
                          .bias = plan->bias,
                          .activation = plan->activation,
                          .rms_eps = 1e-5,
                          .rope_theta = 10000,
                          .mask = dropout ? naive_mask : NULL,
                          .mask_context = oracle};
    oracle->naive = naive_open(&config);
    fill_weights(oracle->naive);
    fill_tokens(oracle);
    oracle_run(oracle);
}

void oracle_close(Oracle *oracle) {
    naive_close(oracle->naive);
    free(oracle->tokens);
    free(oracle->targets);
    *oracle = (Oracle){0};
}

void oracle_subject(Model *model, const OraclePlan *plan, Grid *grid) {
    ModelConfig config = {
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
                plan->bias,
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
        .transport = TRANSPORT_AUTO,
        .recompute = plan->recompute,
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
        const double *weight = naive_weight(oracle->naive, param->name);
        ck_assert_msg(weight != NULL, "%s: the naive model has no %s", oracle->plan.name,
                      param->name);
        whole_scatter(&model->set, param, PARAM_VALUE, weight);
    }
}

double oracle_train(Model *model, const Oracle *oracle) {
    int64_t rows = row_count(&oracle->plan);
    double total = 0;
    memset(model->set.arena[PARAM_GRADIENT], 0, params_bytes(&model->set, 1));
    for (int m = 0; m < oracle->plan.microbatches; m++) {
        Pass pass = {ORACLE_STEP, ORACLE_FIRST_MICROBATCH + m, true};
        Microbatch batch = {.tokens = oracle->tokens + m * rows,
                            .targets = oracle->targets + m * rows};
        double loss;
        int status = model_train(model, &pass, &batch, 1 / oracle->divisor, &loss);
        ck_assert_msg(status == 0, "%s: %s", oracle->plan.name, error_message());
        total += loss;
    }
    return total / oracle->divisor;
}

double oracle_evaluate(Model *model, const Oracle *oracle) {
    int64_t rows = row_count(&oracle->plan);
    double total = 0;
    for (int m = 0; m < oracle->plan.microbatches; m++) {
        Microbatch batch = {.tokens = oracle->tokens + m * rows,
                            .targets = oracle->targets + m * rows};
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
    const char *name;
    int64_t rows, columns;
    int count = 0;
    for (; naive_tensor(oracle->naive, count, &name, &rows, &columns); count++) {
        int place = params_find(&model->set, name);
        ck_assert_msg(place >= 0, "%s: there is no %s", oracle->plan.name, name);
        double *gradient =
            whole_gather(grid, &model->set, &model->set.param[place], PARAM_GRADIENT);
        double difference =
            whole_difference(rows * columns, gradient, naive_gradient(oracle->naive, name));
        free(gradient);
        if (difference <= result.gradient) continue;
        result.gradient = difference;
        result.tensor = model->set.param[place].name;
    }
    ck_assert_int_eq(count, model->set.count);
    return result;
}
