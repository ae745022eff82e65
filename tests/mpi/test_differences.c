/* Central differences: the gradient of every tensor against the loss itself, through the whole
 * model, masks and all. Any reference may be wrong; the loss of the same forward can't be. fp64
 * alone, on 2 ranks. */
#include "support/oracle.h"
#include "support/support.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const OraclePlan base = {.vocab = 37,
                                .inputs = 6,
                                .outputs = 5,
                                .d_model = 16,
                                .layers = 2,
                                .heads = 4,
                                .kv_heads = 2,
                                .d_ff = 23,
                                .sequences = 2,
                                .context = 9,
                                .kind = "gated",
                                .activation = "silu",
                                .bias = true,
                                .masked = true,
                                .hidden_dropout = 0.1,
                                .output_dropout = 0.2,
                                .shards = 8,
                                .microbatches = 1};

typedef struct {
    Grid *grid;
    Model model;
    Oracle oracle;
} Setting;

/* One element of the whole tensor, moved on all ranks that hold it. */
static void move(Setting *setting, const Param *param, int64_t element, double to) {
    real *value = whole_element(&setting->model.set, param, PARAM_VALUE, element / param->cols,
                                element % param->cols);
    if (value) *value = (real)to;
}

static double loss_at(Setting *setting, const Param *param, int64_t element, double value) {
    move(setting, param, element, value);
    return oracle_train(&setting->model, &setting->oracle);
}

/* Fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h. */
static double slope(Setting *setting, const Param *param, int64_t element, double h) {
    double value = oracle_weight(&setting->oracle, param->name)[element];
    double near =
        loss_at(setting, param, element, value + h) - loss_at(setting, param, element, value - h);
    double far = loss_at(setting, param, element, value + 2 * h) -
                 loss_at(setting, param, element, value - 2 * h);
    move(setting, param, element, value);
    return (8 * near - far) / (12 * h);
}

/* Corners, and then anywhere. */
static int64_t sample(const Param *param, int i) {
    int64_t size = param->rows * param->cols;
    const int64_t corner[] = {0, param->cols - 1, size - param->cols, size - 1};
    return i < 4 ? corner[i] : (i * 2654435761) % size;
}

/* The largest difference over all tensors, each relative to its largest gradient. */
static double check_tensors(Setting *setting, double h, double tolerance, const char *name) {
    enum { SAMPLES = 7 };
    double worst = 0;
    oracle_train(&setting->model, &setting->oracle);
    const ParamSet *set = &setting->model.set;
    double **gradient = calloc((size_t)set->count, sizeof *gradient);
    ck_assert_ptr_nonnull(gradient);
    for (int p = 0; p < set->count; p++)
        gradient[p] = whole_gather(setting->grid, set, &set->param[p], PARAM_GRADIENT);
    for (int p = 0; p < set->count; p++) {
        const Param *param = &set->param[p];
        double largest = 0;
        for (int64_t i = 0; i < param->rows * param->cols; i++)
            largest = fmax(largest, fabs(gradient[p][i]));
        ck_assert_msg(largest > 0, "%s: the gradient of %s is 0", name, param->name);
        for (int i = 0; i < SAMPLES; i++) {
            int64_t element = sample(param, i);
            double found = slope(setting, param, element, h);
            double difference = fabs(found - gradient[p][element]) / largest;
            ck_assert_msg(difference <= tolerance,
                          "%s, tp %d: %s, element %lld: gradient %.10g, slope of the loss %.10g",
                          name, setting->grid->tp, param->name, (long long)element,
                          gradient[p][element], found);
            worst = fmax(worst, difference);
        }
    }
    for (int p = 0; p < set->count; p++) free(gradient[p]);
    free(gradient);
    return worst;
}

typedef struct {
    const char *name, *kind, *activation;
    ModelKind model;
    HeadLoss loss;
    bool tied;
    Recompute recompute;
    double step, tolerance; /* relu has kinks: there a step must be too short to meet one. Seen:
                               3e-11, with relu 3e-8 */
} Row;

static void check_on(Grid *grid, const Row *row) {
    OraclePlan plan = base;
    plan.name = row->name;
    plan.kind = row->kind;
    plan.activation = row->activation;
    plan.model = row->model;
    plan.loss = row->loss;
    if (plan.model == MODEL_MLP) plan.context = 1;
    plan.tied = row->tied;
    plan.recompute = row->recompute;
    Setting setting = {.grid = grid};
    oracle_open(&setting.oracle, &plan);
    oracle_subject(&setting.model, &plan, grid);
    oracle_weights(&setting.model, &setting.oracle);
    double worst = check_tensors(&setting, row->step, row->tolerance, row->name);
    if (grid->tensor_rank == 0)
        printf("  %-24s tp %d  %d tensors within %.1e\n", row->name, grid->tp,
               setting.model.set.count, worst);
    model_release(&setting.model);
    oracle_close(&setting.oracle);
}

START_TEST(gradients_are_the_slopes_of_the_loss) {
    static const Row row[] = {{"gated silu", "gated", "silu", MODEL_DECODER, LOSS_CROSS_ENTROPY,
                               false, RECOMPUTE_NONE, 1e-3, 2e-10},
                              {"gated gelu_tanh, tied", "gated", "gelu_tanh", MODEL_DECODER,
                               LOSS_CROSS_ENTROPY, true, RECOMPUTE_BLOCK, 1e-3, 2e-10},
                              {"dense gelu", "dense", "gelu", MODEL_DECODER, LOSS_CROSS_ENTROPY,
                               false, RECOMPUTE_ACT, 1e-3, 2e-10},
                              {"dense relu, tied", "dense", "relu", MODEL_DECODER,
                               LOSS_CROSS_ENTROPY, true, RECOMPUTE_NONE, 1e-6, 1e-7},
                              {"mlp, classes", "gated", "silu", MODEL_MLP, LOSS_CROSS_ENTROPY,
                               false, RECOMPUTE_ACT, 1e-3, 2e-10},
                              {"mlp, squared error", "dense", "gelu", MODEL_MLP, LOSS_SQUARED_ERROR,
                               false, RECOMPUTE_BLOCK, 1e-3, 2e-10}};
    ck_assert_msg(sizeof(real) == 8, "central differences need the fp64 build");
    for (int tp = 1; tp <= 2; tp++)
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            Grid grid;
            ck_assert_int_eq(comm_start(&grid), 0);
            ck_assert_int_eq(grid_open(&grid, tp, 1), 0);
            if (!grid.surplus) check_on(&grid, &row[i]);
            grid_wait_surplus(&grid, 0);
            comm_stop(&grid);
        }
}
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "differences", TESTS(gradients_are_the_slopes_of_the_loss));
}
