/* Random numbers: the generator's published answers, and that a number is a function of where. */
#include "tensor/philox.h"

#include "support/support.h"

#include <Random123/philox.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random123, tests/kat_vectors, philox4x32 with 10 rounds: counter, key, answer. */
START_TEST(published_answers) {
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } row[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        const uint32_t *c = row[i].counter;
        PhiloxStream stream = {(uint64_t)row[i].key[1] << 32 | row[i].key[0],
                               (PhiloxPurpose)(c[3] >> 26), c[3] >> 16 & 1023, c[2], c[3] & 65535};
        uint32_t word[4];
        philox_block(&stream, c[1], c[0], word);
        for (int j = 0; j < 4; j++) ck_assert_uint_eq(word[j], row[i].answer[j]);
    }
}
END_TEST

static const PhiloxStream somewhere = {0x0123456789abcdef, PHILOX_OUTPUT_DROPOUT, 777, 123456,
                                       4321};

/* The counter that philox.h documents, written down once more. */
START_TEST(counter_is_laid_out_as_documented) {
    philox4x32_key_t key = {{0x89abcdef, 0x01234567}};
    philox4x32_ctr_t counter = {{99, 55, 123456, (3u << 26) + (777u << 16) + 4321}};
    philox4x32_ctr_t expected = philox4x32_R(10, counter, key);
    uint32_t word[4];
    philox_block(&somewhere, 55, 99, word);
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(word[i], expected.v[i]);
}
END_TEST

/* No two coordinates share a number: each of them reaches the counter. */
START_TEST(every_coordinate_counts) {
    PhiloxStream stream[8];
    uint32_t first[8];
    for (int i = 0; i < 8; i++) stream[i] = somewhere;
    stream[1].seed ^= 1;
    stream[2].seed ^= UINT64_C(1) << 32;
    stream[3].purpose = PHILOX_HIDDEN_DROPOUT;
    stream[4].layer++;
    stream[5].step++;
    stream[6].microbatch++;
    for (int i = 0; i < 8; i++) {
        uint32_t word[4];
        philox_block(&stream[i], i == 7 ? 1 : 0, 0, word);
        first[i] = word[0];
        for (int j = 0; j < i; j++) ck_assert_uint_ne(first[i], first[j]);
    }
}
END_TEST

START_TEST(ranges_start_and_end_anywhere) {
    enum { WIDTH = 150 }; /* blocks are made one by one, and 16 at a time */
    uint32_t word[WIDTH], all[WIDTH];
    double normal[WIDTH], all_normals[WIDTH];
    philox_words(&somewhere, 3, (Range){0, WIDTH}, all);
    philox_normals(&somewhere, 3, (Range){0, WIDTH}, all_normals);
    for (int begin = 0; begin <= WIDTH; begin++)
        for (int end = begin; end <= WIDTH; end++) {
            memset(word, 0, sizeof word);
            philox_words(&somewhere, 3, (Range){begin, end}, word);
            philox_normals(&somewhere, 3, (Range){begin, end}, normal);
            size_t count = (size_t)(end - begin);
            ck_assert(!memcmp(word, all + begin, count * sizeof *word));
            ck_assert(!memcmp(normal, all_normals + begin, count * sizeof *normal));
            if (end < WIDTH) ck_assert_uint_eq(word[end - begin], 0);
        }
    for (int i = 0; i < WIDTH; i++) {
        philox_block(&somewhere, 3, (uint32_t)i / 4, word);
        ck_assert_uint_eq(all[i], word[i % 4]);
    }
}
END_TEST

/* Box and Muller's pair from a block's words 0 and 1, 2 and 3. */
START_TEST(normals_by_their_formula) {
    uint32_t word[4];
    double normal[4];
    philox_block(&somewhere, 9, 2, word);
    philox_normals(&somewhere, 9, (Range){8, 12}, normal);
    for (int i = 0; i < 4; i += 2) {
        double u = (word[i] + 0.5) / 4294967296.0, v = (word[i + 1] + 0.5) / 4294967296.0;
        ck_assert_double_eq_tol(normal[i], sqrt(-2 * log(u)) * cos(8 * atan(1) * v), 1e-14);
        ck_assert_double_eq_tol(normal[i + 1], sqrt(-2 * log(u)) * sin(8 * atan(1) * v), 1e-14);
    }
}
END_TEST

START_TEST(normals_are_standard) {
    enum { ROWS = 200, WIDTH = 1000 };
    static double normal[WIDTH];
    double moment[5] = {0};
    for (int row = 0; row < ROWS; row++) {
        philox_normals(&somewhere, (uint32_t)row, (Range){0, WIDTH}, normal);
        for (int i = 0; i < WIDTH; i++)
            for (int k = 1; k <= 4; k++) moment[k] += pow(normal[i], k) / (ROWS * WIDTH);
    }
    double deviation = 1 / sqrt(ROWS * WIDTH); /* of the mean; all within 5 of their own */
    ck_assert_double_lt(fabs(moment[1]), 5 * deviation);
    ck_assert_double_lt(fabs(moment[2] - 1), 5 * sqrt(2) * deviation);
    ck_assert_double_lt(fabs(moment[3]), 5 * sqrt(15) * deviation);
    ck_assert_double_lt(fabs(moment[4] - 3), 5 * sqrt(96) * deviation);
}
END_TEST

int main(void) {
    return run_suite("philox", TESTS(published_answers, counter_is_laid_out_as_documented,
                                     every_coordinate_counts, ranges_start_and_end_anywhere,
                                     normals_by_their_formula, normals_are_standard));
}
