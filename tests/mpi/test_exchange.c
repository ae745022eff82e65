/* Sums over shards against a naive recursion, bit by bit, on whatever ranks there are. */
#include "comm/exchange.h"

#include "base/error.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARDS = 8 };

/* --- the naive reference: leaves by formula, the tree written down once more --- */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Magnitudes from 2^-12 to 2^12 and both signs, so that any other order gives other bits. */
static double leaf_value(int salt, int shard, int64_t element) {
    uint64_t bits = mix((uint64_t)salt << 48 ^ (uint64_t)shard << 40 ^ (uint64_t)(element + 1));
    double mantissa = 1 + (double)(bits >> 12) * 0x1p-52;
    return ldexp(bits & 1 ? mantissa : -mantissa, (int)(bits >> 1 & 31) % 25 - 12);
}

static real naive_sum(int salt, int begin, int end, int64_t element) {
    if (end - begin == 1) return (real)leaf_value(salt, begin, element);
    int left = 1;
    while (left * 2 < end - begin) left *= 2;
    return naive_sum(salt, begin, begin + left, element) +
           naive_sum(salt, begin + left, end, element);
}

static double naive_sum_doubles(int salt, int begin, int end, int64_t element) {
    if (end - begin == 1) return leaf_value(salt, begin, element);
    int left = 1;
    while (left * 2 < end - begin) left *= 2;
    return naive_sum_doubles(salt, begin, begin + left, element) +
           naive_sum_doubles(salt, begin + left, end, element);
}

/* --- a grid, and one sum on it --- */

static Grid grid;

static void start(int tp, int dp) {
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_int_eq(grid_open(&grid, tp, dp), 0);
}

static int world_size(void) {
    ck_assert_int_eq(comm_start(&grid), 0);
    int size = grid.world_size;
    comm_stop(&grid);
    return size;
}

static Exchange *open_exchange(ExchangeSpec spec) {
    Exchange *exchange;
    ck_assert_msg(exchange_open(&exchange, &grid, &spec) == 0, "%s", error_message());
    return exchange;
}

static void fill(const Partials *part, int salt) {
    for (int i = 0; i < part->count; i++) {
        Range shards = part->subtree[i];
        for (int64_t e = 0; e < part->sum[i].rows * part->sum[i].cols; e++)
            part->sum[i].data[e] = naive_sum(salt, (int)shards.begin, (int)shards.end, e);
    }
}

static int64_t count_wrong(Tensor y, int salt, int shards) {
    int64_t wrong = 0;
    for (int64_t e = 0; e < y.rows * y.cols; e++) {
        real right = naive_sum(salt, 0, shards, e);
        wrong += memcmp(&right, &y.data[e], sizeof right) != 0;
    }
    return wrong;
}

/* y: [rows, cols], in a larger buffer whose rest must stay as it is. Returns the wrong elements. */
static int64_t sum_once(Exchange *exchange, int64_t rows, int64_t cols, int salt, int shards) {
    enum { REST = 64 };
    int64_t n = rows * cols;
    real *memory = malloc((size_t)(n + REST) * sizeof *memory);
    ck_assert_ptr_nonnull(memory);
    for (int64_t e = 0; e < n + REST; e++) memory[e] = 77;
    Tensor y = tensor_view(memory, rows, cols);
    Partials part = exchange_begin(exchange, y);
    fill(&part, salt);
    ck_assert_int_eq(exchange_sum(exchange), 0);
    int64_t wrong = count_wrong(y, salt, shards);
    for (int64_t e = n; e < n + REST; e++) wrong += memory[e] != 77;
    free(memory);
    return wrong;
}

static const Transport both_transports[] = {TRANSPORT_WINDOW, TRANSPORT_MESSAGES};
static const struct {
    int64_t units;
    int shards; /* logical */
} axes[] = {{341, 8}, {5, 8}, {2, 8}, {1, 8}, {259, 5}, {64, 64}};
typedef struct {
    int64_t rows, cols;
} Size;
static const Size sizes[] = {{1, 1}, {3, 7}, {33, 129}, {1, 20011}};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void check_all_sizes(Group group, const AxisLayout *axis, Transport transport) {
    int last = COUNT(sizes) - 1;
    Exchange *exchange = open_exchange((ExchangeSpec){.group = group,
                                                      .axis = axis,
                                                      .rows = sizes[last].rows,
                                                      .cols = sizes[last].cols,
                                                      .transport = transport});
    for (int s = last; s >= 0; s--) {
        int64_t wrong = sum_once(exchange, sizes[s].rows, sizes[s].cols, s, axis->shards);
        ck_assert_msg(wrong == 0, "%s, %d shards, %lld x %lld: %lld elements differ from the tree",
                      exchange_transport(exchange), axis->shards, (long long)sizes[s].rows,
                      (long long)sizes[s].cols, (long long)wrong);
    }
    exchange_close(exchange);
}

