/* A weft model, decoder or mlp, beside the naive one: the same weights, data and masks.
 *
 *     oracle_open(&oracle, &plan);          the naive model: weights, data, loss and gradients
 *     oracle_subject(&model, &oracle, plan.recompute ..., &grid);        weft's, with those weights
 *     double loss = oracle_train(&model, &oracle);
 *     OracleResult result = oracle_compare(&model, &grid, &oracle, loss);
 *     model_release(&model);
 *     oracle_close(&oracle);
 *
 * The masks of the naive side come straight from Random123, by the layout that tensor/philox.h
 * documents. Weights and data are a fixed pseudo-random sequence, exact in float.
 * gemm_setup() comes first. A function that fails ends the test. */
#ifndef WEFT_TESTS_ORACLE_H
#define WEFT_TESTS_ORACLE_H

#include "base/hash.h"
#include "nn/model.h"
#include "support/naive_mlp.h"

typedef struct {
    const char *name; /* for messages */
    ModelKind model;
    int64_t inputs, outputs; /* of an mlp; its rows are `sequences`, its context 1 */
    HeadLoss loss;
    int64_t vocab, d_model, layers, heads, kv_heads, d_ff, sequences, context;
    const char *kind, *activation;
    bool bias, tied;
    bool masked; /* some targets are */
    double hidden_dropout, output_dropout;
    int shards; /* grid.tensor */
    int microbatches, threads;
    Recompute recompute;
    Fusion fusion;
    Reduction reduction;
    Transport transport;
    bool sequence; /* sequence-parallel regions */
} OraclePlan;

typedef struct {
    OraclePlan plan;
    NaiveModel *naive;           /* of a decoder, else NULL */
    NaiveMlp *mlp;               /* of an mlp, else NULL */
    const NaiveTensors *tensors; /* of either */
    int32_t *tokens, *targets;   /* [microbatches, T] */
    double *inputs, *values;     /* of an mlp: [microbatches, T, a or b], and the same as real: */
    real *real_inputs, *real_values;
    double divisor;     /* unmasked targets */
    double loss;        /* mean */
    int64_t microbatch; /* that the mask is asked for */
} Oracle;

void oracle_open(Oracle *oracle, const OraclePlan *plan);
void oracle_close(Oracle *oracle);

/* Loss and gradients of the naive model, once more (with other masks, weights, ...). */
void oracle_run(Oracle *oracle);

/* The naive model's, decoder or mlp; NULL: it has none of that name. */
double *oracle_weight(const Oracle *oracle, const char *name);

/* Microbatch number m as weft's model takes it. */
Microbatch oracle_batch(const Oracle *oracle, int m);

/* weft's model on this grid; gradients are zero. Collective over GROUP_GRID. */
void oracle_subject(Model *model, const OraclePlan *plan, Grid *grid);
/* The naive weights into it. */
void oracle_weights(Model *model, const Oracle *oracle);

/* All microbatches forward and backward; gradients are zeroed first. The mean loss. Collective over
 * GROUP_TENSOR. */
double oracle_train(Model *model, const Oracle *oracle);
/* The same without dropout and backward. */
double oracle_evaluate(Model *model, const Oracle *oracle);

/* Relative to each tensor's largest gradient. */
typedef struct {
    double loss, gradient;
    const char *tensor; /* with the largest difference; owned by the model */
} OracleResult;

/* Fails when the two sides don't have the same tensors. Collective over GROUP_TENSOR. */
OracleResult oracle_compare(const Model *model, Grid *grid, const Oracle *oracle, double loss);

/* The key, step and microbatch that passes of oracle_train use. */
#define ORACLE_SEED             0x123456789abcdef0u
#define ORACLE_STEP             70001
#define ORACLE_FIRST_MICROBATCH 5

/* What the layout in tensor/philox.h says of one element: 0 or 1/(1-p). */
double oracle_mask(PhiloxPurpose purpose, int layer, int64_t microbatch, int64_t row,
                   int64_t channel, double probability);

#endif
