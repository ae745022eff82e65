/* The pointwise middle of an FFN: fused kernels against value, clamp and multiply one after
 * another; probes; gradients at the limits; bits; aliasing. */
#include "math/activation.h"
#include "support/arrays.h"
#include "support/naive.h"
#include "support/support.h"

#include <float.h>
#include <stdlib.h>

enum { LENGTH = 700, OUTPUTS = 8 };

/* With everything that changes the function, and with one thing at a time. */
static const Branches forms[] = {
    {.beta = 1},
    {.beta = 1, .gate_clamp = 2},
    {.beta = 1, .linear_clamp = 1.5},
    {.beta = 1, .linear_offset = -0.5},
    {.beta = 1, .gate_clamp = 2, .linear_clamp = 1.5, .linear_offset = 1},
    {.beta = 1.702, .gate_clamp = 2, .linear_clamp = 1.5, .linear_offset = 1}, /* silu alone */
};
enum { FORMS = sizeof forms / sizeof *forms };

typedef void (*OnBranches)(const Branches *branches);

static void on_branches(OnBranches body) {
    for (const Activation *activation = activations; activation->name; activation++)
        for (int f = 0; f < FORMS; f++) {
            Branches branches = forms[f];
            branches.activation = activation;
            if (branches.beta == 1 || activation->has_beta) body(&branches);
        }
}

/* gate, up and the gradient of the product, in ranges where every clamp cuts some. */
typedef struct {
    real gate[LENGTH], up[LENGTH], dh[LENGTH];
} Inputs;

static Inputs some_inputs(void) {
    Inputs in;
    array_fill(in.gate, LENGTH, 6, 1);
    array_fill(in.up, LENGTH, 3, 2);
    array_fill(in.dh, LENGTH, 2, 3);
    return in;
}

/* Everything that the kernels say of a piece. */
static void run_kernels(const Branches *branches, int64_t n, const real *g, const real *u,
                        const real *dh, real *const out[OUTPUTS]) {
    activation_gated(branches, n, g, u, out[0]);
    activation_gated_backward(branches, n, g, u, dh, out[1], out[2]);
    activation_dual(branches, n, g, u, out[3]);
    activation_dual_backward(branches, n, g, u, dh, out[4], out[5]);
    activation_plain(branches, n, g, out[6]);
    activation_plain_backward(branches, n, g, dh, out[7]);
}

/* The same, unfused: one element, each operation by itself and in the order of the formula. */
static void run_unfused(const Branches *b, real g, real u, real dh, real *const out[OUTPUTS]) {
    bool cut_g = b->gate_clamp > 0 && (double)g > b->gate_clamp;
    bool cut_u = b->linear_clamp > 0 && fabs((double)u) > b->linear_clamp;
    real clamped = cut_g ? (real)b->gate_clamp : g;
    real linear = cut_u ? (real)copysign(b->linear_clamp, (double)u) : u;
    real a, da, ag, dag, au, dau;
    b->activation->slope(1, &clamped, b->beta, &a, &da);
    b->activation->slope(1, &g, b->beta, &ag, &dag);
    b->activation->slope(1, &u, b->beta, &au, &dau);
    if (b->linear_offset != 0) linear = linear + (real)b->linear_offset;
    *out[0] = a * linear;
    *out[1] = cut_g ? 0 : dh * linear * da;
    *out[2] = cut_u ? 0 : dh * a;
    *out[3] = ag * au;
    *out[4] = dh * au * dag;
    *out[5] = dh * ag * dau;
    *out[6] = ag;
    *out[7] = dh * dag;
}

