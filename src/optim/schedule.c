#include "optim/schedule.h"

#include <math.h>

double schedule_rate(const Schedule *schedule, int64_t step) {
    if (step < schedule->warmup)
        return schedule->lr * (double)(step + 1) / (double)schedule->warmup;
    if (!schedule->cosine) return schedule->lr;
    int64_t span = schedule->steps - schedule->warmup;
    double part = span > 0 ? (double)(step - schedule->warmup) / (double)span : 1;
    if (part > 1) part = 1;
    return schedule->min_lr + 0.5 * (schedule->lr - schedule->min_lr) * (1 + cos(M_PI * part));
}
