/* The parameter set: initial values that depend on global coordinates alone, pieces that cover
 * every tensor once, memory that ranks don't share. */
#include "param/param.h"

#include "base/error.h"
#include "support/support.h"

#include <Random123/philox.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20260101, TENSORS = 4 };

/* 7 groups of 6 rows, 13 columns, a split vector and a replicated one: all uneven. */
static ParamSet open_set(int shards, int rank, int ranks, uint64_t seed) {
    ParamSet set;
    AxisLayout groups = axis_layout(7, shards, ranks), columns = axis_layout(13, shards, ranks);
    ParamSpec spec[TENSORS] = {
        {.name = "groups.weight",
         .rank = 2,
         .rows = 42,
         .cols = 10,
         .split = SPLIT_ROWS,
         .axis = &groups,
         .unit_size = 6,
         .init = INIT_NORMAL,
         .init_std = 0.5,
         .init_key = 7,
         .layer = 3,
         .decay = true},
        {.name = "columns.weight",
         .rank = 2,
         .rows = 5,
         .cols = 13,
         .split = SPLIT_COLS,
         .axis = &columns,
         .unit_size = 1,
         .init = INIT_NORMAL,
         .init_std = 2,
         .init_key = 9,
         .layer = 3,
         .decay = true},
        {.name = "columns.bias",
         .rank = 1,
         .rows = 1,
         .cols = 13,
         .split = SPLIT_COLS,
         .axis = &columns,
         .unit_size = 1,
         .init = INIT_ZERO},
        {.name = "gain", .rank = 1, .rows = 1, .cols = 11, .init = INIT_ONE},
    };
    params_init(&set, rank, ranks);
    for (int i = 0; i < TENSORS; i++) {
        int index;
        ck_assert_msg(params_declare(&set, &spec[i], &index) == 0, "%s", error_message());
        ck_assert_int_eq(index, i);
    }
    ck_assert_int_eq(params_allocate(&set, true), 0);
    params_initialize(&set, seed, 2);
    return set;
}

/* What param.h and philox.h say of an element, from Random123 itself. */
static double expected_value(int tensor, int64_t row, int64_t col) {
    if (tensor >= 2) return tensor == 3;
    philox4x32_key_t key = {{SEED, 0}};
    philox4x32_ctr_t counter = {
        {(uint32_t)(col / 4), (uint32_t)row, tensor ? 9 : 7, (1u << 26) + (3u << 16)}};
    philox4x32_ctr_t word = philox4x32_R(10, counter, key);
    int pair = col % 4 / 2 * 2;
    double radius = sqrt(-2 * log((word.v[pair] + 0.5) / 4294967296.0));
    double angle = 8 * atan(1) * ((word.v[pair + 1] + 0.5) / 4294967296.0);
    return (tensor ? 2 : 0.5) * radius * (col % 2 ? sin(angle) : cos(angle));
}

/* Checks all shards of a rank; counts each element it holds. */
static void check_values(const ParamSet *set, int *held[TENSORS]) {
    double tolerance = sizeof(real) == 8 ? 1e-13 : 5e-7;
    for (int p = 0; p < TENSORS; p++) {
        const Param *param = &set->param[p];
        for (int s = (int)param->owned.begin; s < param->owned.end; s++) {
            Tensor shard = param_shard(set, param, PARAM_VALUE, s);
            for (int64_t i = 0; i < shard.rows; i++)
                for (int64_t j = 0; j < shard.cols; j++) {
                    int64_t row = param_first_row(param, s) + i,
                            col = param_first_col(param, s) + j;
                    double value = (double)tensor_row(shard, i)[j];
                    double expected = expected_value(p, row, col);
                    ck_assert_msg(fabs(value - expected) <= tolerance, "%s[%d, %d]: %.9g, not %.9g",
                                  param->name, (int)row, (int)col, value, expected);
                    held[p][row * param->cols + col]++;
                }
        }
    }
}

START_TEST(initial_values_depend_on_global_coordinates_alone) {
    for (int shards = 1; shards <= 9; shards++)
        for (int ranks = 1; ranks <= shards && ranks <= 5; ranks++) {
            int *held[TENSORS];
            for (int p = 0; p < TENSORS; p++) held[p] = calloc(42 * 13, sizeof(int));
            for (int rank = 0; rank < ranks; rank++) {
                ParamSet set = open_set(shards, rank, ranks, SEED);
                check_values(&set, held);
                ck_assert_int_eq(params_count(&set), 42 * 10 + 5 * 13 + 13 + 11);
                params_release(&set);
            }
            static const int64_t size[TENSORS] = {420, 65, 13, 11};
            for (int p = 0; p < TENSORS; p++) {
                for (int64_t i = 0; i < size[p]; i++)
                    ck_assert_int_eq(held[p][i], p == 3 ? ranks : 1);
                free(held[p]);
            }
        }
}
END_TEST

