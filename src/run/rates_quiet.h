/* What repetitions of a measurement say where other programs run too: those make some of them
 * longer, and none shorter. Figures are a low quantile, or the less of two. Pure. */
#ifndef WEFT_RUN_RATES_QUIET_H
#define WEFT_RUN_RATES_QUIET_H

#include "run/rates.h"

/* What a tenth of the values are below; of fewer than ten the least. Sorts them. */
double rates_tenth(double *value, int count);

/* By how much the third quarter of ascending values is above the first, as a part of that. */
double rates_spread(const double *ascending, int count);

/* *kept becomes the round that took less, its spread with it. Rounds of one pass each have none by
 * themselves: there it is that of the two. */
void rates_keep_share(ShareRates *kept, const ShareRates *round);

/* Each of the rates becomes the less of the two: they are measured one after another. */
void rates_keep_memory(MemoryRates *kept, const MemoryRates *round);

#endif
