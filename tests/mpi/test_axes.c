/* Rows and columns where both are of one length, so that no shape tells them apart. On 3 ranks; tp
 * 1, 2, 3. */
#include "support/arrays.h"
#include "support/ffn_suite.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 16, CHANGED = 3 };

/* Another row of x leaves all other rows of y and dx as they were, bit for bit. */
static void check_square(Grid *grid, const FfnRigPlan *plan) {
    enum { SIZE = SIDE * SIDE };
    real y[SIZE], dx[SIZE];
    FfnRig rig;
    ffn_rig_open(&rig, grid, plan);
    ffn_rig_fill(&rig, 7);
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    memcpy(y, rig.y.data, sizeof y);
    memcpy(dx, rig.dx.data, sizeof dx);
    for (int64_t j = 0; j < SIDE; j++) tensor_row(rig.x, CHANGED)[j] *= 3;
    ffn_rig_forward(&rig, true);
    ffn_rig_backward(&rig, true);
    for (int64_t t = 0; t < SIDE; t++) {
        bool same = array_same(y + t * SIDE, tensor_row(rig.y, t), SIDE) &&
                    array_same(dx + t * SIDE, tensor_row(rig.dx, t), SIDE);
        ck_assert_msg(same == (t != CHANGED), "%s: row %d", ffn_rig_name(&rig), (int)t);
    }
    ffn_rig_close(&rig);
}

static void square_on(Grid *grid) {
    FfnRigPlan plan = suite_plan;
    plan.rows = plan.d_model = SIDE;
    plan.gap = 0;
    on_kinds_with(&plan, grid, check_square);
}

START_TEST(a_row_of_a_square_does_not_see_another) { on_layouts(square_on); }
END_TEST

int main(int argc, char **argv) {
    if (gemm_setup()) return EXIT_FAILURE;
    return run_mpi_suite(&argc, &argv, "axes", TESTS(a_row_of_a_square_does_not_see_another));
}
