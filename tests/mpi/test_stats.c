/* The statistics of an FFN against plain loops over whole tensors, with values that aren't finite
 * among them; and of a training run, whose text and trajectory don't depend on the layout. On 3
 * ranks. */
#include "base/error.h"
#include "nn/observer.h"
#include "run/ffn_stats.h"
#include "run/stats.h"
#include "support/naive.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 9 };

typedef struct {
    const char *kind, *activation;
    double beta, gate_clamp, linear_clamp;
    int64_t channels, rows;
    int shards, threads;
    bool wild; /* NaN and infinities among the values */
} Case;

/* ---- plain loops over whole tensors ---- */

enum { GATE, UP, HIDDEN, INPUT, OUTPUT };

/* Element `i` of a tensor, whole. */
static real element(int tensor, int64_t i, bool wild) {
    double x = 4 * sin(0.37 * (double)i + 1.3 * tensor) * cos(0.011 * (double)(i * (tensor + 1)));
    if (wild && i % 17 == 3 + tensor) return (real)NAN;
    if (wild && i % 23 == 5 + tensor) return (real)INFINITY;
    if (wild && i % 29 == 7 + tensor) return (real)-INFINITY;
    if (tensor == HIDDEN && i % 3 == 0) return i % 2 ? (real)-0.0 : 0;
    if (tensor == HIDDEN && i % 5 == 0) return (real)5e-4;
    return (real)x;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

typedef struct {
    int64_t count, nonfinite, saturated, zeros, small;
    double mean, std, rms, quantile[QUANTILES];
} Plain;

static bool is_saturated(const Case *c, int tensor, double z) {
    bool gated = !strcmp(c->kind, "gated"), dense = !strcmp(c->kind, "dense");
    bool acts = tensor == GATE || !gated;
    if (tensor == GATE && c->gate_clamp > 0 && z > c->gate_clamp) return true;
    if (tensor == UP && gated && c->linear_clamp > 0 && fabs(z) > c->linear_clamp) return true;
    return acts && !(dense && tensor == GATE) &&
           fabs(naive_activation_slope(c->activation, c->beta, z)) < FFN_STATS_FLAT;
}

static Plain plain(const Case *c, int tensor, int64_t size, double threshold) {
    Plain found = {0};
    double sum = 0, squares = 0, deviations = 0, *finite = naive_array(size);
    for (int64_t i = 0; i < size; i++) {
        double x = (double)element(tensor, i, c->wild);
        found.zeros += x == 0;
        found.small += fabs(x) < threshold;
        found.nonfinite += !isfinite(x);
        if (!isfinite(x)) continue;
        found.saturated += tensor <= UP && is_saturated(c, tensor, x);
        sum += x;
        squares += x * x;
        finite[found.count++] = x;
    }
    found.mean = sum / (double)found.count;
    found.rms = sqrt(squares / (double)found.count);
    for (int64_t i = 0; i < found.count; i++) deviations += pow(finite[i] - found.mean, 2);
    found.std = sqrt(deviations / (double)found.count);
    qsort(finite, (size_t)found.count, sizeof *finite, ascending);
    for (int q = 0; q < QUANTILES; q++) {
        int64_t below = (int64_t)ceil(quantiles_percent[q] / 100.0 * (double)found.count - 1e-9);
        found.quantile[q] = finite[below > 0 ? below - 1 : 0];
    }
    free(finite);
    return found;
}

static double plain_correlation(const Case *c, int64_t size) {
    double mean[2] = {0}, square[2] = {0}, both = 0;
    for (int64_t i = 0; i < size; i++)
        for (int t = 0; t < 2; t++) mean[t] += (double)element(t, i, false) / (double)size;
    for (int64_t i = 0; i < size; i++) {
        double g = (double)element(GATE, i, false) - mean[0];
        double u = (double)element(UP, i, false) - mean[1];
        square[0] += g * g;
        square[1] += u * u;
        both += g * u;
    }
    return c->wild || size == 1 ? NAN : both / sqrt(square[0] * square[1]);
}

/* ---- the same by shards ---- */

static Sharded cut(const AxisLayout *axis, int rank, int tensor, const Case *c) {
    Sharded sharded = {.owned = axis_owned(axis, rank)};
    for (int s = (int)sharded.owned.begin; s < sharded.owned.end; s++) {
        Range channels = axis_units(axis, s);
        int64_t cols = range_size(channels);
        real *data = malloc((size_t)(c->rows * cols) * sizeof *data);
        ck_assert_ptr_nonnull(data);
        for (int64_t i = 0; i < c->rows * cols; i++)
            data[i] = element(tensor, i / cols * c->channels + channels.begin + i % cols, c->wild);
        sharded.shard[s] = tensor_view(data, c->rows, cols);
    }
    return sharded;
}

static void release(Sharded *sharded) {
    for (int s = (int)sharded->owned.begin; s < sharded->owned.end; s++)
        free(sharded->shard[s].data);
}

static Tensor whole(int tensor, const Case *c) {
    real *data = malloc((size_t)(c->rows * D) * sizeof *data);
    ck_assert_ptr_nonnull(data);
    for (int64_t i = 0; i < c->rows * D; i++) data[i] = element(tensor, i, c->wild);
    return tensor_view(data, c->rows, D);
}

static FfnStats take(const Case *c, Grid *grid, double threshold) {
    Workspace space = {
        .threads = c->threads, .rows = c->rows, .row_shards = shard_count(c->rows, c->shards)};
    Ffn ffn = {.kind = ffn_find(c->kind), .space = &space};
    FfnStatsWork work;
    FfnStats stats;
    ffn.axis = axis_layout(c->channels, c->shards, grid->tp);
    ffn.config.branches = (Branches){.activation = activation_find(c->activation),
                                     .beta = c->beta,
                                     .gate_clamp = c->gate_clamp,
                                     .linear_clamp = c->linear_clamp};
    ck_assert_int_eq(ffn_stats_open(&work, grid, &ffn, threshold), 0);
    Sharded gate = cut(&ffn.axis, grid->tensor_rank, GATE, c);
    Sharded up = cut(&ffn.axis, grid->tensor_rank, UP, c);
    Sharded hidden = cut(&ffn.axis, grid->tensor_rank, HIDDEN, c);
    Tensor input = whole(INPUT, c), output = whole(OUTPUT, c);
    ffn_stats_take(&work, input, &gate, &up, &hidden, output, &stats);
    free(input.data);
    free(output.data);
    release(&gate);
    release(&up);
    release(&hidden);
    ffn_stats_close(&work);
    return stats;
}

static void assert_near(const char *what, double found, double wanted, double scale) {
    ck_assert_msg((isnan(found) && isnan(wanted)) || fabs(found - wanted) <= 1e-12 * scale,
                  "%s: %.17g, not %.17g", what, found, wanted);
}

static void assert_branch(const BranchStats *found, const Plain *wanted) {
    ck_assert_int_eq(found->nonfinite, wanted->nonfinite);
    ck_assert_int_eq(found->saturated, wanted->saturated);
    assert_near("mean", found->mean, wanted->mean, wanted->rms);
    assert_near("std", found->std, wanted->std, wanted->rms);
    for (int q = 0; q < QUANTILES; q++)
        ck_assert_msg(found->quantile[q] == wanted->quantile[q], "quantile %d: %.17g, not %.17g",
                      quantiles_percent[q], found->quantile[q], wanted->quantile[q]);
}

static void assert_stats(const Case *c, const FfnStats *found, double threshold) {
    int64_t size = c->rows * c->channels;
    Plain gate = plain(c, GATE, size, threshold), up = plain(c, UP, size, threshold);
    Plain hidden = plain(c, HIDDEN, size, threshold);
    Plain input = plain(c, INPUT, c->rows * D, 0), output = plain(c, OUTPUT, c->rows * D, 0);
    ck_assert_int_eq(found->values, size);
    ck_assert_int_eq(found->has_gate, strcmp(c->kind, "dense") != 0);
    assert_branch(&found->branch[BRANCH_UP], &up);
    if (found->has_gate) assert_branch(&found->branch[BRANCH_GATE], &gate);
    if (found->has_gate)
        assert_near("correlation", found->correlation, plain_correlation(c, size), 1);
    ck_assert_int_eq(found->zeros, hidden.zeros);
    ck_assert_int_eq(found->small, hidden.small);
    ck_assert_int_eq(found->hidden_nonfinite, hidden.nonfinite);
    ck_assert_int_eq(found->input_nonfinite, input.nonfinite);
    ck_assert_int_eq(found->output_nonfinite, output.nonfinite);
    assert_near("hidden", found->hidden_rms, hidden.rms, hidden.rms);
    assert_near("input", found->input_rms, input.rms, input.rms);
    assert_near("output", found->output_rms, output.rms, output.rms);
}

static const Case cases[] = {
    {"gated", "silu", 1, 0, 0, 172, 33, 8, 1, false},
    {"gated", "silu", 1.7, 1.5, 2, 172, 33, 8, 2, true},
    {"gated", "relu", 1, 0, 0, 341, 7, 8, 2, false},
    {"gated", "sigmoid", 1, 0, 1, 5, 129, 8, 1, true},
    {"gated", "identity", 1, 0, 0, 1, 1, 4, 1, false},
    {"dual", "relu", 1, 0, 0, 19, 12, 3, 2, true},
    {"dual", "gelu_tanh", 1, 0, 0, 8, 64, 8, 1, false},
    {"dense", "gelu", 1, 0, 0, 64, 40, 5, 2, false},
    {"dense", "quick_gelu", 1, 0, 0, 2, 40, 8, 1, true},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Bit for bit, padding aside. */
static bool same(const FfnStats *a, const FfnStats *b) {
    size_t first = offsetof(FfnStats, branch);
    return !memcmp((const char *)a + first, (const char *)b + first, sizeof *a - first);
}

static FfnStats reference[CASES]; /* of one rank, on the first */

static void on_ranks(int tp) {
    Grid grid;
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, tp, 1) == 0, "%s", error_message());
    for (int i = 0; i < CASES && !grid.surplus; i++) {
        FfnStats found = take(&cases[i], &grid, 1e-3);
        assert_stats(&cases[i], &found, 1e-3);
        if (tp == 1) reference[i] = found;
        ck_assert_msg(grid.world_rank != 0 || same(&found, &reference[i]),
                      "case %d: other bits on %d ranks", i, tp);
    }
    comm_stop(&grid);
}