static void check_fused(const Branches *branches) {
    static real fused[OUTPUTS][LENGTH], unfused[OUTPUTS][LENGTH];
    const Inputs in = some_inputs();
    real *out[OUTPUTS];
    for (int k = 0; k < OUTPUTS; k++) out[k] = fused[k];
    run_kernels(branches, LENGTH, in.gate, in.up, in.dh, out);
    for (int i = 0; i < LENGTH; i++) {
        for (int k = 0; k < OUTPUTS; k++) out[k] = &unfused[k][i];
        run_unfused(branches, in.gate[i], in.up[i], in.dh[i], out);
    }
    /* Equal as numbers: 0 and -0 may take each other's place. */
    for (int k = 0; k < OUTPUTS; k++)
        for (int i = 0; i < LENGTH; i++)
            if (fused[k][i] != unfused[k][i])
                ck_abort_msg("%s, output %d [%d]: %g, unfused %g", branches->activation->name, k, i,
                             (double)fused[k][i], (double)unfused[k][i]);
}

START_TEST(fused_equals_unfused) { on_branches(check_fused); }
END_TEST

/* ---- probes ---- */

/* Against the oracle, with the policy: the formula in IEEE arithmetic, its products from the left;
 * an infinite preactivation gives its limit (a tail is 0, and 0 times infinity is NaN); NaN in any
 * factor gives NaN; a clamp cuts infinities but lets NaN through; the gradient of what was cut is
 * 0, whatever it would have been multiplied by. */
static void run_oracle(const Branches *b, real g, real u, real dh, real *const out[OUTPUTS]) {
    const char *name = b->activation->name;
    double beta = b->beta;
    bool cut_g = b->gate_clamp > 0 && (double)g > b->gate_clamp;
    bool cut_u = b->linear_clamp > 0 && fabs((double)u) > b->linear_clamp;
    double gate = cut_g ? b->gate_clamp : (double)g;
    real linear =
        (real)((cut_u ? copysign(b->linear_clamp, (double)u) : (double)u) + b->linear_offset);
    real a = (real)naive_activation(name, beta, gate);
    real ag = (real)naive_activation(name, beta, (double)g);
    real au = (real)naive_activation(name, beta, (double)u);
    *out[0] = a * linear;
    *out[1] = cut_g ? 0 : dh * linear * (real)naive_activation_slope(name, beta, gate);
    *out[2] = cut_u ? 0 : dh * a;
    *out[3] = ag * au;
    *out[4] = dh * au * (real)naive_activation_slope(name, beta, (double)g);
    *out[5] = dh * ag * (real)naive_activation_slope(name, beta, (double)u);
    *out[6] = ag;
    *out[7] = dh * (real)naive_activation_slope(name, beta, (double)g);
}

static bool agrees(real got, real want) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return got == want;
    double tiny = sizeof(real) == 4 ? FLT_MIN : DBL_MIN;
    return fabs((double)got - (double)want) <= 40 * ROUNDOFF * fabs((double)want) + 40 * tiny;
}

/* Where the oracle's formulas keep their relative accuracy: no tail but where it is 0. */
static const double probes[] = {0,     -0.0, 1e-41, -1e-41,   1e-30,     -1e-30, 1e-3, -1e-3,
                                0.5,   2,    -2,    1e3,      -1e3,      1e6,    -1e6, 1e30,
                                -1e30, 3e38, -3e38, INFINITY, -INFINITY, NAN};
enum { PROBES = sizeof probes / sizeof *probes };

static void check_probes(const Branches *branches) {
    static const double gradients[] = {1, -2.5, 0, 1e-30, 1e30, INFINITY, NAN};
    enum { GRADIENTS = sizeof gradients / sizeof *gradients };
    for (int i = 0; i < PROBES * PROBES * GRADIENTS; i++) {
        real g = (real)probes[i % PROBES], u = (real)probes[i / PROBES % PROBES];
        real dh = (real)gradients[i / PROBES / PROBES], got[OUTPUTS], want[OUTPUTS];
        real *to_got[OUTPUTS], *to_want[OUTPUTS];
        for (int k = 0; k < OUTPUTS; k++) {
            to_got[k] = &got[k];
            to_want[k] = &want[k];
        }
        run_kernels(branches, 1, &g, &u, &dh, to_got);
        run_oracle(branches, g, u, dh, to_want);
        for (int k = 0; k < OUTPUTS; k++)
            if (!agrees(got[k], want[k]))
                ck_abort_msg("%s, gate %g, up %g, dh %g: output %d is %g, expected %g",
                             branches->activation->name, (double)g, (double)u, (double)dh, k,
                             (double)got[k], (double)want[k]);
    }
}