static void check_all_axes(Group group) {
    for (int a = 0; a < COUNT(axes); a++) {
        AxisLayout axis = axis_layout(axes[a].units, axes[a].shards, group_size(&grid, group));
        for (int t = 0; t < COUNT(both_transports); t++)
            check_all_sizes(group, &axis, both_transports[t]);
    }
}

START_TEST(sums_have_the_bits_of_the_tree) {
    start(world_size(), 1);
    check_all_axes(GROUP_TENSOR);
    comm_stop(&grid);
}
END_TEST

START_TEST(data_group_sums_as_the_tensor_group_does) {
    start(1, world_size());
    check_all_axes(GROUP_DATA);
    comm_stop(&grid);
}
END_TEST

/* Two groups of each kind at once, each with windows of its own; a salt per group. */
START_TEST(groups_do_not_disturb_each_other) {
    if (world_size() < 4) return;
    start(2, 2);
    if (!grid.surplus) {
        AxisLayout axis = axis_layout(172, SHARDS, 2);
        ExchangeSpec spec = {.axis = &axis, .rows = 31, .cols = 67};
        spec.group = GROUP_TENSOR;
        Exchange *tensor = open_exchange(spec);
        spec.group = GROUP_DATA;
        Exchange *data = open_exchange(spec);
        for (int round = 0; round < 20; round++) {
            int salt = 10 * round + grid.data_rank;
            ck_assert_int_eq(sum_once(tensor, 31, 67, salt, SHARDS), 0);
            salt = 10 * round + 5 + grid.tensor_rank;
            ck_assert_int_eq(sum_once(data, 31, 67, salt, SHARDS), 0);
        }
        exchange_close(tensor);
        exchange_close(data);
    }
    ck_assert_int_eq(grid_wait_surplus(&grid, 0), 0);
    comm_stop(&grid);
}
END_TEST

/* --- ranks out of step --- */

static void random_delay(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    unsigned choice = *seed >> 24;
    if (choice < 64) usleep(choice * 8);
}

/* One sum with a delay wherever a rank may fall behind or run ahead. */
static void delayed_sum(Exchange *exchange, Tensor y, int salt, int shards, unsigned *seed) {
    Partials part = exchange_begin(exchange, y);
    random_delay(seed);
    fill(&part, salt);
    random_delay(seed);
    ck_assert_int_eq(exchange_sum(exchange), 0);
    random_delay(seed);
    int64_t wrong = count_wrong(y, salt, shards);
    ck_assert_msg(wrong == 0, "%s, round %d: %lld wrong elements", exchange_transport(exchange),
                  salt, (long long)wrong);
}

/* Three shapes over three axes take turns in one window; each starts writing as soon as it may. */
static void alternate(Transport transport, int threads) {
    enum { ROUNDS = 150, LARGEST = 64 * 80 };
    static const struct {
        int64_t units, rows, cols;
    } shape[] = {{341, 64, 80}, {2, 3, 5}, {5, 61, 79}};
    AxisLayout axis[COUNT(shape)];
    Exchange *exchange[COUNT(shape)];
    static real memory[LARGEST];
    unsigned seed = 17u * (unsigned)grid.world_rank + 3;
    for (int i = 0; i < COUNT(shape); i++) {
        axis[i] = axis_layout(shape[i].units, SHARDS, grid.tp);
        exchange[i] = open_exchange((ExchangeSpec){.group = GROUP_TENSOR,
                                                   .axis = &axis[i],
                                                   .rows = shape[i].rows,
                                                   .cols = shape[i].cols,
                                                   .transport = transport,
                                                   .threads = threads,
                                                   .share = i ? exchange[0] : NULL});
    }
    for (int round = 0; round < ROUNDS; round++) {
        int i = round * round % 7 % COUNT(shape);
        Tensor y = tensor_view(memory, shape[i].rows - round % 2, shape[i].cols);
        delayed_sum(exchange[i], y, round, axis[i].shards, &seed);
    }
    for (int i = 0; i < COUNT(shape); i++) exchange_close(exchange[i]);
}

START_TEST(sharing_exchanges_take_turns_without_a_race) {
    start(world_size(), 1);
    for (int t = 0; t < COUNT(both_transports); t++) alternate(both_transports[t], 1);
    comm_stop(&grid);
}
END_TEST

