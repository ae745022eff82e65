/* Whole training steps against a reference that is not weft: the naive decoder, masks straight from
 * Random123, AdamW and the schedule as their papers write them. No key that says what is trained
 * has its default, so that one that gets lost on the way from the config shows. On 2 ranks. */
#include "base/error.h"
#include "run/trainer.h"
#include "support/naive.h"
#include "support/support.h"
#include "support/whole.h"

#include <Random123/philox.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, MOST_TENSORS = 32 };

/* Bounds, about ten times what is measured; parameters are compared relative to the largest of
 * their tensor. Adam divides small gradients by their own size, which amplifies their rounding. */
static const double close_loss = sizeof(real) == 8 ? 1e-13 : 1e-7;
static const double close_norm = sizeof(real) == 8 ? 1e-13 : 2e-6;
static const double close_value = sizeof(real) == 8 ? 1e-11 : 2e-4;

/* 2 batch shards of 2 microbatches of 2 sequences. */
#define COMMON                                                                                     \
    "[run]\ndir = none\nseed = 7\n"                                                                \
    "[model]\nd_model = 64\nlayers = 2\nheads = 4\nkv_heads = 2\ncontext = 16\n"                   \
    "rope_theta = 500\nnorm_eps = 3e-3\n"                                                          \
    "[ffn]\nd_ff = 100\nbias = true\nhidden_dropout = 0.2\noutput_dropout = 0.15\n"                \
    "[grid]\ntensor = 3\ndata = 2\n"                                                               \
    "[train]\nsteps = 4\nglobal_batch = 8\nmicro_batch = 2\n"                                      \
    "[optim]\nlr = 5e-3\nmin_lr = 1e-4\nbeta1 = 0.8\nbeta2 = 0.97\neps = 1e-6\n"                   \
    "weight_decay = 0.3\nclip = 0.5\nwarmup = 1\nschedule = cosine\n"                              \
    "[data]\ntrain = tests/data/tiny.txt\nheld_out = 0.2\n"                                        \
    "[init]\nstd = 0.05\n"

static const char *const variants[] = {
    COMMON "scheme = fan_in\n[model]\ntie_embeddings = false\n[ffn]\nactivation = gelu\n",
    COMMON "scheme = fixed\n[ffn]\nkind = dense\nactivation = gelu_tanh\n"};

/* ---- the reference ---- */

typedef struct {
    Config config;
    Dataset data;
    NaiveModel *naive;
    double *moment1[MOST_TENSORS], *moment2[MOST_TENSORS];
    int64_t mask_step, mask_microbatch; /* that the masks are asked for */
    double loss, norm;                  /* of the step */
} Reference;

typedef struct {
    const char *name;
    int64_t rows, columns, size;
    double *value, *gradient;
} NamedTensor;

static bool tensor_at(const NaiveModel *naive, int index, NamedTensor *tensor) {
    if (!naive_tensor(naive, index, &tensor->name, &tensor->rows, &tensor->columns)) return false;
    tensor->size = tensor->rows * tensor->columns;
    tensor->value = naive_weight(naive, tensor->name);
    tensor->gradient = naive_gradient(naive, tensor->name);
    return true;
}

/* The counter layout that tensor/philox.h documents. */
static double mask(void *context, int site, int layer, int64_t row, int64_t channel) {
    const Reference *reference = context;
    bool hidden = site == NAIVE_HIDDEN;
    uint32_t purpose = hidden ? PHILOX_HIDDEN_DROPOUT : PHILOX_OUTPUT_DROPOUT;
    double probability =
        hidden ? reference->config.ffn.hidden_dropout : reference->config.ffn.output_dropout;
    philox4x32_key_t key = {{(uint32_t)reference->config.run.seed, 0}};
    uint32_t place = (uint32_t)layer * (1u << 16) + (uint32_t)reference->mask_microbatch;
    philox4x32_ctr_t counter = {{(uint32_t)(channel / 4), (uint32_t)row,
                                 (uint32_t)reference->mask_step, purpose * (1u << 26) + place}};
    double uniform = philox4x32_R(10, counter, key).v[channel % 4] * 0x1p-32;
    return uniform < floor(probability * 0x1p32) * 0x1p-32 ? 0 : 1 / (1 - probability);
}

