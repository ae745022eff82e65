/* Epilogues of exact sums, of the baseline and of the only partial: each element is finished once,
 * on one rank, where it belongs. On 1, 3 and 8 ranks. */
#include "base/error.h"
#include "comm/exchange.h"
#include "support/support.h"

#include <string.h>

enum { SHARDS = 8, ROWS = 61, COLS = 79 };

static Grid grid;
static int told[ROWS * COLS]; /* times that this rank was told of each element of y */

/* Values are small integers: any order of a sum gives the same. */
static void fill(const Partials *part) {
    for (int i = 0; i < part->count; i++)
        for (int64_t e = 0; e < ROWS * COLS; e++)
            part->sum[i].data[e] = (real)(e * range_size(part->subtree[i]));
}

static void add_and_tell(void *context, int64_t row, Range cols, real *sum) {
    const real *added = context;
    for (int64_t j = cols.begin; j < cols.end; j++) {
        sum[j - cols.begin] += *added;
#pragma omp atomic
        told[row * COLS + j]++;
    }
}

/* One sum; y's first element is `first` of the whole. */
static void check_sum(Exchange *exchange, Tensor y, int64_t first, bool with) {
    real added = (real)0.5;
    Epilogue epilogue = {add_and_tell, &added, STEP_RESIDUAL};
    memset(told, 0, sizeof told);
    Partials part = exchange_begin_with(exchange, y, with ? &epilogue : NULL);
    fill(&part);
    ck_assert_int_eq(part.epilogue != NULL, with && grid.tp == 1);
    for (int64_t t = 0; part.epilogue && t < ROWS; t++)
        part.epilogue->finish(part.epilogue->context, t, (Range){0, COLS}, tensor_row(y, t));
    ck_assert_int_eq(exchange_sum(exchange), 0);
    for (int64_t e = 0; e < y.rows * COLS; e++)
        ck_assert_msg(y.data[e] == (real)((first + e) * SHARDS) + (with ? added : 0),
                      "%s, with %d, element %d of %d is %g", exchange_transport(exchange), with,
                      (int)e, (int)(y.rows * COLS), (double)y.data[e]);
}

static void check_told(int64_t elements, bool shared) {
    int64_t times[ROWS * COLS];
    for (int64_t e = 0; e < elements; e++) times[e] = told[e];
    if (shared) comm_sum_int64(&grid, GROUP_TENSOR, times, elements);
    for (int64_t e = 0; e < elements; e++)
        ck_assert_msg(times[e] == 1, "element %d: %d times", (int)e, (int)times[e]);
}

static void check(Transport transport, Reduction reduction, bool own_rows) {
    static real memory[ROWS * COLS];
    AxisLayout axis = axis_layout(172, SHARDS, grid.tp), rows = axis_layout(ROWS, SHARDS, grid.tp);
    Range own = own_rows ? axis_owned_units(&rows, grid.tensor_rank) : (Range){0, ROWS};
    Exchange *exchange;
    ExchangeSpec spec = {.group = GROUP_TENSOR,
                         .axis = &axis,
                         .rows = ROWS,
                         .cols = COLS,
                         .own_rows = own_rows ? &rows : NULL,
                         .reduction = reduction,
                         .transport = transport,
                         .threads = 2};
    ck_assert_msg(exchange_open(&exchange, &grid, &spec) == 0, "%s", error_message());
    Tensor y = tensor_view(memory, range_size(own), COLS);
    check_sum(exchange, y, own.begin * COLS, true);
    check_told(y.rows * COLS, !own_rows && reduction == REDUCTION_EXACT);
    check_sum(exchange, y, own.begin * COLS, false); /* it is forgotten */
    exchange_close(exchange);
}

START_TEST(each_element_is_finished_once) {
    static const struct {
        Transport transport;
        Reduction reduction;
    } ways[] = {{TRANSPORT_WINDOW, REDUCTION_EXACT},
                {TRANSPORT_MESSAGES, REDUCTION_EXACT},
                {TRANSPORT_MESSAGES, REDUCTION_ALLREDUCE}};
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_msg(grid_open(&grid, grid.world_size, 1) == 0, "%s", error_message());
    for (int i = 0; i < 3; i++)
        for (int own_rows = 0; own_rows <= (grid.tp > 1); own_rows++)
            check(ways[i].transport, ways[i].reduction, own_rows);
    comm_stop(&grid);
}
END_TEST

int main(int argc, char **argv) {
    return run_mpi_suite(&argc, &argv, "epilogue", TESTS(each_element_is_finished_once));
}
