/* The slope of a function of one variable by central differences, held against a derivative that is
 * claimed. For functions that are smooth but for kinks (relu, clamps), in double.
 *
 * Steps get smaller by 4, and two neighbours make an estimate without the error of second order
 * (Richardson): E_k = (16 D_k - D_(k-1)) / 15. Two estimates that agree are believed (as in Ridders
 * 1982): between kinks they do from some step on, and a kink within reach mostly makes them differ.
 * One that is very near to the point doesn't: so what is believed but isn't the claim is tried
 * again with smaller steps, and counts only if the slopes of the two sides, which a kink tells
 * apart, differ by less than the error. Nothing else depends on the claim; one that is wrong stays
 * wrong. Steps so small that rounding decides are not believed. */
#ifndef WEFT_MATH_SLOPE_H
#define WEFT_MATH_SLOPE_H

typedef struct {
    /* *f = the function at x. 0 or a negative code, which ends the search. */
    int (*evaluate)(void *context, double x, double *f);
    void *context;
    double at;    /* the point */
    double value; /* the function there */
    double scale; /* how far x must move for the function to become another, roughly */
    double claim; /* the derivative there */
    double size;  /* errors are relative to this, or to the estimate if that is larger; > 0 */
    double bound; /* on the relative error; estimates agree within a quarter of it */
} SlopeQuestion;

typedef enum {
    SLOPE_RIGHT,
    SLOPE_WRONG,
    SLOPE_UNSURE, /* no two estimates agree: kinks at every distance, or nothing but rounding */
} SlopeVerdict;

typedef struct {
    SlopeVerdict verdict;
    double slope, error; /* the last estimate that was believed; 0 when unsure */
} SlopeAnswer;

/* 6 to 16 evaluations, none of them at the point itself. 0 or what evaluate returned. */
int slope_check(const SlopeQuestion *question, SlopeAnswer *answer);

#endif