static void reference_open(Reference *reference, const Config *config) {
    *reference = (Reference){.config = *config};
    DatasetSpec data = {.kind = "text",
                        .train = config->data.train,
                        .held = "",
                        .held_out = config->data.held_out,
                        .vocab = config->model.vocab,
                        .context = config->model.context,
                        .micro_batch = config->train.micro_batch,
                        .global_batch = config->train.global_batch,
                        .seed = (uint64_t)config->run.seed};
    ck_assert_msg(dataset_open(&reference->data, &data) == 0, "%s", error_message());
    NaiveConfig model = {.vocab = config->model.vocab,
                         .d_model = config->model.d_model,
                         .layers = config->model.layers,
                         .heads = config->model.heads,
                         .kv_heads = config->model.kv_heads,
                         .d_ff = config->ffn.d_ff,
                         .sequences = config->train.micro_batch,
                         .context = config->model.context,
                         .gated = !strcmp(config->ffn.kind, "gated"),
                         .tied = config->model.tie_embeddings,
                         .bias = config->ffn.bias,
                         .activation = config->ffn.activation,
                         .rms_eps = config->model.norm_eps,
                         .rope_theta = config->model.rope_theta,
                         .mask = mask,
                         .mask_context = reference};
    reference->naive = naive_open(&model);
    NamedTensor tensor;
    for (int i = 0; tensor_at(reference->naive, i, &tensor); i++) {
        ck_assert_int_lt(i, MOST_TENSORS);
        reference->moment1[i] = naive_array(tensor.size);
        reference->moment2[i] = naive_array(tensor.size);
    }
}

static void reference_close(Reference *reference) {
    for (int i = 0; i < MOST_TENSORS; i++) {
        free(reference->moment1[i]);
        free(reference->moment2[i]);
    }
    naive_close(reference->naive);
    dataset_close(&reference->data);
}

/* Loss, gradients and their norm over all microbatches of a step; with the masks of step + shift
 * and microbatch * factor (0 and 1 are right). */
static void reference_gradient(Reference *reference, int64_t step, int shift, int factor) {
    enum { BATCH = 8, MICROBATCHES = 4, ROWS = 32, TARGETS = MICROBATCHES * ROWS };
    int32_t tokens[ROWS], targets[ROWS];
    Microbatch batch = {.tokens = tokens, .targets = targets};
    naive_zero_gradients(reference->naive);
    reference->loss = 0;
    for (int m = 0; m < MICROBATCHES; m++) {
        int status = dataset_train_batch(&reference->data, step, BATCH, m, &batch, NULL);
        ck_assert_msg(status == 0, "%s", error_message());
        reference->mask_step = step + shift;
        reference->mask_microbatch = m * factor;
        reference->loss += naive_forward(reference->naive, tokens, targets, TARGETS);
        naive_backward(reference->naive);
    }
    double sum = 0;
    NamedTensor tensor;
    for (int i = 0; tensor_at(reference->naive, i, &tensor); i++)
        for (int64_t j = 0; j < tensor.size; j++) sum += tensor.gradient[j] * tensor.gradient[j];
    reference->norm = sqrt(sum);
}

/* Linear warm-up, then one cycle of Loshchilov and Hutter 2017, eq. 5. */
static double rate_at(const Config *config, int64_t step) {
    double lr = config->optim.lr, min_lr = config->optim.min_lr;
    double warmup = (double)config->optim.warmup, rest = (double)config->train.steps - warmup;
    if ((double)step < warmup) return lr * (double)(step + 1) / warmup;
    return min_lr + (lr - min_lr) / 2 * (1 + cos(acos(-1) * ((double)step - warmup) / rest));
}

/* Loshchilov and Hutter 2019, algorithm 2: lines 6 to 12 for update t = step + 1, where the rate
 * multiplies the decay too, which matrices alone have. */
