#include "nn/mistaken_ffn.h"

#ifdef WEFT_FAULTS

#include "base/fault.h"
#include "nn/init_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- how gate and up meet ---- */

/* What one channel becomes, and its slopes: those of this very function but for up-constant, so
 * that no check of gradients against the forward sees it. */
typedef struct {
    double hidden, by_gate, by_up;
} Meeting;

static double act(const Branches *branches, double z, double *slope) {
    real x = (real)z, value, by_x;
    branches->activation->slope(1, &x, branches->beta, &value, &by_x);
    *slope = (double)by_x;
    return (double)value;
}

static Meeting ignore_up(const Branches *branches, double gate, double up) {
    double slope, a = act(branches, gate, &slope);
    (void)up;
    return (Meeting){a, slope, 0};
}

static Meeting add(const Branches *branches, double gate, double up) {
    double slope, a = act(branches, gate, &slope);
    return (Meeting){a + up, slope, 1};
}

static Meeting sigmoid_on_up(const Branches *branches, double gate, double up) {
    double slope, a = act(branches, gate, &slope), s = 1 / (1 + exp(-up));
    return (Meeting){a * s, slope * s, a * s * (1 - s)};
}

static Meeting activate_up(const Branches *branches, double gate, double up) {
    double slope, a = act(branches, up, &slope);
    return (Meeting){gate * a, a, gate * slope};
}

static Meeting activate_product(const Branches *branches, double gate, double up) {
    double slope, a = act(branches, gate * up, &slope);
    return (Meeting){a, slope * up, slope * gate};
}

static Meeting hold_up_constant(const Branches *branches, double gate, double up) {
    double slope, a = act(branches, gate, &slope);
    return (Meeting){a * up, slope * up, 0};
}

static const struct {
    const char *mistake;
    Meeting (*meet)(const Branches *branches, double gate, double up);
} meetings[] = {
    {"up-ignored", ignore_up},
    {"add-for-multiply", add},
    {"sigmoid-on-up", sigmoid_on_up},
    {"activation-on-up", activate_up},
    {"activation-on-product", activate_product},
    {"up-constant", hold_up_constant},
};
enum { MEETINGS = sizeof meetings / sizeof *meetings };

static int meeting_on(void) {
    for (int i = 0; i < MEETINGS; i++)
        if (fault_on(meetings[i].mistake)) return i;
    return -1;
}

static void meet_forward(const Ffn *ffn, Range rows, Range cols, int shard, const FfnSaved *saved) {
    int which = meeting_on();
    for (int64_t t = rows.begin; t < rows.end; t++) {
        const real *gate = tensor_row(saved->gate.shard[shard], t);
        const real *up = tensor_row(saved->up.shard[shard], t);
        real *hidden = tensor_row(saved->hidden.shard[shard], t);
        for (int64_t c = cols.begin; c < cols.end; c++)
            hidden[c] = (real)meetings[which]
                            .meet(&ffn->config.branches, (double)gate[c], (double)up[c])
                            .hidden;
    }
}

static void meet_backward(const Ffn *ffn, Range rows, Range cols, int shard,
                          const FfnSaved *saved) {
    int which = meeting_on();
    for (int64_t t = rows.begin; t < rows.end; t++) {
        real *gate = tensor_row(saved->gate.shard[shard], t);
        real *up = tensor_row(saved->up.shard[shard], t);
        const real *dhidden = tensor_row(saved->hidden.shard[shard], t);
        for (int64_t c = cols.begin; c < cols.end; c++) {
            Meeting m = meetings[which].meet(&ffn->config.branches, (double)gate[c], (double)up[c]);
            gate[c] = (real)((double)dhidden[c] * m.by_gate);
            up[c] = (real)((double)dhidden[c] * m.by_up);
        }
    }
}

/* Forward as it should be; then up's place holds the product. */
static void keep_product(const Ffn *ffn, Range rows, Range cols, int shard, const FfnSaved *saved) {
    ffn_find("gated")->activate(ffn, rows, cols, shard, saved);
    for (int64_t t = rows.begin; t < rows.end; t++)
        memcpy(tensor_row(saved->up.shard[shard], t) + cols.begin,
               tensor_row(saved->hidden.shard[shard], t) + cols.begin,
               (size_t)range_size(cols) * sizeof(real));
}

/* The same mistakes over a whole shard. */
static void activate_whole(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor hidden = saved->hidden.shard[shard];
    ffn->kind->activate(ffn, (Range){0, hidden.rows}, (Range){0, hidden.cols}, shard, saved);
}

static void differentiate_whole(const Ffn *ffn, int shard, const FfnSaved *saved) {
    Tensor hidden = saved->hidden.shard[shard];
    ffn->kind->differentiate(ffn, (Range){0, hidden.rows}, (Range){0, hidden.cols}, shard, saved);
}

static void mistake_kind(Ffn *ffn) {
    static FfnKind mistaken; /* the same for all layers */
    if (strcmp(ffn->kind->name, "gated")) return;
    mistaken = *ffn->kind;
    if (meeting_on() >= 0) {
        mistaken.activate = meet_forward;
        mistaken.differentiate = meet_backward;
    }
    if (fault_on("product-alone-saved")) mistaken.activate = keep_product;
    if (mistaken.activate != ffn->kind->activate) {
        mistaken.activate_apart = activate_whole;
        mistaken.differentiate_apart = differentiate_whole;
    }
    ffn->kind = &mistaken;
}

/* ---- activations ---- */