START_TEST(probes_agree_with_the_oracle) { on_branches(check_probes); }
END_TEST

/* ---- by hand ---- */

static Branches plain(const char *name) {
    return (Branches){.activation = activation_find(name), .beta = 1};
}

START_TEST(hand_values) {
    static const struct {
        const char *name;
        double output, tolerance;
    } row[] = {{"silu", 4.38635147, 1e-6},       {"gelu_tanh", 5.04715, 5e-6},
               {"gelu", 5.04807, 5e-6},          {"relu", 6, 1e-12},
               {"sigmoid", 4.38635147, 1e-6}, /* 6 sigmoid(1): as silu, for the gate is 1 */
               {"quick_gelu", 5.07477460, 1e-6}, {"identity", 6, 1e-12}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        real gate = 1, up = 2, h; /* Wg 1, Wu 2, Wd 3, x 1 */
        Branches branches = plain(row[i].name);
        activation_gated(&branches, 1, &gate, &up, &h);
        ck_assert_double_eq_tol(3 * (double)h, row[i].output, row[i].tolerance);
    }
}
END_TEST

START_TEST(hand_gradients_of_silu) {
    const Branches silu = plain("silu");
    const real gate[] = {-1, 0, 1}, up[] = {2, 3, 4}, ones[] = {1, 1, 1};
    const double h_want[] = {-0.537883, 0, 2.924234}, dg_want[] = {0.144659, 1.5, 3.710682};
    const double du_want[] = {-0.268941, 0, 0.731059};
    real h[3], dg[3], du[3];
    activation_gated(&silu, 3, gate, up, h);
    activation_gated_backward(&silu, 3, gate, up, ones, dg, du);
    ck_assert_double_le(array_difference(h, h_want, 3), 1e-6);
    ck_assert_double_le(array_difference(dg, dg_want, 3), 1e-6);
    ck_assert_double_le(array_difference(du, du_want, 3), 1e-6);
}
END_TEST

/* A clamp passes the gradient at its very limit and not beyond, as torch.clamp does. */
START_TEST(limits_pass_the_gradient) {
    Branches branches = plain("identity");
    branches.gate_clamp = 7;
    branches.linear_clamp = 7;
    branches.linear_offset = 1;
    const real beyond = nextafterf(7, 8), inside = nextafterf(7, 6);
    const real g[] = {7, beyond, inside, -7, -beyond, 1, 1, 1, 1};
    const real u[] = {2, 2, 2, 2, 2, 7, beyond, -7, -beyond};
    const real h_want[] = {21, 21, inside * 3, -21, -beyond * 3, 8, 8, -6, -6};
    const real dg_want[] = {3, 0, 3, 3, 3, 8, 8, -6, -6};
    const real du_want[] = {7, 7, inside, -7, -beyond, 1, 0, 1, 0};
    enum { COUNT = sizeof g / sizeof *g };
    real ones[COUNT], h[COUNT], dg[COUNT], du[COUNT];
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    activation_gated(&branches, COUNT, g, u, h);
    activation_gated_backward(&branches, COUNT, g, u, ones, dg, du);
    for (int i = 0; i < COUNT; i++)
        ck_assert_msg(h[i] == h_want[i] && dg[i] == dg_want[i] && du[i] == du_want[i],
                      "gate %.9g, up %.9g: %.9g, gradients %.9g %.9g", (double)g[i], (double)u[i],
                      (double)h[i], (double)dg[i], (double)du[i]);
}
END_TEST