START_TEST(threads_do_not_change_bits) {
    start(world_size(), 1);
    AxisLayout axis = axis_layout(341, SHARDS, grid.tp);
    for (int t = 0; t < COUNT(both_transports); t++) {
        for (int threads = 0; threads <= 3; threads++) {
            Exchange *exchange = open_exchange((ExchangeSpec){.group = GROUP_TENSOR,
                                                              .axis = &axis,
                                                              .rows = 300,
                                                              .cols = 401,
                                                              .transport = both_transports[t],
                                                              .threads = threads});
            ck_assert_int_eq(sum_once(exchange, 300, 401, threads, SHARDS), 0);
            exchange_close(exchange);
        }
    }
    comm_stop(&grid);
}
END_TEST

/* --- the baseline, which is the control of everything above --- */

START_TEST(allreduce_is_close_but_not_the_tree) {
    start(world_size(), 1);
    enum { ROWS = 40, COLS = 50 };
    static real memory[ROWS * COLS];
    AxisLayout axis = axis_layout(341, SHARDS, grid.tp);
    Exchange *exchange = open_exchange((ExchangeSpec){.group = GROUP_TENSOR,
                                                      .axis = &axis,
                                                      .rows = ROWS,
                                                      .cols = COLS,
                                                      .reduction = REDUCTION_ALLREDUCE});
    Tensor y = tensor_view(memory, ROWS, COLS);
    Partials part = exchange_begin(exchange, y);
    fill(&part, 1);
    ck_assert_int_eq(exchange_sum(exchange), 0);
    for (int e = 0; e < ROWS * COLS; e++) {
        double magnitude = 0;
        for (int s = 0; s < SHARDS; s++) magnitude += fabs(leaf_value(1, s, e));
        double error = fabs((double)(memory[e] - naive_sum(1, 0, SHARDS, e)));
        ck_assert_double_le(error, 8 * (sizeof(real) == 4 ? 0x1p-24 : 0x1p-53) * magnitude);
    }
    int64_t wrong = count_wrong(y, 1, SHARDS);
    if (grid.tp == 3) ck_assert_int_gt(wrong, ROWS * COLS / 100);
    if (grid.tp == 1) ck_assert_int_eq(wrong, 0);
    exchange_close(exchange);
    comm_stop(&grid);
}
END_TEST

START_TEST(allreduce_counts_ranks_that_own_nothing) {
    start(world_size(), 1);
    AxisLayout axis = axis_layout(1, SHARDS, grid.tp);
    Exchange *exchange = open_exchange((ExchangeSpec){.group = GROUP_TENSOR,
                                                      .axis = &axis,
                                                      .rows = 5,
                                                      .cols = 7,
                                                      .reduction = REDUCTION_ALLREDUCE});
    ck_assert_int_eq(sum_once(exchange, 5, 7, 2, 1), 0);
    exchange_close(exchange);
    comm_stop(&grid);
}
END_TEST

/* --- numbers in double --- */

static void check_doubles(int64_t units, int64_t count) {
    AxisLayout axis = axis_layout(units, SHARDS, grid.tp);
    Exchange *exchange =
        open_exchange((ExchangeSpec){.group = GROUP_TENSOR, .axis = &axis, .rows = 1, .cols = 1});
    Range subtree[TREE_MAX_SUBTREES];
    int partials = tree_subtrees(axis.shards, axis_owned(&axis, grid.tensor_rank), subtree);
    double *partial = malloc((size_t)(count * (partials + 1)) * sizeof *partial);
    double *total = malloc((size_t)count * sizeof *total);
    for (int i = 0; i < partials; i++)
        for (int64_t e = 0; e < count; e++)
            partial[i * count + e] =
                naive_sum_doubles(3, (int)subtree[i].begin, (int)subtree[i].end, e);
    ck_assert_int_eq(exchange_sum_doubles(exchange, partial, count, total), 0);
    for (int64_t e = 0; e < count; e++) {
        double right = naive_sum_doubles(3, 0, axis.shards, e);
        ck_assert_msg(memcmp(&right, &total[e], sizeof right) == 0,
                      "%d shards, number %lld: %a, not %a", axis.shards, (long long)e, total[e],
                      right);
    }
    free(total);
    free(partial);
    exchange_close(exchange);
}

START_TEST(doubles_have_the_bits_of_the_tree) {
    start(world_size(), 1);
    for (int a = 0; a < COUNT(axes); a++) {
        check_doubles(axes[a].units, 1);
        check_doubles(axes[a].units, 1300); /* several rounds */
    }
    comm_stop(&grid);
}
END_TEST

/* --- local trees --- */

