/* The grid, agreement and the exact collectives, on whatever ranks there are. */
#include "comm/comm.h"
#include "comm/unordered.h"

#include "base/clock.h"
#include "base/error.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static Grid grid;

/* All ranks of the world in one tensor group. */
static void start(void) {
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_int_eq(grid_open(&grid, grid.world_size, 1), 0);
}

/* --- the grid --- */

START_TEST(ranks_are_numbered_tensor_first) {
    ck_assert_int_eq(comm_start(&grid), 0);
    ck_assert_int_eq(group_rank(&grid, GROUP_WORLD), grid.world_rank);
    ck_assert_int_eq(group_size(&grid, GROUP_GRID), 1);
    ck_assert_int_ge(grid.node_ranks, 1);
    int tp = grid.world_size >= 4 ? 2 : 1, dp = grid.world_size / tp;
    ck_assert_int_eq(grid_open(&grid, tp, dp), 0);
    if (!grid.surplus) {
        ck_assert_int_eq(grid.world_rank, grid.data_rank * tp + grid.tensor_rank);
        ck_assert_int_eq(group_size(&grid, GROUP_TENSOR), tp);
        ck_assert_int_eq(group_size(&grid, GROUP_DATA), dp);
        ck_assert_int_eq(group_rank(&grid, GROUP_GRID), grid.world_rank);
        int ranks[64];
        comm_gather_all(&grid, GROUP_TENSOR, &grid.world_rank, sizeof(int), ranks);
        for (int r = 0; r < tp; r++) ck_assert_int_eq(ranks[r], grid.data_rank * tp + r);
        comm_gather_all(&grid, GROUP_DATA, &grid.world_rank, sizeof(int), ranks);
        for (int r = 0; r < dp; r++) ck_assert_int_eq(ranks[r], r * tp + grid.tensor_rank);
    }
    ck_assert_int_eq(grid_wait_surplus(&grid, 0), 0);
    comm_stop(&grid);
}
END_TEST

START_TEST(a_grid_that_does_not_fit_is_refused) {
    ck_assert_int_eq(comm_start(&grid), 0);
    const int bad[][2] = {{grid.world_size + 1, 1}, {0, 1}, {1, -1}, {1, grid.world_size + 1}};
    for (int i = 0; i < 4; i++) {
        error_clear();
        ck_assert_int_eq(grid_open(&grid, bad[i][0], bad[i][1]), WEFT_USAGE);
        ck_assert(error_is_agreed());
        char expected[32];
        snprintf(expected, sizeof expected, "tp %d x dp %d", bad[i][0], bad[i][1]);
        ck_assert_ptr_nonnull(strstr(error_message(), expected));
    }
    comm_stop(&grid);
}
END_TEST

