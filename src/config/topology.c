#include "config/topology.h"

#include "base/error.h"
#include "config/options.h"
#include "config/width.h"
#include "math/activation.h"
#include "nn/ffn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the linear maps, [out, in] each ---- */

enum { IN_RESIDUAL = 1, AT_THE_ENDS = 2, NEEDS_GATE = 4, DECODERS = 8, MLPS = 16, UNTIED = 32 };

typedef struct {
    const char *name;
    int64_t out, in;
    const char *split; /* the axis cut into grid.tensor shards */
    int traits;
    bool bias;
} Projection;

/* o and down write into the residual stream: their initial weights are scaled by
 * 1/sqrt(2 * layers) (Radford et al. 2019, section 2.3). What leads into the stream and out of it
 * (embedding and lm head may be one tensor) has init.std under both schemes. */
static json_t *projection_json(const Projection *p, const Config *c) {
    bool fan_in = !strcmp(c->init.scheme, "fan_in") && !(p->traits & AT_THE_ENDS);
    double std = fan_in ? 1 / sqrt((double)p->in) : c->init.std;
    bool residual = p->traits & IN_RESIDUAL;
    double scale = residual ? 1 / sqrt(2.0 * (double)c->model.layers) : 1;
    return json_pack("{s:s, s:[I,I], s:s, s:s, s:b, s:{s:s, s:f, s:s, s:f, s:s*}}", "name", p->name,
                     "shape", (json_int_t)p->out, (json_int_t)p->in, "storage", "[out, in]",
                     "split", p->split, "bias", p->bias, "initializer", "distribution", "normal",
                     "std", std * scale, "scheme", fan_in ? "fan_in" : "fixed", "residual_scale",
                     scale, "residual_rule", residual ? "1/sqrt(2 * layers)" : NULL);
}