static void reference_update(Reference *reference, int64_t step) {
    const Config *config = &reference->config;
    double b1 = config->optim.beta1, b2 = config->optim.beta2, t = (double)step + 1;
    double clip = reference->norm > config->optim.clip ? config->optim.clip / reference->norm : 1;
    double rate = rate_at(config, step);
    NamedTensor tensor;
    for (int i = 0; tensor_at(reference->naive, i, &tensor); i++) {
        double decay = tensor.columns > 1 ? config->optim.weight_decay : 0;
        double *m = reference->moment1[i], *v = reference->moment2[i];
        for (int64_t j = 0; j < tensor.size; j++) {
            double g = tensor.gradient[j] * clip;
            m[j] = b1 * m[j] + (1 - b1) * g;
            v[j] = b2 * v[j] + (1 - b2) * g * g;
            double m_hat = m[j] / (1 - pow(b1, t)), v_hat = v[j] / (1 - pow(b2, t));
            tensor.value[j] -=
                rate * (m_hat / (sqrt(v_hat) + config->optim.eps) + decay * tensor.value[j]);
        }
    }
}

/* ---- the trainer beside it ---- */

static double *gather(Trainer *trainer, const char *name) {
    int place = params_find(&trainer->model.set, name);
    ck_assert_msg(place >= 0, "there is no %s", name);
    return whole_gather(trainer->grid, &trainer->model.set, &trainer->model.set.param[place],
                        PARAM_VALUE);
}

static double expected_std(const Config *config, const NamedTensor *tensor) {
    if (strstr(tensor->name, "embed") || strstr(tensor->name, "lm_head")) return config->init.std;
    bool fan_in = !strcmp(config->init.scheme, "fan_in");
    double std = fan_in ? 1 / sqrt((double)tensor->columns) : config->init.std;
    bool residual = strstr(tensor->name, "o_proj") || strstr(tensor->name, "down_proj");
    return residual ? std / sqrt(2 * (double)config->model.layers) : std;
}

/* Vectors are constant. Of a matrix the mean and the standard deviation lie within 5 standard
 * errors: 5.5 % of std at 4096 elements. */
static void check_initial(const Config *config, const NamedTensor *tensor, const double *value) {
    double n = (double)tensor->size, mean = 0, square = 0;
    for (int64_t j = 0; j < tensor->size; j++) {
        mean += value[j] / n;
        square += value[j] * value[j] / n;
        if (tensor->columns == 1)
            ck_assert_msg(value[j] == (strstr(tensor->name, "norm") ? 1 : 0), "%s[%d] = %g",
                          tensor->name, (int)j, value[j]);
    }
    if (tensor->columns == 1) return;
    double std = sqrt(square - mean * mean), expected = expected_std(config, tensor);
    ck_assert_msg(fabs(mean) < 5 * expected / sqrt(n), "%s: mean %g", tensor->name, mean);
    ck_assert_msg(fabs(std / expected - 1) < 5 / sqrt(2 * n), "%s: std %g, expected %g",
                  tensor->name, std, expected);
}

/* The trainer's initial values, checked, into the reference. */
static void start(Reference *reference, Trainer *trainer) {
    NamedTensor tensor;
    int count = 0;
    for (; tensor_at(reference->naive, count, &tensor); count++) {
        double *value = gather(trainer, tensor.name);
        check_initial(&reference->config, &tensor, value);
        memcpy(tensor.value, value, (size_t)tensor.size * sizeof *value);
        free(value);
    }
    ck_assert_int_eq(count, trainer->model.set.count);
}

static void close_to(const char *what, int64_t step, double got, double expected, double bound) {
    ck_assert_msg(fabs(got - expected) <= bound * fabs(expected),
                  "step %d: %s %.17g, expected %.17g", (int)step, what, got, expected);
}

static void compare_values(const Reference *reference, Trainer *trainer, int64_t step) {
    NamedTensor tensor;
    for (int i = 0; tensor_at(reference->naive, i, &tensor); i++) {
        double *value = gather(trainer, tensor.name);
        double off = whole_difference(tensor.size, value, tensor.value);
        ck_assert_msg(off <= close_value, "step %d: %s off by %g", (int)step, tensor.name, off);
        free(value);
    }
}

