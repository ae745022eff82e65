/* Two configs' FFNs side by side, and the warning that belongs there: a gated FFN has a matrix
 * more, so at equal d_ff it isn't compared at equal cost (Shazeer 2020, section 3, takes 2/3 of
 * d_ff). */
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "config/width.h"
#include "run/plan.h"
#include "run/plan_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The gated width that has the parameters of a dense FFN as wide as both are. */
static int matched(const Config *gated, const Config *dense, int64_t *d_ff) {
    Config config = *gated;
    FfnBiases bias = config_ffn_biases(dense);
    snprintf(config.ffn.width, sizeof config.ffn.width, "match");
    config.ffn.match_d_ff = dense->ffn.d_ff;
    config.ffn.match_bias = bias.up;
    return width_of(&config, d_ff, NULL);
}

static double ffn_parameters(const Config *config) {
    const FfnKind *kind = ffn_find(config->ffn.kind);
    FfnBiases bias = config_ffn_biases(config);
    double d = (double)config->model.d_model, f = (double)config->ffn.d_ff;
    return (kind->projections * d + bias.gate + bias.up) * f + bias.down * d;
}

bool plan_unfair(const Config *a, const Config *b, char *text, size_t capacity) {
    const FfnKind *first = ffn_find(a->ffn.kind), *second = ffn_find(b->ffn.kind);
    if (!first || !second || first->has_gate == second->has_gate) return false;
    if (a->ffn.d_ff != b->ffn.d_ff || a->model.d_model != b->model.d_model) return false;
    if (fault_on("equal-width-untold")) return false;
    const Config *gated = first->has_gate ? a : b, *dense = first->has_gate ? b : a;
    int64_t d_ff = 0;
    char equal[96] = "";
    if (!matched(gated, dense, &d_ff))
        snprintf(equal, sizeof equal, "; with ffn.d_ff = %" PRId64 " about as many", d_ff);
    else
        error_clear();
    snprintf(text, capacity,
             "at equal d_ff = %" PRId64 " the %s FFN has %.3f times the parameters of the %s one%s",
             a->ffn.d_ff, gated->ffn.kind, ffn_parameters(gated) / ffn_parameters(dense),
             dense->ffn.kind, equal);
    return true;
}

static void print_line(const char *what, double a, double b, Shown (*show)(double)) {
    log_print("%-22s %18s %18s", what, show(a).text, show(b).text);
    if (b > 0) log_print(" %9.4f", a / b);
    log_print("\n");
}

/* Of a layer, for the rows of a microbatch, all channels. */
static double kept_bytes(const Config *config, int mode) {
    FfnTensor tensor[FFN_TENSORS];
    double sum = 0;
    int count = ledger_ffn_tensors(config, 1, tensor);
    for (int i = 0; i < count; i++)
        if (tensor[i].fate[mode] == TENSOR_KEPT)
            sum += ledger_tensor_bytes(config->train.micro_batch * config->model.context,
                                       tensor[i].is_wide ? config->ffn.d_ff : config->model.d_model,
                                       sizeof(real));
    return sum;
}

static void print_both(const Config *config[2], const Ledger ledger[2]) {
    LedgerRow a = ledger_ffn_layer(config[0], &ledger[0]);
    LedgerRow b = ledger_ffn_layer(config[1], &ledger[1]);
    double tokens[2];
    for (int i = 0; i < 2; i++)
        tokens[i] = (double)(config[i]->train.micro_batch * config[i]->model.context);
    print_line("d_model", (double)config[0]->model.d_model, (double)config[1]->model.d_model,
               show_count);
    print_line("d_ff", (double)config[0]->ffn.d_ff, (double)config[1]->ffn.d_ff, show_count);
    print_line("weights of a layer", (double)a.weights, (double)b.weights, show_count);
    print_line("biases of a layer", (double)a.biases, (double)b.biases, show_count);
    print_line("forward of a row", a.forward, b.forward, show_count);
    print_line("backward of a row", a.input_gradient + a.weight_gradient,
               b.input_gradient + b.weight_gradient, show_count);
    print_line("recompute = block adds", a.again, b.again, show_count);
    print_line("rows of a microbatch", tokens[0], tokens[1], show_count);
    print_line("MB kept, none", kept_bytes(config[0], 0), kept_bytes(config[1], 0), show_megabytes);
    print_line("MB kept, act", kept_bytes(config[0], 1), kept_bytes(config[1], 1), show_megabytes);
    print_line("parameters in all", (double)(ledger[0].total.weights + ledger[0].total.biases),
               (double)(ledger[1].total.weights + ledger[1].total.biases), show_count);
}

int plan_compare(const Config *a, const Config *b, const char *const names[2]) {
    const Config *config[] = {a, b};
    Ledger ledger[2];
    for (int i = 0; i < 2; i++) {
        int status = ledger_make(config[i], &ledger[i]);
        if (status) return error_prefix(status, "%s: ", names[i]);
    }
    log_print("\nthe FFNs of a layer    %18s %18s %9s\n", "this", "against", "ratio");
    print_both(config, ledger);
    for (int i = 0; i < 2; i++)
        log_print("%-9s %s (%s)\n", i ? "against" : "this", show_kind(config[i]).text, names[i]);
    char text[256] = "warning: ";
    size_t prefix = strlen(text);
    if (plan_unfair(a, b, text + prefix, sizeof text - prefix)) print_wrapped(text);
    return 0;
}