json_t *projections_json(const Config *c) {
    int64_t d = c->model.d_model, f = c->ffn.d_ff, kv = d / c->model.heads * c->model.kv_heads;
    FfnBiases bias = config_ffn_biases(c);
    const Projection list[] = {
        {"self_attn.q_proj", d, d, "out", DECODERS, false},
        {"self_attn.k_proj", kv, d, "out", DECODERS, false},
        {"self_attn.v_proj", kv, d, "out", DECODERS, false},
        {"self_attn.o_proj", d, d, "in", DECODERS | IN_RESIDUAL, false},
        {"mlp.gate_proj", f, d, "out", NEEDS_GATE, bias.gate},
        {"mlp.up_proj", f, d, "out", 0, bias.up},
        {"mlp.down_proj", d, f, "in", IN_RESIDUAL, bias.down},
        {"model.embed_tokens", c->model.vocab, d, "out", DECODERS | AT_THE_ENDS, false},
        {"lm_head", c->model.vocab, d, "out", DECODERS | AT_THE_ENDS | UNTIED, false},
        {"input", d, c->model.inputs, "out", MLPS | AT_THE_ENDS, true},
        {"output", c->model.outputs, d, "out", MLPS | AT_THE_ENDS, true},
    };
    const FfnKind *kind = ffn_find(c->ffn.kind);
    int absent = config_is_mlp(c) ? DECODERS : MLPS;
    if (!kind || !kind->has_gate) absent |= NEEDS_GATE;
    if (c->model.tie_embeddings) absent |= UNTIED;
    json_t *array = json_array();
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (list[i].traits & absent) continue;
        if (!json_array_append_new(array, projection_json(&list[i], c))) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

/* ---- the FFN ---- */

static void print_option(const char *key, const Config *c, FILE *stream) {
    option_print(&options[option_find("ffn", key)], c, stream);
}

static void print_gate(const Config *c, FILE *stream) {
    if (c->ffn.gate_clamp == 0) {
        fputs("gate(x)", stream);
        return;
    }
    fputs("min(gate(x), ", stream);
    print_option("gate_clamp", c, stream);
    fputc(')', stream);
}

static void print_up(const Config *c, FILE *stream) {
    bool clamp = c->ffn.linear_clamp != 0, offset = c->ffn.linear_offset != 0;
    if (offset) fputc('(', stream);
    if (clamp) {
        fputs("min(max(up(x), -", stream);
        print_option("linear_clamp", c, stream);
        fputs("), ", stream);
        print_option("linear_clamp", c, stream);
        fputc(')', stream);
    } else {
        fputs("up(x)", stream);
    }
    if (!offset) return;
    fputs(" + ", stream);
    print_option("linear_offset", c, stream);
    fputc(')', stream);
}

/* The kind's equation with clamps and offset in their places. free(). */
static char *equation_of(const FfnKind *kind, const Config *c) {
    static const struct {
        const char *branch;
        void (*print)(const Config *c, FILE *stream);
    } branches[] = {{"gate(x)", print_gate}, {"up(x)", print_up}};
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    for (const char *rest = kind->equation; *rest;) {
        int b = 0;
        while (b < 2 && strncmp(rest, branches[b].branch, strlen(branches[b].branch)) != 0) b++;
        if (b == 2) {
            fputc(*rest++, stream);
        } else {
            branches[b].print(c, stream);
            rest += strlen(branches[b].branch);
        }
    }
    if (!fclose(stream)) return text;
    free(text);
    return NULL;
}

/* `exact` is what the rule gives before rounding; null where it can't be applied any more to a
 * width that it gave once. */
static json_t *width_rule_json(const Config *c) {
    int64_t d_ff;
    double exact;
    bool applies = !width_of(c, &d_ff, &exact);
    if (!applies) error_clear();
    return json_pack("{s:s, s:f, s:I, s:I, s:b, s:o, s:I}", "rule", c->ffn.width, "multiplier",
                     c->ffn.width_multiplier, "multiple_of", (json_int_t)c->ffn.width_multiple_of,
                     "match_d_ff", (json_int_t)c->ffn.match_d_ff, "match_bias", c->ffn.match_bias,
                     "exact", applies ? json_real(exact) : json_null(), "d_ff",
                     (json_int_t)c->ffn.d_ff);
}

json_t *topology_json(const Config *c) {
    const FfnKind *kind = ffn_find(c->ffn.kind);
    char *equation = kind ? equation_of(kind, c) : NULL;
    json_t *topology = NULL;
    if (equation)
        topology =
            json_pack("{s:s, s:s, s:i, s:s, s:s, s:I, s:I, s:o}", "kind", kind->name, "model",
                      c->model.kind, "projections", kind->projections, "equation", equation,
                      "activated_branch", kind->activated, "d_model", (json_int_t)c->model.d_model,
                      "d_ff", (json_int_t)c->ffn.d_ff, "width_rule", width_rule_json(c));
    free(equation);
    return topology;
}

json_t *activation_json(const Config *c) {
    const Activation *activation = activation_find(c->ffn.activation);
    if (!activation) return NULL;
    json_t *beta = activation->has_beta ? json_real(c->ffn.swish_beta) : json_null();
    bool plain = !activation->has_beta || c->ffn.swish_beta == 1;
    return json_pack("{s:s, s:s, s:{s:o, s:f, s:f, s:f}}", "name", activation->name, "equation",
                     plain ? activation->equation : activation->beta_equation, "parameters", "beta",
                     beta, "gate_clamp", c->ffn.gate_clamp, "linear_clamp", c->ffn.linear_clamp,
                     "linear_offset", c->ffn.linear_offset);
}

/* Both are means over the rows that count; a squared error over its outputs too. */
json_t *loss_json(const Config *c) {
    bool squared = config_is_mlp(c) && !strcmp(c->model.loss, "squared_error");
    return json_pack("{s:s, s:s}", "name", squared ? "squared_error" : "cross_entropy", "over",
                     squared ? "outputs" : "logits");
}