static double processor_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* tp 2 x dp 1 leaves the rest over; they sleep, and hear how it ended. */
START_TEST(surplus_ranks_sleep_and_hear_the_status) {
    ck_assert_int_eq(comm_start(&grid), 0);
    if (grid.world_size > 2) {
        ck_assert_int_eq(grid_open(&grid, 2, 1), 0);
        ck_assert_int_eq(grid.surplus, grid.world_rank >= 2);
        int status = 0;
        if (!grid.surplus) {
            clock_sleep(0.3);
            status = comm_agree(&grid, GROUP_GRID,
                                grid.tensor_rank == 1 ? error_set(WEFT_INPUT, "no text") : 0);
        }
        double used = processor_seconds(), waited = clock_seconds();
        ck_assert_int_eq(grid_wait_surplus(&grid, status), WEFT_INPUT);
        used = processor_seconds() - used;
        waited = clock_seconds() - waited;
        if (grid.surplus) {
            ck_assert_int_eq(group_rank(&grid, GROUP_GRID), -1);
            ck_assert_double_lt(used, 0.3 * waited);
        } else {
            ck_assert_str_eq(error_message(), "rank 1: no text");
        }
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(the_serial_grid_needs_no_mpi) {
    Grid serial;
    grid_serial(&serial);
    Hash128 hash = {1, 2};
    int64_t number = 7, word = 9;
    real value = -3;
    int all = 0, from = 5, to = 0;
    Piece piece = {0, 0, &from, &to, sizeof from};
    comm_barrier(&serial, GROUP_WORLD);
    comm_broadcast(&serial, GROUP_WORLD, &number, sizeof number, 0);
    comm_assemble(&serial, GROUP_GRID, &word, 1);
    comm_max_real(&serial, GROUP_TENSOR, &value, 1);
    comm_max_int64(&serial, GROUP_DATA, &number, 1);
    comm_sum_hash(&serial, GROUP_GRID, &hash);
    comm_gather_all(&serial, GROUP_GRID, &from, sizeof from, &all);
    comm_move(&serial, GROUP_GRID, &piece, 1);
    ck_assert_int_eq(comm_same_text(&serial, GROUP_GRID, "build", "x"), 0);
    ck_assert(number == 7 && word == 9 && value == -3 && all == 5 && to == 5);
    ck_assert(hash.high == 1 && hash.low == 2);
    ck_assert_int_eq(comm_agree(&serial, GROUP_WORLD, error_set(WEFT_INPUT, "gone")), WEFT_INPUT);
    ck_assert_str_eq(error_message(), "gone");
    ck_assert(error_is_agreed());
    ck_assert_int_eq(grid_open(&serial, 1, 1), 0);
    ck_assert_int_eq(grid_open(&serial, 2, 1), WEFT_USAGE);
    ck_assert_int_eq(grid_wait_surplus(&serial, 0), 0);
    ck_assert_int_eq(serial.counters.collectives, 0);
    comm_stop(&serial);
}
END_TEST

/* --- agreement --- */

START_TEST(agree_is_silent_when_all_is_well) {
    start();
    error_clear();
    comm_counters_reset(&grid);
    ck_assert_int_eq(comm_agree(&grid, GROUP_TENSOR, 0), 0);
    ck_assert_int_eq(grid.counters.collectives, grid.tp > 1);
    ck_assert_str_eq(error_message(), "");
    ck_assert(!error_is_agreed());
    comm_stop(&grid);
}
END_TEST

START_TEST(agree_names_the_one_that_failed) {
    start();
    for (int culprit = 0; culprit < grid.tp && grid.tp > 1; culprit++) {
        error_clear();
        int status = 0;
        if (grid.tensor_rank == culprit) status = error_set(WEFT_INPUT, "file %d is gone", culprit);
        ck_assert_int_eq(comm_agree(&grid, GROUP_TENSOR, status), WEFT_INPUT);
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d: file %d is gone", culprit, culprit);
        ck_assert_str_eq(error_message(), expected);
        ck_assert(error_is_agreed());
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(agree_takes_the_lowest_of_several) {
    start();
    if (grid.tp > 2) {
        int rank = grid.tensor_rank;
        int status = rank ? error_set(rank == 1 ? WEFT_CHECK : WEFT_RUNTIME, "%d failed", rank) : 0;
        ck_assert_int_eq(comm_agree(&grid, GROUP_TENSOR, status), WEFT_CHECK);
        ck_assert_str_eq(error_message(), "rank 1: 1 failed");
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(agree_names_no_rank_when_all_failed) {
    start();
    int status = error_set(WEFT_USAGE, "unknown key, seen by %d", grid.tensor_rank);
    ck_assert_int_eq(comm_agree(&grid, GROUP_TENSOR, status), WEFT_USAGE);
    ck_assert_str_eq(error_message(), "unknown key, seen by 0");
    ck_assert(error_is_agreed());
    comm_stop(&grid);
}
END_TEST

/* First the tensor group agrees, then the grid: the rank is that of the world and stands there
 * once. */
START_TEST(agree_twice_names_the_rank_once) {
    ck_assert_int_eq(comm_start(&grid), 0);
    if (grid.world_size >= 4) {
        ck_assert_int_eq(grid_open(&grid, 2, 2), 0);
        if (!grid.surplus) {
            int status = grid.world_rank == 3 ? error_set(WEFT_INPUT, "bad") : 0;
            status = comm_agree(&grid, GROUP_TENSOR, status);
            ck_assert_int_eq(status, grid.data_rank == 1 ? WEFT_INPUT : 0);
            ck_assert_int_eq(comm_agree(&grid, GROUP_GRID, status), WEFT_INPUT);
            ck_assert_str_eq(error_message(), "rank 3: bad");
        }
        grid_wait_surplus(&grid, 0);
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(agree_cuts_long_messages) {
    start();
    static char text[1900];
    memset(text, 'x', sizeof text - 1);
    int status = grid.tensor_rank == grid.tp - 1 ? error_set(WEFT_RUNTIME, "%s", text) : 0;
    ck_assert_int_eq(comm_agree(&grid, GROUP_TENSOR, status), WEFT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(error_message(), text));
    comm_stop(&grid);
}
END_TEST

/* --- texts --- */

START_TEST(same_text_passes_and_names_what_differs) {
    start();
    ck_assert_int_eq(comm_same_text(&grid, GROUP_TENSOR, "the build", "a\nb"), 0);
    ck_assert_int_eq(comm_same_text(&grid, GROUP_TENSOR, "the build", ""), 0);
    int last = grid.tp - 1;
    for (int culprit = 1; culprit <= last; culprit++) {
        const char *mine = grid.tensor_rank == culprit ? "same\nZen 4\n" : "same\nZen 3\n";
        ck_assert_int_eq(comm_same_text(&grid, GROUP_TENSOR, "the core", mine), WEFT_RUNTIME);
        char expected[128];
        snprintf(expected, sizeof expected,
                 "rank %d: the core differs: \"Zen 4\" here, \"Zen 3\" on the first rank;",
                 culprit);
        ck_assert_ptr_eq(strstr(error_message(), expected), error_message());
        ck_assert(error_is_agreed());
    }
    if (last > 0) { /* a text that only begins like the first */
        const char *mine = grid.tensor_rank == last ? "ab" : "abc";
        ck_assert_int_eq(comm_same_text(&grid, GROUP_TENSOR, "x", mine), WEFT_RUNTIME);
        ck_assert_ptr_nonnull(strstr(error_message(), "\"ab\" here, \"abc\" on"));
    }
    comm_stop(&grid);
}
END_TEST

/* --- collectives --- */

START_TEST(broadcast_reaches_all_from_any_root) {
    start();
    for (int root = 0; root < grid.tp; root++) {
        char text[32] = "", expected[32];
        snprintf(expected, sizeof expected, "from %d", root);
        if (grid.tensor_rank == root) memcpy(text, expected, sizeof text);
        comm_broadcast(&grid, GROUP_TENSOR, text, sizeof text, root);
        ck_assert_str_eq(text, expected);
    }
    comm_stop(&grid);
}
END_TEST

START_TEST(assemble_keeps_any_bits) {
    start();
    enum { N = 1001 };
    static uint64_t words[N];
    for (int i = 0; i < N; i++)
        words[i] =
            i % grid.tp == grid.tensor_rank ? 0x8000000000000000u | (uint64_t)i * 0x9e3779b9u : 0;
    comm_assemble(&grid, GROUP_TENSOR, words, N);
    for (int i = 0; i < N; i++)
        ck_assert(words[i] == (0x8000000000000000u | (uint64_t)i * 0x9e3779b9u));
    comm_stop(&grid);
}
END_TEST

START_TEST(max_is_exact_and_independent_of_order) {
    start();
    int rank = grid.tensor_rank, last = grid.tp - 1;
    for (int odd = 0; odd < grid.tp; odd++) {
        bool me = rank == odd;
        real values[] = {me ? (real)0.0 : (real)-0.0,
                         me ? (real)-2 : (real)-3,
                         me ? (real)NAN : (real)INFINITY,
                         me ? -(real)NAN : (real)1,
                         (real)-INFINITY,
                         (real)rank,
                         me ? (real)1.5 : (real)-INFINITY};
        comm_max_real(&grid, GROUP_TENSOR, values, 7);
        ck_assert(values[0] == 0 && !signbit(values[0]));
        ck_assert(values[1] == -2 && isnan(values[2]) && isnan(values[3]));
        ck_assert(values[4] == (real)-INFINITY && values[5] == last && values[6] == (real)1.5);
    }
    int64_t numbers[2] = {-5 - rank, INT64_MAX - rank};
    comm_max_int64(&grid, GROUP_TENSOR, numbers, 2);
    ck_assert(numbers[0] == -5 && numbers[1] == INT64_MAX);
    comm_stop(&grid);
}
END_TEST

START_TEST(hashes_add_up_with_carries) {
    start();
    Hash128 hash = {UINT64_MAX - 3, UINT64_MAX - (uint64_t)grid.tensor_rank}, expected = {0, 0};
    for (int r = 0; r < grid.tp; r++)
        expected = hash_add(expected, (Hash128){UINT64_MAX - 3, UINT64_MAX - (uint64_t)r});
    comm_sum_hash(&grid, GROUP_TENSOR, &hash);
    ck_assert(hash_equal(hash, expected));
    comm_stop(&grid);
}
END_TEST

/* More than go into one message. */
START_TEST(many_hashes_are_summed_at_once) {
    enum { COUNT = 700 };
    static Hash128 hash[COUNT], expected[COUNT];
    start();
    for (int i = 0; i < COUNT; i++) {
        expected[i] = (Hash128){0, 0};
        for (int r = 0; r < grid.tp; r++) {
            Hash128 of_rank = hash_bytes((int[]){i, r}, 2 * sizeof i);
            expected[i] = hash_add(expected[i], of_rank);
            if (r == grid.tensor_rank) hash[i] = of_rank;
        }
    }
    comm_counters_reset(&grid);
    comm_sum_hashes(&grid, GROUP_TENSOR, hash, COUNT);
    ck_assert_int_eq(grid.counters.collectives, grid.tp > 1 ? 3 : 0);
    for (int i = 0; i < COUNT; i++) ck_assert(hash_equal(hash[i], expected[i]));
    comm_stop(&grid);
}
END_TEST

START_TEST(gather_all_is_in_rank_order) {
    start();
    struct {
        int rank;
        char text[16];
    } mine = {grid.tensor_rank, ""}, all[64];
    snprintf(mine.text, sizeof mine.text, "r%d", grid.tensor_rank);
    comm_gather_all(&grid, GROUP_TENSOR, &mine, sizeof mine, all);
    for (int r = 0; r < grid.tp; r++) {
        char expected[16];
        snprintf(expected, sizeof expected, "r%d", r);
        ck_assert_int_eq(all[r].rank, r);
        ck_assert_str_eq(all[r].text, expected);
    }
    comm_stop(&grid);
}
END_TEST

/* Many pieces between all pairs, of sizes from 0 to beyond MPI's eager limit, more than are started
 * at once; every byte says which piece it belongs to. */
START_TEST(moved_pieces_arrive) {
    start();
    enum { PIECES = 400, LARGEST = 70000 };
    static const size_t size[] = {0, 1, 100, 5000, LARGEST};
    Piece *pieces = calloc(PIECES, sizeof *pieces);
    unsigned char *out = malloc((size_t)PIECES * LARGEST), *in = calloc(PIECES, LARGEST);
    ck_assert(pieces && out && in);
    for (int i = 0; i < PIECES; i++) {
        memset(out + (size_t)i * LARGEST, i % 251 + 1, LARGEST);
        pieces[i] = (Piece){i * 7 % grid.tp, (i * 5 + i / 9) % grid.tp, out + (size_t)i * LARGEST,
                            in + (size_t)i * LARGEST, size[i * 3 % 5]};
    }
    comm_move(&grid, GROUP_TENSOR, pieces, PIECES);
    for (int i = 0; i < PIECES; i++) {
        size_t arrived = pieces[i].target == grid.tensor_rank ? pieces[i].size : 0;
        const unsigned char *piece = in + (size_t)i * LARGEST;
        for (size_t k = 0; k < LARGEST; k++)
            if (piece[k] != (k < arrived ? i % 251 + 1 : 0))
                ck_abort_msg("piece %d, byte %zu is %d", i, k, piece[k]);
    }
    comm_move(&grid, GROUP_TENSOR, pieces, 0);
    free(in);
    free(out);
    free(pieces);
    comm_stop(&grid);
}
END_TEST

/* Who waits for the first rank's number sleeps. */
START_TEST(a_number_is_awaited_asleep) {
    start();
    int rank = group_rank(&grid, GROUP_GRID);
    int64_t number = rank == 0 ? INT64_MAX - 5 : rank;
    clock_t before = clock();
    if (rank == 0) clock_sleep(0.5);
    comm_await(&grid, GROUP_GRID, &number);
    double worked = (double)(clock() - before) / CLOCKS_PER_SEC;
    ck_assert(number == INT64_MAX - 5);
    ck_assert_msg(worked < 0.25, "%.3f s of work while waiting 0.5 s", worked);
    comm_stop(&grid);
}
END_TEST

/* Whole numbers: their sums are exact in any order. */
START_TEST(an_unordered_sum_adds_all) {
    start();
    const int64_t sizes[] = {100003, 64, 2, 1, 0};
    int ranks = grid.world_size, rank = group_rank(&grid, GROUP_GRID);
    Unordered *unordered;
    real *y = malloc(sizes[0] * sizeof *y);
    ck_assert_int_eq(unordered_open(&unordered, &grid, GROUP_TENSOR, sizes[0], 2), 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int64_t i = 0; i < sizes[k]; i++) y[i] = (real)((i % 1000) * (rank + 1));
        unordered_sum(unordered, y, sizes[k]);
        for (int64_t i = 0; i < sizes[k]; i++)
            ck_assert_msg(y[i] == (real)(i % 1000 * ranks * (ranks + 1) / 2), "[%d] of %d: %g",
                          (int)i, (int)sizes[k], (double)y[i]);
    }
    unordered_close(unordered);
    unordered_close(NULL);
    free(y);
    comm_stop(&grid);
}
END_TEST

int main(int argc, char **argv) {
    return run_mpi_suite(&argc, &argv, "comm",
                         TESTS(ranks_are_numbered_tensor_first, a_grid_that_does_not_fit_is_refused,
                               surplus_ranks_sleep_and_hear_the_status,
                               the_serial_grid_needs_no_mpi, agree_is_silent_when_all_is_well,
                               agree_names_the_one_that_failed, agree_takes_the_lowest_of_several,
                               agree_names_no_rank_when_all_failed, agree_twice_names_the_rank_once,
                               agree_cuts_long_messages, same_text_passes_and_names_what_differs,
                               broadcast_reaches_all_from_any_root, assemble_keeps_any_bits,
                               max_is_exact_and_independent_of_order, hashes_add_up_with_carries,
                               many_hashes_are_summed_at_once, gather_all_is_in_rank_order,
                               moved_pieces_arrive, a_number_is_awaited_asleep,
                               an_unordered_sum_adds_all));
}
