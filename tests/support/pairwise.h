/* Tables of test cases in which every pair of levels of any two factors occurs at least once: far
 * fewer than all combinations. */
#ifndef WEFT_TESTS_PAIRWISE_H
#define WEFT_TESTS_PAIRWISE_H

enum { PAIRWISE_FACTORS = 12, PAIRWISE_LEVELS = 8, PAIRWISE_ROWS = 100 };

typedef struct {
    int count, row[PAIRWISE_ROWS][PAIRWISE_FACTORS]; /* the level of each factor, from 0 */
} Pairwise;

/* Factor f has levels[f] levels. Always the same table for the same question. */
Pairwise pairwise_table(int factors, const int *levels);

/* How many pairs of levels the table lacks. */
int pairwise_missing(const Pairwise *table, int factors, const int *levels);

#endif
