/* The learning rate as a function of the step alone. */
#ifndef WEFT_OPTIM_SCHEDULE_H
#define WEFT_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double lr, min_lr;
    int64_t warmup, steps;
    bool cosine; /* else constant after the warm-up */
} Schedule;

/* Step counts from 0. Linear warm-up: lr * (step + 1) / warmup; then constant, or cosine from lr to
 * min_lr, which it would reach one step after the last (Loshchilov and Hutter 2017, eq. 5, one
 * cycle). */
double schedule_rate(const Schedule *schedule, int64_t step);

#endif