static void exact_slope(int64_t n, const real *z, double beta, real *a, real *da) {
    activation_find("gelu")->slope(n, z, beta, a, da);
    activation_find("gelu_tanh")->value(n, z, beta, a);
}

static void mistake_activation(Branches *branches) {
    static const struct {
        const char *mistake, *from, *to; /* from NULL: any */
    } swaps[] = {{"no-activation", NULL, "identity"},
                 {"activation-after-down", NULL, "identity"},
                 {"erf-for-tanh", "gelu_tanh", "gelu"},
                 {"tanh-for-erf", "gelu", "gelu_tanh"}};
    const char *name = branches->activation->name;
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++)
        if (fault_on(swaps[i].mistake) && (!swaps[i].from || !strcmp(name, swaps[i].from)))
            branches->activation = activation_find(swaps[i].to);
    static Activation mixed;
    if (strcmp(name, "gelu_tanh") || !fault_on("exact-backward")) return;
    mixed = *branches->activation;
    mixed.slope = exact_slope;
    branches->activation = &mixed;
}

/* ---- declaring ---- */

void mistaken_ffn_tensor(const char **name, uint32_t *init_key) {
    bool gate = !strcmp(*name, "gate"), up = !strcmp(*name, "up");
    if (!gate && !up) return;
    if (fault_on("gate-up-init-keys")) *init_key = gate ? INIT_KEY_UP : INIT_KEY_GATE;
    if (fault_on("gate-up-names")) *name = gate ? "up" : "gate";
}

void mistaken_ffn_declared(Ffn *ffn) {
    mistake_kind(ffn);
    mistake_activation(&ffn->config.branches);
    if (fault_on("bias-dropped")) ffn->up_bias = -1;
    if (fault_on("hidden-mask-after-down")) ffn->config.hidden_dropout = 0;
}

/* ---- rows and columns ---- */

/* Rows and columns change roles; only where both are of one length. */
static void transpose(Tensor x) {
    for (int64_t t = 0; t < x.rows; t++)
        for (int64_t j = 0; j < t; j++) {
            real *a = tensor_row(x, t) + j, *b = tensor_row(x, j) + t, held = *a;
            *a = *b;
            *b = held;
        }
}

/* A copy that lives until the next one is made. */
static Tensor copy_of(Tensor x) {
    static real *memory;
    free(memory);
    memory = memory_allocate((size_t)(x.rows * x.cols) * sizeof(real), "an input");
    Tensor copy = tensor_view(memory, memory ? x.rows : 0, x.cols);
    for (int64_t t = 0; t < copy.rows; t++)
        memcpy(tensor_row(copy, t), tensor_row(x, t), (size_t)x.cols * sizeof(real));
    return copy;
}

/* What [T, D] reads as where [D, T] is expected, by columns. */
static Tensor read_as_bds(Tensor x) {
    Tensor read = copy_of(x);
    for (int64_t i = 0; i < read.rows * read.cols; i++)
        read.data[i % read.rows * read.cols + i / read.rows] =
            tensor_row(x, i / x.cols)[i % x.cols];
    return read;
}

Tensor mistaken_ffn_input(Tensor x) {
    if (fault_on("input-as-bds")) return read_as_bds(x);
    if (!fault_on("ffn-along-sequence") || x.rows != x.cols) return x;
    Tensor turned = copy_of(x);
    transpose(turned);
    return turned;
}

void mistaken_ffn_output(const Partials *y) {
    if (!fault_on("ffn-along-sequence")) return;
    for (int i = 0; i < y->count; i++)
        if (y->sum[i].rows == y->sum[i].cols) transpose(y->sum[i]);
}

/* ---- after the sum ---- */

static void add_to(Tensor y, const real *row, int64_t row_step, real factor) {
    for (int64_t t = 0; t < y.rows; t++, row += row_step)
        for (int64_t j = 0; j < y.cols; j++) tensor_row(y, t)[j] += factor * row[j];
}

static void mask_output(const Ffn *ffn, const FfnConfig *right, const Pass *pass, Tensor y) {
    Dropout dropout = {{right->seed, PHILOX_HIDDEN_DROPOUT, (uint32_t)ffn->layer,
                        (uint32_t)pass->step, (uint32_t)pass->microbatch},
                       pass->training ? right->hidden_dropout : 0,
                       (uint32_t)ffn->space->stream.own.begin};
    dropout_apply(&dropout, (Range){0, y.rows}, 0, y, y);
}

bool mistaken_ffn_output_on(void) {
    static const char *const kinds[] = {"ffn-along-sequence", "activation-after-down",
                                        "residual-inside", "hidden-mask-after-down",
                                        "bias-added-p-times"};
    bool on = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) on = on || fault_on(kinds[i]);
    return on;
}

void mistaken_ffn_sum(const Ffn *ffn, const FfnConfig *right, const Pass *pass, Tensor x,
                      Tensor y) {
    const ParamSet *set = ffn->set;
    if (fault_on("activation-after-down"))
        for (int64_t t = 0; t < y.rows; t++)
            activation_plain(&right->branches, y.cols, tensor_row(y, t), tensor_row(y, t));
    if (fault_on("residual-inside")) add_to(y, x.data, x.ld, 1);
    if (fault_on("hidden-mask-after-down")) mask_output(ffn, right, pass, y);
    if (fault_on("bias-added-p-times") && ffn->down_bias >= 0)
        add_to(y, param_shard(set, &set->param[ffn->down_bias], PARAM_VALUE, 0).data, 0,
               (real)(set->tensor_ranks - 1));
}

#endif