START_TEST(like_plain_loops_on_any_ranks) {
    for (int tp = 1; tp <= 3; tp++) on_ranks(tp);
}
END_TEST

/* ---- while training ---- */

static const char *const modes[] = {"none", "act", "block"};
static const int layouts[][2] = {{1, 1}, {2, 1}, {3, 1}, {1, 2}, {1, 3}}; /* tp, dp */
enum { LAYOUTS = sizeof layouts / sizeof *layouts, STEPS = 4 };

static Hash128 trajectory; /* of a run without statistics, on the first rank */
static char *texts[STEPS]; /* of the first layout, on the first rank; NULL: not due */

typedef struct {
    double input, output; /* sums of squares of layer 1 in the first microbatch */
    int64_t ups;          /* elements of ffn.up here */
} Look;

static double squares(Tensor x) {
    double sum = 0;
    for (int64_t i = 0; i < x.rows; i++)
        for (int64_t j = 0; j < x.cols; j++) sum += pow((double)tensor_row(x, i)[j], 2);
    return sum;
}

static void see(void *context, const Seen *seen) {
    Look *look = context;
    if (seen->layer != 1 || seen->gradient) return;
    if (!strcmp(seen->name, "norm.ffn")) look->input = squares(seen->data);
    if (!strcmp(seen->name, "ffn.down")) look->output = squares(seen->data);
    if (!strcmp(seen->name, "ffn.up")) look->ups += seen->data.rows * seen->data.cols;
}

