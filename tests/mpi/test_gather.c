/* Sums of which each rank wants its own rows, against a naive recursion, and rows that come
 * together or are dealt out, bit by bit; on whatever ranks there are. */
#include "comm/gather.h"

#include "base/error.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARDS = 8, COLS = 19 };

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const Transport transports[] = {TRANSPORT_WINDOW, TRANSPORT_MESSAGES};
static const int64_t heights[] = {1, 2, 7, 64, 149}; /* rows: fewer than ranks, and uneven */

static Grid grid;

static void start(void) {
    ck_assert_int_eq(comm_start(&grid), 0);
    int size = grid.world_size;
    ck_assert_int_eq(grid_open(&grid, size, 1), 0);
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Any bits: NaN, both zeros and denormal numbers are among them. */
static real any_bits(int salt, int64_t element) {
    uint64_t bits = mix((uint64_t)salt << 40 ^ (uint64_t)(element + 1));
    if (element % 5 == 0) bits = (uint64_t)1 << (8 * sizeof(real) - 1); /* -0 */
    real value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool same_bits(real a, real b) { return memcmp(&a, &b, sizeof a) == 0; }

/* ---- sums ---- */

/* Magnitudes from 2^-12 to 2^12 and both signs, so that any other order gives other bits. */
static real leaf_value(int shard, int64_t element) {
    uint64_t bits = mix((uint64_t)shard << 40 ^ (uint64_t)(element + 1));
    double mantissa = 1 + (double)(bits >> 12) * 0x1p-52;
    return (real)ldexp(bits & 1 ? mantissa : -mantissa, (int)(bits >> 1 & 31) % 25 - 12);
}

static real naive_sum(int begin, int end, int64_t element) {
    if (end - begin == 1) return leaf_value(begin, element);
    int left = 1;
    while (left * 2 < end - begin) left *= 2;
    return naive_sum(begin, begin + left, element) + naive_sum(begin + left, end, element);
}

static ExchangeSpec sum_spec(const AxisLayout *axis, const AxisLayout *rows, Transport transport) {
    return (ExchangeSpec){.group = GROUP_TENSOR,
                          .axis = axis,
                          .rows = rows->units,
                          .cols = COLS,
                          .own_rows = rows,
                          .transport = transport,
                          .threads = 2};
}

/* This rank's rows of the sum; what lies behind them must stay as it is. */
static real *own_sum(const ExchangeSpec *spec, int64_t *elements) {
    enum { REST = 32 };
    Exchange *exchange;
    Range own = axis_owned_units(spec->own_rows, grid.tensor_rank);
    *elements = range_size(own) * COLS;
    real *memory = malloc((size_t)(*elements + REST) * sizeof *memory);
    ck_assert_ptr_nonnull(memory);
    ck_assert_msg(exchange_open(&exchange, &grid, spec) == 0, "%s", error_message());
    ck_assert_uint_eq(exchange_bytes(exchange), exchange_bytes_predicted(spec, grid.tensor_rank));
    for (int round = 0; round < 3; round++) {
        for (int64_t e = 0; e < *elements + REST; e++) memory[e] = 77;
        Partials part = exchange_begin(exchange, tensor_view(memory, range_size(own), COLS));
        for (int i = 0; i < part.count; i++) {
            ck_assert_int_eq(part.sum[i].rows, spec->rows);
            for (int64_t e = 0; e < spec->rows * COLS; e++)
                part.sum[i].data[e] =
                    naive_sum((int)part.subtree[i].begin, (int)part.subtree[i].end, e);
        }
        comm_counters_reset(&grid);
        ck_assert_int_eq(exchange_sum(exchange), 0);
        ck_assert_int_eq(grid.counters.collectives, grid.tp > 1);
        ck_assert_int_eq(grid.counters.bytes, exchange_received_predicted(spec, grid.tensor_rank));
        for (int64_t e = *elements; e < *elements + REST; e++) ck_assert(memory[e] == 77);
    }
    exchange_close(exchange);
    return memory;
}

static void check_sum(int64_t units, int64_t height, Transport transport) {
    AxisLayout axis = axis_layout(units, SHARDS, grid.tp);
    AxisLayout rows = axis_layout(height, SHARDS, grid.tp);
    ExchangeSpec spec = sum_spec(&axis, &rows, transport);
    int64_t elements, first = axis_owned_units(&rows, grid.tensor_rank).begin * COLS;
    real *y = own_sum(&spec, &elements);
    for (int64_t e = 0; e < elements; e++)
        ck_assert_msg(same_bits(y[e], naive_sum(0, axis.shards, first + e)),
                      "%d rows over %d shards: element %d of rank %d", (int)height, axis.shards,
                      (int)(first + e), grid.tensor_rank);
    free(y);
}

START_TEST(own_rows_have_the_bits_of_the_tree) {
    static const int64_t units[] = {341, 5, 1};
    start();
    for (int u = 0; u < COUNT(units); u++)
        for (int h = 0; h < COUNT(heights); h++)
            for (int t = 0; t < 2; t++) check_sum(units[u], heights[h], transports[t]);
    comm_stop(&grid);
}
END_TEST

START_TEST(own_rows_of_the_baseline_are_close) {
    start();
    AxisLayout rows = axis_layout(61, SHARDS, grid.tp);
    for (int64_t units = 1; units < 342; units += 340) {
        AxisLayout axis = axis_layout(units, SHARDS, grid.tp);
        ExchangeSpec spec = sum_spec(&axis, &rows, TRANSPORT_AUTO);
        spec.reduction = REDUCTION_ALLREDUCE;
        int64_t elements, first = axis_owned_units(&rows, grid.tensor_rank).begin * COLS;
        real *y = own_sum(&spec, &elements);
        for (int64_t e = 0; e < elements; e++) {
            double magnitude = 0, right = (double)naive_sum(0, axis.shards, first + e);
            for (int s = 0; s < axis.shards; s++)
                magnitude += fabs((double)leaf_value(s, first + e));
            ck_assert_double_le(fabs((double)y[e] - right),
                                8 * (sizeof(real) == 4 ? 0x1p-24 : 0x1p-53) * magnitude);
        }
        free(y);
    }
    comm_stop(&grid);
}
END_TEST

/* ---- rows ---- */

static GatherSpec gather_spec(const AxisLayout *rows, Transport transport) {
    return (GatherSpec){GROUP_TENSOR, rows, COLS, REDUCTION_EXACT, transport, 2};
}

static Gather *open_gather(const GatherSpec *spec) {
    Gather *gather;
    ck_assert_msg(gather_open(&gather, &grid, spec) == 0, "%s", error_message());
    ck_assert_uint_eq(gather_bytes(gather), gather_bytes_predicted(spec, grid.tensor_rank));
    return gather;
}

static void random_delay(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    unsigned choice = *seed >> 24;
    if (choice < 48) usleep(choice * 8);
}

/* Writes rows [rows) for this round. */
static void write_rows(Tensor whole, Range rows, int round) {
    for (int64_t e = rows.begin * COLS; e < rows.end * COLS; e++)
        whole.data[e] = any_bits(round, e);
}

static int64_t count_wrong(const real *data, Range rows, int round) {
    int64_t wrong = 0;
    for (int64_t e = rows.begin * COLS; e < rows.end * COLS; e++)
        wrong += !same_bits(data[e - rows.begin * COLS], any_bits(round, e));
    return wrong;
}

/* Rounds with a delay wherever a rank may fall behind or run ahead. */
static void check_gathers(Gather *gather, const GatherSpec *spec) {
    enum { ROUNDS = 40 };
    unsigned seed = 17u * (unsigned)grid.world_rank + 3;
    Tensor whole = gather_whole(gather);
    Range own = axis_owned_units(spec->rows, grid.tensor_rank), all = {0, spec->rows->units};
    for (int round = 0; round < ROUNDS; round++) {
        gather_begin(gather);
        random_delay(&seed);
        write_rows(whole, own, round);
        random_delay(&seed);
        comm_counters_reset(&grid);
        gather_rows(gather);
        ck_assert_int_eq(grid.counters.collectives, grid.tp > 1);
        ck_assert_int_eq(grid.counters.bytes, gather_received_predicted(spec, grid.tensor_rank));
        random_delay(&seed);
        int64_t wrong = count_wrong(whole.data, all, round);
        ck_assert_msg(wrong == 0, "%s, %d rows, round %d: %d wrong elements",
                      gather_transport(gather), (int)all.end, round, (int)wrong);
    }
}

/* Each element is written by the rank that its place says, in turn with gathers. */
static void check_scatter(Gather *gather, const GatherSpec *spec) {
    Tensor whole = gather_whole(gather);
    Range own = axis_owned_units(spec->rows, grid.tensor_rank);
    real *mine = calloc((size_t)(range_size(own) * COLS + 1), sizeof *mine);
    ck_assert_ptr_nonnull(mine);
    for (int round = 0; round < 3; round++) {
        gather_begin_scatter(gather);
        for (int64_t e = 0; e < whole.rows * COLS; e++)
            if ((int)(mix((uint64_t)(e + round)) % (uint64_t)grid.tp) == grid.tensor_rank)
                whole.data[e] = any_bits(round, e);
        comm_counters_reset(&grid);
        gather_scatter(gather, tensor_view(mine, range_size(own), COLS));
        ck_assert_int_eq(grid.counters.collectives, grid.tp > 1);
        ck_assert_int_eq(grid.counters.bytes,
                         gather_scatter_received_predicted(spec, grid.tensor_rank));
        ck_assert_int_eq(count_wrong(mine, own, round), 0);
    }
    free(mine);
}

START_TEST(rows_come_together_and_are_dealt_out) {
    start();
    for (int h = 0; h < COUNT(heights); h++)
        for (int t = 0; t < 2; t++) {
            AxisLayout rows = axis_layout(heights[h], SHARDS, grid.tp);
            GatherSpec spec = gather_spec(&rows, transports[t]);
            Gather *gather = open_gather(&spec);
            ck_assert_str_eq(gather_transport(gather), grid.tp == 1 ? "none"
                                                       : t          ? "messages"
                                                                    : "window");
            check_gathers(gather, &spec);
            check_scatter(gather, &spec);
            check_gathers(gather, &spec);
            gather_close(gather);
        }
    comm_stop(&grid);
}
END_TEST

/* In a window there is one matrix for all, of which each rank holds its rows. */
START_TEST(a_window_holds_the_rows_once) {
    start();
    AxisLayout rows = axis_layout(64, SHARDS, grid.tp);
    GatherSpec window = gather_spec(&rows, TRANSPORT_WINDOW);
    GatherSpec messages = gather_spec(&rows, TRANSPORT_MESSAGES);
    size_t all = 0, whole = 64 * COLS * sizeof(real);
    for (int r = 0; r < grid.tp; r++) {
        all += gather_bytes_predicted(&window, r);
        ck_assert_uint_eq(gather_bytes_predicted(&messages, r), whole);
    }
    ck_assert(all >= whole && all <= whole + 256);
    comm_stop(&grid);
}
END_TEST

START_TEST(nonsense_is_refused_by_all) {
    start();
    AxisLayout wrong = axis_layout(8, SHARDS, grid.tp + 1), axis = axis_layout(8, SHARDS, grid.tp);
    GatherSpec spec = gather_spec(&wrong, TRANSPORT_AUTO);
    Gather *gather;
    ck_assert_int_eq(gather_open(&gather, &grid, &spec), WEFT_USAGE);
    ck_assert_ptr_null(gather);
    ck_assert(error_is_agreed());
    ExchangeSpec sum = sum_spec(&axis, &axis, TRANSPORT_AUTO);
    Exchange *exchange;
    sum.rows = 9; /* of which the layout has 8 */
    ck_assert_int_eq(exchange_open(&exchange, &grid, &sum), WEFT_USAGE);
    ck_assert_ptr_null(exchange);
    gather_begin(NULL);
    gather_rows(NULL);
    gather_close(NULL);
    comm_stop(&grid);
}
END_TEST

int main(int argc, char **argv) {
    return run_mpi_suite(&argc, &argv, "gather",
                         TESTS(own_rows_have_the_bits_of_the_tree,
                               own_rows_of_the_baseline_are_close,
                               rows_come_together_and_are_dealt_out, a_window_holds_the_rows_once,
                               nonsense_is_refused_by_all));
}