START_TEST(local_trees_match_the_naive_ones) {
    enum { N = 70001 };
    static real left[N], right[N];
    static double leaves[SHARD_MAX];
    for (int threads = 1; threads <= 3; threads++) {
        for (int e = 0; e < N; e++) {
            left[e] = (real)leaf_value(4, 0, e);
            right[e] = (real)leaf_value(4, 1, e);
        }
        tree_add(left, right, N, threads);
        for (int e = 0; e < N; e++) ck_assert(left[e] == naive_sum(4, 0, 2, e));
    }
    for (int count = 1; count <= SHARD_MAX; count++) {
        for (int s = 0; s < count; s++) leaves[s] = leaf_value(5, s, 0);
        ck_assert(tree_sum_doubles(leaves, count) == naive_sum_doubles(5, 0, count, 0));
    }
    ck_assert(tree_sum_doubles(leaves, 0) == 0);
}
END_TEST

/* --- what an exchange says of itself --- */

START_TEST(bytes_are_as_predicted_and_sharing_takes_none) {
    start(world_size(), 1);
    AxisLayout axis = axis_layout(341, SHARDS, grid.tp), narrow = axis_layout(2, SHARDS, grid.tp);
    for (int t = 0; t < COUNT(both_transports); t++) {
        ExchangeSpec spec = {.group = GROUP_TENSOR,
                             .axis = &axis,
                             .rows = 50,
                             .cols = 33,
                             .transport = both_transports[t]};
        Exchange *first = open_exchange(spec);
        ck_assert_uint_eq(exchange_bytes(first), exchange_bytes_predicted(&spec, grid.tensor_rank));
        spec.share = first;
        Exchange *second = open_exchange(spec);
        ck_assert_uint_eq(exchange_bytes(second), 0);
        spec.rows = 400; /* too large to share: gets buffers of its own and works */
        Exchange *larger = open_exchange(spec);
        spec.axis = &narrow;
        Exchange *other_axis = open_exchange(spec);
        const char *name = grid.tp == 1 ? "none" : t ? "messages" : "window";
        ck_assert_str_eq(exchange_transport(larger), name);
        exchange_close(first); /* the sharing one outlives it */
        ck_assert_int_eq(sum_once(second, 50, 33, 6, SHARDS), 0);
        ck_assert_int_eq(sum_once(larger, 400, 33, 7, SHARDS), 0);
        ck_assert_int_eq(sum_once(other_axis, 400, 33, 8, 2), 0);
        exchange_close(second);
        exchange_close(larger);
        exchange_close(other_axis);
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(counters_count_sums) {
    start(world_size(), 1);
    AxisLayout axis = axis_layout(8, SHARDS, grid.tp);
    for (int t = 0; t < COUNT(both_transports); t++) {
        Exchange *exchange = open_exchange((ExchangeSpec){.group = GROUP_TENSOR,
                                                          .axis = &axis,
                                                          .rows = 64,
                                                          .cols = 64,
                                                          .transport = both_transports[t]});
        comm_counters_reset(&grid);
        sum_once(exchange, 64, 64, 0, SHARDS);
        ck_assert_int_eq(grid.counters.collectives, grid.tp > 1);
        if (grid.tp == 2) /* half of the other's partial, and the other's half of the result */
            ck_assert_int_eq(grid.counters.bytes, 64 * 64 * (int)sizeof(real));
        ck_assert(grid.tp == 1 ? grid.counters.seconds == 0 : grid.counters.seconds > 0);
        exchange_close(exchange);
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(nonsense_is_refused_by_all) {
    start(world_size(), 1);
    AxisLayout wrong = axis_layout(8, SHARDS, grid.tp + 1), axis = axis_layout(8, SHARDS, grid.tp);
    Exchange *exchange;
    ExchangeSpec spec = {.group = GROUP_TENSOR, .axis = &wrong, .rows = 1, .cols = 1};
    ck_assert_int_eq(exchange_open(&exchange, &grid, &spec), WEFT_USAGE);
    ck_assert_ptr_null(exchange);
    ck_assert(error_is_agreed());
    spec.axis = &axis;
    spec.cols = 0;
    ck_assert_int_eq(exchange_open(&exchange, &grid, &spec), WEFT_USAGE);
    spec.cols = 1;
    exchange = open_exchange(spec);
    ck_assert_int_eq(exchange_sum(exchange), WEFT_USAGE);
    exchange_close(exchange);
    exchange_close(NULL);
    comm_stop(&grid);
}
END_TEST

int main(int argc, char **argv) {
    return run_mpi_suite(
        &argc, &argv, "exchange",
        TESTS(sums_have_the_bits_of_the_tree, data_group_sums_as_the_tensor_group_does,
              groups_do_not_disturb_each_other, sharing_exchanges_take_turns_without_a_race,
              threads_do_not_change_bits, allreduce_is_close_but_not_the_tree,
              allreduce_counts_ranks_that_own_nothing, doubles_have_the_bits_of_the_tree,
              local_trees_match_the_naive_ones, bytes_are_as_predicted_and_sharing_takes_none,
              counters_count_sums, nonsense_is_refused_by_all));
}