/* What the first pass of the next step will show. */
static Look look_ahead(Trainer *trainer) {
    Look look = {0};
    Observer observer = {.see = see, .context = &look};
    Pass pass = {trainer->step, 0, true};
    double loss;
    ck_assert_int_eq(dataset_train_batch(&trainer->data, trainer->step,
                                         trainer->config.train.global_batch, 0, &trainer->micro,
                                         NULL),
                     0);
    trainer->model.space.observer = &observer;
    ck_assert_int_eq(model_train(&trainer->model, &pass, &trainer->micro, 1, &loss), 0);
    trainer->model.space.observer = NULL;
    return look;
}

static double rms_of(Grid *grid, const ParamSet *set, const char *name, ParamRole role) {
    double sum = 0;
    const Param *param = &set->param[params_find(set, name)];
    double *values = whole_gather(grid, set, param, role);
    for (int64_t i = 0; i < param->rows * param->cols; i++) sum += values[i] * values[i];
    free(values);
    return sqrt(sum / (double)(param->rows * param->cols));
}

static double number_at(const json_t *object, const char *key, const char *name) {
    const json_t *value = json_object_get(object, key);
    value = name ? json_object_get(value, name) : value;
    ck_assert_msg(json_is_real(value), "no %s %s", key, name ? name : "");
    return json_real_value(value);
}

/* Some of the numbers, by other ways. `values`: of up's weight in layer 1 and of the last norm,
 * before the step. */