/* dReLU: open where both are. */
START_TEST(dual_relu_by_hand) {
    const Branches branches = plain("relu");
    const real g[] = {2, 2, -2, 0, 2}, u[] = {3, -3, 3, 3, 0}, ones[] = {1, 1, 1, 1, 1};
    const double h_want[] = {6, 0, 0, 0, 0}, dg_want[] = {3, 0, 0, 0, 0};
    const double du_want[] = {2, 0, 0, 0, 0};
    real h[5], dg[5], du[5];
    activation_dual(&branches, 5, g, u, h);
    activation_dual_backward(&branches, 5, g, u, ones, dg, du);
    ck_assert_double_le(array_difference(h, h_want, 5), 0);
    ck_assert_double_le(array_difference(dg, dg_want, 5), 0);
    ck_assert_double_le(array_difference(du, du_want, 5), 0);
}
END_TEST

/* ---- bits ---- */

/* Any piece of an array gives the bits that it has in the whole, wherever it lies. */
static void check_pieces(const Branches *branches) {
    static real whole[OUTPUTS][LENGTH], piece[OUTPUTS][LENGTH + 16];
    const Inputs in = some_inputs();
    real *out[OUTPUTS];
    for (int k = 0; k < OUTPUTS; k++) out[k] = whole[k];
    run_kernels(branches, LENGTH, in.gate, in.up, in.dh, out);
    for (int i = 0; i < 300; i++) {
        int begin = i * 7 % 300, size = i < 70 ? i : i + begin > LENGTH - 1 ? 33 : i;
        for (int k = 0; k < OUTPUTS; k++) out[k] = piece[k] + (i + k) * 5 % 16;
        run_kernels(branches, size, in.gate + begin, in.up + begin, in.dh + begin, out);
        for (int k = 0; k < OUTPUTS; k++)
            if (!array_same(out[k], whole[k] + begin, size))
                ck_abort_msg("%s, output %d: [%d, +%d)", branches->activation->name, k, begin,
                             size);
    }
}

START_TEST(bits_depend_on_neither_offset_nor_length) { on_branches(check_pieces); }
END_TEST

typedef void (*Backward)(const Branches *, int64_t, const real *, const real *, const real *,
                         real *, real *);

static void check_aliases(const Branches *branches) {
    static const Backward backward[] = {activation_gated_backward, activation_dual_backward};
    static real dg[LENGTH], du[LENGTH], place[3][LENGTH];
    const Inputs in = some_inputs();
    for (int i = 0; i < 6; i++) {
        backward[i / 3](branches, LENGTH, in.gate, in.up, in.dh, dg, du);
        memcpy(place[0], in.gate, sizeof in.gate);
        memcpy(place[1], in.up, sizeof in.up);
        memcpy(place[2], in.dh, sizeof in.dh);
        real *dg_place = place[i % 3 == 1 ? 2 : 0], *du_place = place[i % 3 == 2 ? 2 : 1];
        backward[i / 3](branches, LENGTH, place[0], place[1], place[2], dg_place, du_place);
        ck_assert(array_same(dg_place, dg, LENGTH) && array_same(du_place, du, LENGTH));
    }
    activation_plain_backward(branches, LENGTH, in.gate, in.dh, dg);
    memcpy(place[0], in.gate, sizeof in.gate);
    memcpy(place[2], in.dh, sizeof in.dh);
    activation_plain_backward(branches, LENGTH, place[0], in.dh, place[0]);
    activation_plain_backward(branches, LENGTH, in.gate, place[2], place[2]);
    ck_assert(array_same(place[0], dg, LENGTH) && array_same(place[2], dg, LENGTH));
}

START_TEST(backward_may_overwrite_its_inputs) { on_branches(check_aliases); }
END_TEST

int main(void) {
    return run_suite("branches",
                     TESTS(fused_equals_unfused, probes_agree_with_the_oracle, hand_values,
                           hand_gradients_of_silu, limits_pass_the_gradient, dual_relu_by_hand,
                           bits_depend_on_neither_offset_nor_length,
                           backward_may_overwrite_its_inputs));
}