static void check_steps(Reference *reference, Trainer *trainer) {
    for (int64_t step = 0; step < STEPS; step++) {
        StepReport report = {0};
        ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
        reference_gradient(reference, step, 0, 1);
        ck_assert_double_gt(reference->norm, reference->config.optim.clip);
        reference_update(reference, step);
        close_to("loss", step, report.loss, reference->loss, close_loss);
        close_to("gradient norm", step, report.norm, reference->norm, close_norm);
        close_to("rate", step, report.rate, rate_at(&reference->config, step), 1e-14);
        compare_values(reference, trainer, step);
    }
}

/* Masks of another step, or the first microbatch's for all, are far beyond the bounds. */
static void check_masks(Reference *reference, Trainer *trainer) {
    const int wrong[][2] = {{1, 1}, {0, 0}}; /* shift, factor */
    StepReport report = {0};
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
    for (int i = 0; i < 2; i++) {
        reference_gradient(reference, 0, wrong[i][0], wrong[i][1]);
        ck_assert_double_gt(fabs(report.loss - reference->loss), 100 * close_loss * report.loss);
        ck_assert_double_gt(fabs(report.norm - reference->norm), 100 * close_norm * report.norm);
    }
}

/* A stopwatch changes no bit, is told of every part, and every begin has its end. */
static void check_stopwatch(Reference *reference, Trainer *trainer) {
    (void)reference;
    Stopwatch watch;
    double loss[2], norm[2], sum = 0;
    StepReport report = {0};
    ck_assert_msg(trainer_gradient(trainer, &loss[0], &norm[0]) == 0, "%s", error_message());
    stopwatch_start(&watch);
    trainer_watch(trainer, &watch);
    ck_assert_msg(trainer_gradient(trainer, &loss[1], &norm[1]) == 0, "%s", error_message());
    ck_assert(!memcmp(&loss[0], &loss[1], sizeof *loss) &&
              !memcmp(&norm[0], &norm[1], sizeof *norm));
    stopwatch_start(&watch);
    ck_assert_msg(trainer_step(trainer, &report) == 0, "%s", error_message());
    stopwatch_stop(&watch);
    trainer_watch(trainer, NULL);
    ck_assert_int_eq(watch.depth, 0);
    for (int p = 0; p < STEP_PARTS; p++) {
        ck_assert_msg(watch.seconds[p] > 0, "%s: no time", stopwatch_part_name((StepPart)p));
        sum += watch.seconds[p];
    }
    ck_assert(sum >= report.seconds);
}

/* body on both layouts of 2 ranks, for both variants of the config. */
static void on_all(void (*body)(Reference *reference, Trainer *trainer)) {
    for (int i = 0; i < 4; i++) {
        Config config;
        Grid grid;
        Trainer trainer;
        Reference reference;
        config_defaults(&config);
        int status = config_read_text(&config, variants[i / 2], "variant");
        ck_assert_msg(status == 0 && config_check(&config) == 0, "%s", error_message());
        ck_assert_int_eq(comm_start(&grid), 0);
        ck_assert_msg(grid_open(&grid, 1 + i % 2, 2 - i % 2) == 0, "%s", error_message());
        ck_assert_msg(trainer_open(&trainer, &config, &grid, 1, true) == 0, "%s", error_message());
        reference_open(&reference, &config);
        start(&reference, &trainer);
        body(&reference, &trainer);
        reference_close(&reference);
        trainer_close(&trainer);
        comm_stop(&grid);
    }
}

START_TEST(steps_are_those_of_the_reference) { on_all(check_steps); }
END_TEST

START_TEST(masks_of_another_place_show) { on_all(check_masks); }
END_TEST

START_TEST(a_stopwatch_changes_no_bit) { on_all(check_stopwatch); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "trainer",
                         TESTS(steps_are_those_of_the_reference, masks_of_another_place_show,
                               a_stopwatch_changes_no_bit));
}
