/* Slopes by central differences: right where the claim is, wrong where it isn't, unsure where
 * nothing can be told; kinks near and far don't pass for either. */
#include "math/slope.h"
#include "support/support.h"

#include <math.h>

/* exp(x) + jump * max(x - kink, 0), counted. */
typedef struct {
    double kink, jump, noise;
    int evaluations, fails_at;
} Function;

static double function(const Function *f, double x) {
    return exp(x) + (x > f->kink ? f->jump * (x - f->kink) : 0);
}

static int evaluate(void *context, double x, double *value) {
    Function *f = context;
    if (++f->evaluations == f->fails_at) return -4;
    *value = function(f, x) + (f->evaluations % 3 - 1) * f->noise;
    return 0;
}

static SlopeAnswer ask(Function *f, double at, double claim) {
    SlopeAnswer answer;
    SlopeQuestion question = {evaluate, f, at, function(f, at), 1, claim, 1, 1e-6};
    ck_assert_int_eq(slope_check(&question, &answer), 0);
    return answer;
}

START_TEST(smooth) {
    Function f = {.kink = 100};
    SlopeAnswer answer = ask(&f, 0.5, exp(0.5));
    ck_assert_int_eq(answer.verdict, SLOPE_RIGHT);
    ck_assert_int_eq(f.evaluations, 6);
    ck_assert_double_lt(answer.error, 1e-10);
    ck_assert_double_eq_tol(answer.slope, exp(0.5), 1e-9);
}
END_TEST

START_TEST(wrong_claims) {
    for (double error = 3e-6; error < 1e3; error *= 10) {
        Function f = {.kink = 100};
        SlopeAnswer answer = ask(&f, 0.5, exp(0.5) * (1 + error));
        ck_assert_int_eq(answer.verdict, SLOPE_WRONG);
        ck_assert_double_eq_tol(answer.error, error, 1e-3 * error);
        ck_assert_int_eq(f.evaluations, 16);
    }
}
END_TEST

/* On either side the derivative is that of the side. */
START_TEST(kinks_at_any_distance) {
    for (double distance = 1e-1; distance > 3e-7; distance /= 1.7)
        for (double jump = 1e-7; jump < 1e2; jump *= 4) {
            Function right = {.kink = distance, .jump = jump}, left = {-distance, jump, 0, 0, 0};
            ck_assert_int_ne(ask(&right, 0, 1).verdict, SLOPE_WRONG);
            ck_assert_int_ne(ask(&left, 0, 1 + jump).verdict, SLOPE_WRONG);
        }
    Function far = {.kink = 1e-4, .jump = 1};
    ck_assert_int_eq(ask(&far, 0, 1).verdict, SLOPE_RIGHT);
    ck_assert_int_eq(ask(&far, 0, 1.5).verdict, SLOPE_WRONG);
    ck_assert_int_eq(ask(&far, 0, 2).verdict, SLOPE_WRONG);
}
END_TEST

START_TEST(nothing_to_tell) {
    Function on = {.kink = 0, .jump = 1}, noisy = {.kink = 100, .noise = 1e-3};
    ck_assert_int_eq(ask(&on, 0, 1).verdict, SLOPE_UNSURE); /* no derivative */
    ck_assert_int_eq(ask(&noisy, 0.5, exp(0.5)).verdict, SLOPE_UNSURE);
}
END_TEST

START_TEST(failures_are_passed_on) {
    Function f = {.kink = 100, .fails_at = 3};
    SlopeAnswer answer;
    SlopeQuestion question = {evaluate, &f, 0, 1, 1, 1, 1, 1e-6};
    ck_assert_int_eq(slope_check(&question, &answer), -4);
}
END_TEST

int main(void) {
    return run_suite("slope", TESTS(smooth, wrong_claims, kinks_at_any_distance, nothing_to_tell,
                                    failures_are_passed_on));
}
