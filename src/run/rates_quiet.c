#include "run/rates_quiet.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rates_tenth(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, compare);
    return value[count / 10];
}

double rates_spread(const double *ascending, int count) {
    return ascending[3 * count / 4] / ascending[count / 4] - 1;
}

static double total(const ShareRates *share) {
    double sum = share->zero + share->add + share->norm + share->update;
    for (int i = 0; i < STEP_PARTS; i++) sum += share->part[i];
    return sum;
}

void rates_keep_share(ShareRates *kept, const ShareRates *round) {
    double before = total(kept), now = total(round);
    if (now < before) *kept = *round;
    if (kept->passes == 1) kept->spread = fmax(before, now) / fmin(before, now) - 1;
}

void rates_keep_memory(MemoryRates *kept, const MemoryRates *round) {
    for (int size = 0; size < 2; size++) {
        kept->add[size] = fmin(kept->add[size], round->add[size]);
        kept->copy[size] = fmin(kept->copy[size], round->copy[size]);
    }
    kept->meet = fmin(kept->meet, round->meet);
}