START_TEST(another_seed_gives_other_values) {
    ParamSet one = open_set(3, 0, 1, SEED), other = open_set(3, 0, 1, SEED + 1);
    int64_t equal = 0;
    for (int s = 0; s < 3; s++) {
        Tensor a = param_shard(&one, &one.param[0], PARAM_VALUE, s);
        Tensor b = param_shard(&other, &other.param[0], PARAM_VALUE, s);
        for (int64_t i = 0; i < a.rows * a.cols; i++) equal += a.data[i] == b.data[i];
    }
    ck_assert_int_eq(equal, 0);
    params_release(&one);
    params_release(&other);
}
END_TEST

/* ---- pieces ---- */

START_TEST(pieces_cover_every_tensor_once) {
    for (int shards = 1; shards <= 9; shards++)
        for (int pieces = 1; pieces <= 14; pieces++) {
            ParamSet set = open_set(shards, 0, 1, SEED);
            for (int p = 0; p < TENSORS; p++) {
                const Param *param = &set.param[p];
                int *held = calloc((size_t)(param->rows * param->cols), sizeof *held);
                ck_assert_ptr_nonnull(held);
                for (int s = 0; s < param->shards; s++)
                    for (int d = 0; d < pieces; d++) {
                        ParamPiece piece = param_piece(param, s, pieces, d);
                        for (int64_t i = 0; i < piece.rows; i++)
                            for (int64_t j = 0; j < piece.cols; j++)
                                held[(piece.row + i) * param->cols + piece.col + j]++;
                    }
                for (int64_t i = 0; i < param->rows * param->cols; i++)
                    ck_assert_msg(held[i] == 1, "%s: %d shards, %d pieces: element %d in %d",
                                  param->name, shards, pieces, (int)i, held[i]);
                free(held);
            }
            params_release(&set);
        }
}
END_TEST

/* A piece's view holds the elements that its global position names. */
START_TEST(views_of_pieces_hold_their_elements) {
    enum { SHARDS = 4, PIECES = 3 };
    ParamSet set = open_set(SHARDS, 0, 1, SEED);
    for (int p = 0; p < 2; p++)
        for (int s = 0; s < SHARDS; s++)
            for (int d = 0; d < PIECES; d++) {
                ParamPiece piece = param_piece(&set.param[p], s, PIECES, d);
                Tensor view = param_piece_view(&set, &set.param[p], PARAM_VALUE, s, piece);
                ck_assert(view.rows == piece.rows && view.cols == piece.cols);
                for (int64_t i = 0; i < piece.rows; i++)
                    for (int64_t j = 0; j < piece.cols; j++)
                        ck_assert_double_eq_tol((double)tensor_row(view, i)[j],
                                                expected_value(p, piece.row + i, piece.col + j),
                                                1e-6);
            }
    params_release(&set);
}
END_TEST

/* ---- memory and names ---- */

START_TEST(shards_and_roles_do_not_overlap) {
    ParamSet set = open_set(5, 1, 2, SEED);
    real mark = 1;
    ck_assert_uint_eq(params_bytes(&set, PARAM_ROLES),
                      (size_t)set.elements * sizeof(real) * PARAM_ROLES);
    for (int pass = 0; pass < 2; pass++) {
        mark = 1;
        for (int role = 0; role < PARAM_ROLES; role++)
            for (int p = 0; p < TENSORS; p++)
                for (int s = (int)set.param[p].owned.begin; s < set.param[p].owned.end; s++) {
                    Tensor shard = param_shard(&set, &set.param[p], (ParamRole)role, s);
                    ck_assert_uint_eq((uintptr_t)shard.data % MEMORY_ALIGN, 0);
                    for (int64_t i = 0; i < shard.rows * shard.cols; i++, mark++) {
                        if (pass == 0)
                            shard.data[i] = mark;
                        else
                            ck_assert(shard.data[i] == mark);
                    }
                }
    }
    params_release(&set);
}
END_TEST

START_TEST(names_are_unique_and_not_too_long) {
    ParamSet set = open_set(2, 0, 1, SEED);
    int index;
    char name[PARAM_NAME + 1];
    memset(name, 'x', PARAM_NAME);
    name[PARAM_NAME] = 0;
    ParamSpec spec = {.name = "gain", .rank = 1, .rows = 1, .cols = 3};
    ck_assert_int_eq(params_declare(&set, &spec, &index), WEFT_USAGE);
    ck_assert_ptr_nonnull(strstr(error_message(), "gain"));
    spec.name = name;
    ck_assert_int_eq(params_declare(&set, &spec, &index), WEFT_USAGE);
    ck_assert_int_eq(params_find(&set, "columns.bias"), 2);
    ck_assert_int_eq(params_find(&set, "bias"), -1);
    params_release(&set);
}
END_TEST

int main(void) {
    return run_suite("param",
                     TESTS(initial_values_depend_on_global_coordinates_alone,
                           another_seed_gives_other_values, pieces_cover_every_tensor_once,
                           views_of_pieces_hold_their_elements, shards_and_roles_do_not_overlap,
                           names_are_unique_and_not_too_long));
}
