#include "support/oracle_layouts.h"

#include "support/support.h"
#include "support/whole.h"

#include <stdio.h>

enum { MOST_TP = 3 };

/* The grid of tp tensor ranks, started and opened; tp 1 is every rank by itself. */
static void open_grid(Grid *grid, int tp) {
    ck_assert_int_eq(comm_start(grid), 0);
    if (tp == 1) {
        int rank = grid->world_rank;
        comm_stop(grid);
        grid_serial(grid);
        grid->world_rank = rank; /* who prints */
    } else {
        ck_assert_int_eq(grid_open(grid, tp, 1), 0);
    }
}

static int most_tp(void) {
    Grid grid;
    ck_assert_int_eq(comm_start(&grid), 0);
    int size = grid.world_size;
    comm_stop(&grid);
    return size < MOST_TP ? size : MOST_TP;
}

void oracle_on_layouts(OnLayout body, const void *context) {
    for (int tp = 1; tp <= most_tp(); tp++) {
        Grid grid;
        open_grid(&grid, tp);
        if (!grid.surplus) body(&grid, context);
        grid_wait_surplus(&grid, 0);
        comm_stop(&grid);
    }
}

typedef struct {
    const Oracle *oracle;
    const OraclePlan *plan;
    double tolerance;
    Hash128 *first;
} Check;

static void check_bits(const Check *check, Grid *grid, const Model *model, double loss) {
    if (check->plan->reduction != REDUCTION_EXACT) return;
    Hash128 hash = whole_hash(grid, &model->set, PARAM_GRADIENT);
    hash = hash_bytes((Hash128[]){hash, hash_bytes(&loss, sizeof loss)}, 2 * sizeof hash);
    if (grid->tp == 1 && check->first->high == 0) *check->first = hash;
    ck_assert_msg(hash_equal(hash, *check->first), "%s, tp %d: other bits than at tp 1",
                  check->plan->name, grid->tp);
}

static void check_layout(Grid *grid, const void *context) {
    const Check *check = context;
    const char *name = check->plan->name;
    Model model;
    oracle_subject(&model, check->plan, grid);
    oracle_weights(&model, check->oracle);
    double loss = oracle_train(&model, check->oracle);
    OracleResult result = oracle_compare(&model, grid, check->oracle, loss);
    if (grid->world_rank == 0)
        printf("  %-42s tp %d  loss %.1e  gradients %.1e (%s)\n", name, grid->tp, result.loss,
               result.gradient, result.tensor);
    ck_assert_msg(result.loss <= check->tolerance, "%s, tp %d: loss %.17g, expected %.17g", name,
                  grid->tp, loss, check->oracle->loss);
    ck_assert_msg(result.gradient <= check->tolerance, "%s, tp %d: gradient of %s differs by %g",
                  name, grid->tp, result.tensor, result.gradient);
    check_bits(check, grid, &model, loss);
    model_release(&model);
}

void oracle_check_layouts(const Oracle *oracle, const OraclePlan *plan, double tolerance,
                          Hash128 *first) {
    oracle_on_layouts(check_layout, &(Check){oracle, plan, tolerance, first});
}

void oracle_check_plan(const OraclePlan *plan, double tolerance) {
    Oracle oracle;
    Hash128 first = {0};
    oracle_open(&oracle, plan);
    oracle_check_layouts(&oracle, plan, tolerance, &first);
    oracle_close(&oracle);
}

void oracle_check_modes(const OraclePlan *plan, double tolerance) {
    static const char *const name[] = {"recompute none", "recompute act", "recompute block"};
    static const Fusion levels[] = {FUSION_GATE, FUSION_BLOCK, FUSION_EAGER};
    OraclePlan subject = *plan;
    Oracle oracle;
    Hash128 first = {0};
    oracle_open(&oracle, plan);
    for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_BLOCK; mode++) {
        char full[80];
        snprintf(full, sizeof full, "%s, %s", plan->name, name[mode]);
        subject.name = full;
        subject.recompute = (Recompute)mode;
        subject.fusion = levels[mode];
        oracle_check_layouts(&oracle, &subject, tolerance, &first);
    }
    oracle_close(&oracle);
}
