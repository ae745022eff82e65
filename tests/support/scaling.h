/* What the tests of predictions share. */
#ifndef WEFT_TESTS_SCALING_H
#define WEFT_TESTS_SCALING_H

#include "support/configs.h"

#define CLOSE(a, b) ck_assert_double_eq_tol(a, b, 1e-12 * (b) + 1e-15)

/* 4 x 4 shards, 8 microbatches of 2 x 16 rows, one layer of 64 channels. */
static inline Config scaling_small(void) {
    return CONFIG("model.d_model=32", "model.heads=4", "model.kv_heads=4", "model.layers=1",
                  "model.context=16", "model.vocab=64", "ffn.d_ff=64", "grid.tensor=4",
                  "grid.data=4", "train.micro_batch=2", "train.global_batch=16");
}

#endif
