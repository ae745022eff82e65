#include "support/pairwise.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Which pairs have occurred: [factor][level][factor][level], both ways round. */
typedef bool Seen[PAIRWISE_FACTORS][PAIRWISE_LEVELS][PAIRWISE_FACTORS][PAIRWISE_LEVELS];

static void note(int factors, const int *row, Seen seen) {
    for (int f = 0; f < factors; f++)
        for (int g = 0; g < factors; g++) seen[f][row[f]][g][row[g]] = true;
}

/* The first pair that has not occurred, as the start of a row whose other levels are -1. */
static bool start_row(int factors, const int *levels, Seen seen, int *row) {
    for (int f = 0; f < factors; f++) row[f] = -1;
    for (int f = 0; f < factors; f++)
        for (int g = f + 1; g < factors; g++)
            for (int i = 0; i < levels[f] * levels[g]; i++) {
                int a = i % levels[f], b = i / levels[f];
                if (seen[f][a][g][b]) continue;
                row[f] = a;
                row[g] = b;
                return true;
            }
    return false;
}

/* The level of factor f that makes most new pairs with what the row has. */
static int best_level(int factors, int level_count, int f, Seen seen, const int *row) {
    int best = 0, most = -1;
    for (int level = 0; level < level_count; level++) {
        int fresh = 0;
        for (int g = 0; g < factors; g++) fresh += row[g] >= 0 && !seen[f][level][g][row[g]];
        if (fresh <= most) continue;
        most = fresh;
        best = level;
    }
    return best;
}

Pairwise pairwise_table(int factors, const int *levels) {
    static Seen seen;
    Pairwise table = {0};
    memset(seen, 0, sizeof seen);
    while (table.count < PAIRWISE_ROWS) {
        int *row = table.row[table.count];
        if (!start_row(factors, levels, seen, row)) return table;
        for (int f = 0; f < factors; f++)
            if (row[f] < 0) row[f] = best_level(factors, levels[f], f, seen, row);
        note(factors, row, seen);
        table.count++;
    }
    abort(); /* PAIRWISE_ROWS is too small */
}

int pairwise_missing(const Pairwise *table, int factors, const int *levels) {
    int missing = 0;
    for (int f = 0; f < factors; f++)
        for (int g = f + 1; g < factors; g++)
            for (int i = 0; i < levels[f] * levels[g]; i++) {
                bool found = false;
                for (int r = 0; r < table->count; r++)
                    found |= table->row[r][f] == i % levels[f] && table->row[r][g] == i / levels[f];
                missing += !found;
            }
    return missing;
}
