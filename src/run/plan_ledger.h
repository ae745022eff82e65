/* The books of a model: parameters and multiply-adds by group of tensors, what each tensor of an
 * FFN costs to keep, and which of them each recompute mode keeps. From declarations alone: no
 * memory, no MPI. */
#ifndef WEFT_RUN_PLAN_LEDGER_H
#define WEFT_RUN_PLAN_LEDGER_H

#include "config/config.h"
#include "nn/model.h"

/* ---- parameters and products ---- */

typedef enum {
    LEDGER_ENTRY, /* embedding, or an mlp's input */
    LEDGER_ATTENTION,
    LEDGER_GATE,
    LEDGER_UP,
    LEDGER_DOWN,
    LEDGER_NORMS,
    LEDGER_HEAD, /* lm head, unless it is the embedding, or an mlp's output */
    LEDGER_GROUPS
} LedgerGroup;

extern const char *const ledger_group_names[LEDGER_GROUPS];

typedef struct {
    int64_t weights, biases; /* gains of norms count as weights */
    /* Multiply-adds of a token. again: what RECOMPUTE_BLOCK repeats in backward (RECOMPUTE_ACT
     * repeats no products). Attention's include scores and weighted sums over half the context, of
     * which backward has five where forward has two. */
    double forward, input_gradient, weight_gradient, again;
} LedgerRow;

typedef struct {
    LedgerRow row[LEDGER_GROUPS], total;
} Ledger;

/* Of the whole model, all layers. 0 or a negative code. */
int ledger_make(const Config *config, Ledger *ledger);

/* The same of one layer's gate, up and down. */
LedgerRow ledger_ffn_layer(const Config *config, const Ledger *ledger);

/* ---- tensors of an FFN ---- */

typedef enum {
    TENSOR_KEPT,  /* by every layer, until its backward */
    TENSOR_AGAIN, /* computed again in backward; one serves all layers */
    TENSOR_NEVER, /* has no memory of its own */
} TensorFate;

typedef struct {
    const char *name, *what;
    bool is_wide;           /* [T, d_ff], else [T, d_model] */
    const TensorFate *fate; /* [RECOMPUTE_BLOCK + 1] */
} FfnTensor;

/* What the FFN of this kind makes of T rows on tp tensor ranks, in order: X G U act(G) H, or X Z H.
 * Returns how many there are. */
enum { FFN_TENSORS = 6 };
int ledger_ffn_tensors(const Config *config, int tp, FfnTensor tensor[FFN_TENSORS]);

/* Bytes of a [rows, cols] block; twice what it was where an element is twice as wide. */
static inline double ledger_tensor_bytes(int64_t rows, int64_t cols, size_t element) {
    return (double)rows * (double)cols * (double)element;
}

#endif
