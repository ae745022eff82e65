#include "math/slope.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

enum { STEPS = 8 };
#define ROUNDING   2      /* of two values, in units of their last place, about */
#define FIRST_STEP 0x1p-8 /* of the scale; the last is 2^-22 */

/* Slopes with one step: across the point, and by how much its two sides differ. */
static int difference(const SlopeQuestion *question, double step, double *slope, double *bend) {
    double ahead = question->at + step, behind = question->at - step, above, below;
    int status = question->evaluate(question->context, ahead, &above);
    if (!status) status = question->evaluate(question->context, behind, &below);
    if (status) return status;
    *slope = (above - below) / (ahead - behind);
    *bend = fabs(above - question->value - (question->value - below)) / step;
    return 0;
}

int slope_check(const SlopeQuestion *question, SlopeAnswer *answer) {
    double step = FIRST_STEP * question->scale, coarse = 0, before = 0;
    double rounding = ROUNDING * DBL_EPSILON * fabs(question->value);
    *answer = (SlopeAnswer){.verdict = SLOPE_UNSURE};
    for (int k = 0; k < STEPS; k++, step /= 4) {
        double fine, bend;
        int status = difference(question, step, &fine, &bend);
        if (status) return status;
        double estimate = (16 * fine - coarse) / 15;
        double size = fmax(question->size, fabs(estimate));
        double error = fabs(estimate - question->claim) / size;
        double close = question->bound / 4 * size;
        bool believed = k >= 2 && fabs(estimate - before) <= close && rounding / step <= close;
        if (believed && error <= question->bound) {
            *answer = (SlopeAnswer){SLOPE_RIGHT, estimate, error};
            return 0;
        }
        if (believed && error * size > bend) *answer = (SlopeAnswer){SLOPE_WRONG, estimate, error};
        coarse = fine;
        before = estimate;
    }
    return 0;
}
