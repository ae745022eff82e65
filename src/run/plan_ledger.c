#include "run/plan_ledger.h"

#include "run/setup.h"

#include <string.h>

const char *const ledger_group_names[LEDGER_GROUPS] = {
    "entry", "attention", "FFN gate", "FFN up", "FFN down", "norms", "head",
};

/* By name: the first that a tensor's name contains. */
static const struct {
    const char *part;
    LedgerGroup group;
} groups[] = {
    {"embed_tokens", LEDGER_ENTRY}, {"input.", LEDGER_ENTRY}, {"self_attn.", LEDGER_ATTENTION},
    {"gate_proj", LEDGER_GATE},     {"up_proj", LEDGER_UP},   {"down_proj", LEDGER_DOWN},
    {"norm", LEDGER_NORMS},         {"lm_head", LEDGER_HEAD}, {"output.", LEDGER_HEAD},
};

static LedgerGroup group_of(const Param *param) {
    size_t i = 0;
    while (i + 1 < sizeof groups / sizeof *groups && !strstr(param->name, groups[i].part)) i++;
    return groups[i].group;
}

static bool is_bias(const Param *param) { return strstr(param->name, ".bias") != NULL; }

/* A matrix multiplies each token once in each pass; the embedding is looked up, and nobody asks for
 * the gradient of an mlp's inputs. */
static void add_tensor(Ledger *ledger, const Config *config, const Param *param) {
    LedgerGroup group = group_of(param);
    LedgerRow *row = &ledger->row[group];
    int64_t size = param->rows * param->cols;
    *(is_bias(param) ? &row->biases : &row->weights) += size;
    bool lookup = group == LEDGER_ENTRY && !config_is_mlp(config);
    if (param->rank != 2 || lookup) return;
    row->forward += (double)size;
    row->weight_gradient += (double)size;
    if (group != LEDGER_ENTRY) row->input_gradient += (double)size;
    bool again = group == LEDGER_ATTENTION || group == LEDGER_GATE || group == LEDGER_UP;
    if (again) row->again += (double)size;
}

/* Scores and weighted sums, two products over half the context; backward has the scores again and
 * four gradients. */
static void add_scores(Ledger *ledger, const Config *config) {
    double one = (double)config->model.d_model * (double)config->model.context / 2;
    LedgerRow *row = &ledger->row[LEDGER_ATTENTION];
    row->forward += 2 * one * (double)config->model.layers;
    row->input_gradient += 5 * one * (double)config->model.layers;
    row->again += 2 * one * (double)config->model.layers;
}

/* A tied head has no tensor of its own. */
static void add_tied_head(Ledger *ledger, const Config *config) {
    double size = (double)config->model.vocab * (double)config->model.d_model;
    LedgerRow *row = &ledger->row[LEDGER_HEAD];
    row->forward += size;
    row->input_gradient += size;
    row->weight_gradient += size;
}

static void add_row(LedgerRow *sum, const LedgerRow *row) {
    sum->weights += row->weights;
    sum->biases += row->biases;
    sum->forward += row->forward;
    sum->input_gradient += row->input_gradient;
    sum->weight_gradient += row->weight_gradient;
    sum->again += row->again;
}

int ledger_make(const Config *config, Ledger *ledger) {
    Model model;
    ModelConfig shape = setup_model(config, 1, 1);
    *ledger = (Ledger){0};
    int status = model_declare(&model, &shape, 0, 1);
    for (int i = 0; !status && i < model.set.count; i++)
        add_tensor(ledger, config, &model.set.param[i]);
    model_forget(&model);
    if (status) return status;
    if (!config_is_mlp(config)) add_scores(ledger, config);
    if (!config_is_mlp(config) && config->model.tie_embeddings) add_tied_head(ledger, config);
    for (int g = 0; g < LEDGER_GROUPS; g++) add_row(&ledger->total, &ledger->row[g]);
    return 0;
}

LedgerRow ledger_ffn_layer(const Config *config, const Ledger *ledger) {
    LedgerRow sum = {0};
    int64_t layers = config->model.layers;
    for (int g = LEDGER_GATE; g <= LEDGER_DOWN; g++) add_row(&sum, &ledger->row[g]);
    return (LedgerRow){sum.weights / layers,
                       sum.biases / layers,
                       sum.forward / (double)layers,
                       sum.input_gradient / (double)layers,
                       sum.weight_gradient / (double)layers,
                       sum.again / (double)layers};
}

/* ---- tensors of an FFN: what nn/layer.c keeps and nn/ffn.c makes ---- */

static const TensorFate unless_block[] = {TENSOR_KEPT, TENSOR_KEPT, TENSOR_AGAIN};
static const TensorFate unless_act[] = {TENSOR_KEPT, TENSOR_AGAIN, TENSOR_AGAIN};
static const TensorFate always_again[] = {TENSOR_AGAIN, TENSOR_AGAIN, TENSOR_AGAIN};
static const TensorFate never[] = {TENSOR_NEVER, TENSOR_NEVER, TENSOR_NEVER};

static const struct {
    const char *kind;
    FfnTensor tensor[FFN_TENSORS]; /* up to a name that is NULL */
} tables[] = {
    {"gated",
     {{"X", "norm(x)", false, unless_act},
      {"G", "X gate^T", true, unless_block},
      {"U", "X up^T", true, unless_block},
      {"A", "act(G)", true, never},
      {"H", "A * U", true, unless_act}}},
    {"dual",
     {{"X", "norm(x)", false, unless_act},
      {"G", "X gate^T", true, unless_block},
      {"U", "X up^T", true, unless_block},
      {"A", "act(G)", true, never},
      {"B", "act(U)", true, never},
      {"H", "A * B", true, unless_act}}},
    {"dense",
     {{"X", "norm(x)", false, unless_act},
      {"Z", "X up^T", true, unless_block},
      {"H", "act(Z)", true, unless_act}}},
};

int ledger_ffn_tensors(const Config *config, int tp, FfnTensor tensor[FFN_TENSORS]) {
    bool cut = config->parallel.sequence && tp > 1;
    int count = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(config->ffn.kind, tables[i].kind) != 0) continue;
        for (; count < FFN_TENSORS && tables[i].tensor[count].name; count++)
            tensor[count] = tables[i].tensor[count];
    }
    /* One act is there, for all layers, where each operation is a pass of its own: ffn_take_work.
     */
    bool apart = !strcmp(config->kernels.fusion, "eager");
    if (apart && tensor[count - 2].fate == never) tensor[count - 2].fate = always_again;
    for (int i = 0; i < count && cut; i++)
        if (!tensor[i].is_wide) tensor[i].fate = always_again;
    return count;
}
