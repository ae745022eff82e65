/* The model with one layer and no training around it: real parameters, activations and functions of
 * nn, of which the bench times some alone. Partial sums stay on the rank that made them. */
#ifndef WEFT_BENCH_ONE_LAYER_H
#define WEFT_BENCH_ONE_LAYER_H

#include "bench/bench.h"
#include "bench/yardstick.h"
#include "nn/model.h"

typedef struct {
    Model model;
    real *partials; /* [TREE_MAX_SUBTREES * T, D] */
} OneLayer;

/* Activations and gradients get values of about 1. Collective over GROUP_GRID; agreed errors. */
int one_layer_open(OneLayer *layer, const Bench *bench);
void one_layer_close(OneLayer *layer); /* Collective over GROUP_GRID */

/* Where this rank's partial sums of [rows, D] over an axis belong. */
Partials one_layer_partials(const OneLayer *layer, const AxisLayout *axis, int64_t rows);

/* The products of one layer and the head, each a list of calls as training makes them. */
typedef enum { PRODUCT_FORWARD, PRODUCT_INPUT, PRODUCT_WEIGHT, PRODUCT_PASSES } ProductPass;

enum { PRODUCT_WEIGHTS = 3 };

typedef struct {
    const char *name; /* "gate, up" */
    bool column;      /* column-parallel: x is whole; else x is `cut`, and y whole */
    int weights, weight[PRODUCT_WEIGHTS]; /* places in the set */
    const Sharded *cut[PRODUCT_WEIGHTS];  /* y or dy; of a row-parallel one, x or dx */
    Sharded own;                          /* what cut[0] points to for the head */
    int64_t rows, in, out;                /* of all weights together */
    const AxisLayout *axis;
} ProductGroup;

enum { PRODUCT_GROUPS = 5 };

/* Returns how many there are: of an mlp fewer. `group` must not move. */
int one_layer_products(OneLayer *layer, ProductGroup group[PRODUCT_GROUPS]);

ProductShape product_shape(const ProductGroup *group, ProductPass pass); /* as one product */

/* 0 or a negative code. */
int product_run(OneLayer *layer, const ProductGroup *group, ProductPass pass);

#endif