static void check_numbers(Trainer *trainer, Grid *grid, const Look *look, const double values[2],
                          const json_t *stats) {
    const ParamSet *set = &trainer->model.set;
    static const char up[] = "model.layers.1.mlp.up_proj.weight", norm[] = "model.norm.weight";
    double gradients[] = {rms_of(grid, set, up, PARAM_GRADIENT),
                          rms_of(grid, set, norm, PARAM_GRADIENT)};
    if (!stats) return;
    double count = (double)(trainer->model.space.rows * trainer->config.model.d_model);
    const json_t *layer = json_array_get(json_object_get(stats, "layers"), 1);
    ck_assert_int_eq(json_array_size(json_object_get(stats, "layers")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(stats, "step")), trainer->step - 1);
    assert_near("input", number_at(layer, "input_rms", NULL), sqrt(look->input / count), 1);
    assert_near("output", number_at(layer, "output_rms", NULL), sqrt(look->output / count), 1);
    assert_near("up", number_at(layer, "parameter_rms", up + 15), values[0], 1);
    assert_near("up's", number_at(layer, "gradient_rms", up + 15), gradients[0], gradients[0]);
    assert_near("norm", number_at(stats, "parameter_rms", norm), values[1], 1);
    assert_near("norm's", number_at(stats, "gradient_rms", norm), gradients[1], gradients[1]);
    ck_assert_ptr_nonnull(json_object_get(layer, "gate_up_correlation"));
    ck_assert(number_at(json_object_get(layer, "hidden"), "zero", NULL) > 0.05); /* dropout */
}

/* Rank 0 compares with the first layout's. */
static void compare_text(Grid *grid, int step, json_t *stats, const char *where) {
    ck_assert((stats != NULL) == (grid->world_rank == 0 && step % 2 == 0));
    if (!stats) return;
    char *text = json_dumps(stats, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!texts[step]) {
        texts[step] = text;
        return;
    }
    ck_assert_msg(!strcmp(text, texts[step]), "%s, step %d:\n%s\nnot\n%s", where, step, text,
                  texts[step]);
    free(text);
}

static void train(Trainer *trainer, Grid *grid, const char *where) {
    Stats *stats;
    ck_assert_int_eq(stats_open(&stats, trainer), 0);
    for (int step = 0; step < STEPS; step++) {
        StepReport report = {0};
        json_t *object;
        Look look = look_ahead(trainer);
        double values[] = {
            rms_of(grid, &trainer->model.set, "model.layers.1.mlp.up_proj.weight", PARAM_VALUE),
            rms_of(grid, &trainer->model.set, "model.norm.weight", PARAM_VALUE)};
        stats_begin(stats, trainer);
        ck_assert_int_eq(trainer_step(trainer, &report), 0);
        ck_assert_int_eq(stats_end(stats, trainer, &object), 0);
        ck_assert_ptr_null(trainer->model.space.observer);
        check_numbers(trainer, grid, &look, values, object);
        if (trainer->config.stats.every)
            compare_text(grid, step, object, where);
        else
            ck_assert_ptr_null(object);
        json_decref(object);
    }
    stats_close(stats);
}

static void on_layout(const char *mode, int tp, int dp, int threads, const char *every) {
    Config config;
    Grid grid;
    Trainer trainer;
    char where[64];
    snprintf(where, sizeof where, "train.recompute=%s", mode);
    config_defaults(&config);
    ck_assert_msg(config_read(&config, "tests/configs/tiny.ini") == 0, "%s", error_message());
    ck_assert_int_eq(config_set(&config, where), 0);
    ck_assert_int_eq(config_set(&config, every), 0);
    ck_assert_int_eq(config_set(&config, "train.global_batch=4"), 0);
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, tp, dp) == 0, "%s", error_message());
    if (!grid.surplus) {
        int status = trainer_open(&trainer, &config, &grid, threads, true);
        ck_assert_msg(status == 0, "tp %d x dp %d: %s", tp, dp, error_message());
        snprintf(where, sizeof where, "tp %d x dp %d, recompute %s", tp, dp, mode);
        train(&trainer, &grid, where);
        Hash128 hash = whole_hash(&grid, &trainer.model.set, PARAM_VALUE);
        if (config.stats.every == 0) trajectory = hash;
        ck_assert_msg(grid.world_rank != 0 || hash_equal(hash, trajectory),
                      "%s: other parameters than without statistics", where);
        trainer_close(&trainer);
    }
    comm_stop(&grid);
}

START_TEST(one_text_and_one_trajectory) {
    on_layout("none", 1, 1, 1, "stats.every=0");
    for (int l = 0; l < LAYOUTS; l++)
        on_layout(modes[l % 3], layouts[l][0], layouts[l][1], 1 + l % 2, "stats.every=2");
    on_layout("block", 1, 1, 2, "stats.every=2");
    for (int step = 0; step < STEPS; step++) free(texts[step]);
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "stats",
                         TESTS(like_plain_loops_on_any_ranks, one_text_and_one_trajectory));
}
