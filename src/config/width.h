/* Rules for the hidden width of an FFN: integers in, an integer out.
 *
 *   llama   h = floor(2 * 4 d / 3); then floor(multiplier * h) where one is given; then up to the
 *           next multiple (Meta's llama/model.py, FeedForward). 4096 -> 11008 with 256; with
 *           multiplier 1.3 and 1024 -> 14336. The product with the multiplier is one of doubles, as
 *           there
 *   floor   floor(8 d / 3): 128 -> 341
 *   match   the gated width whose parameter count meets that of a dense FFN of width c:
 *           (2 d c + b1 c + (b2 - bo) d) / (3 d + bg + bu), rounded to the nearest; b1, b2 are 1
 *           where the dense FFN has biases at its first and second projection; bg, bu, bo where the
 *           gated one has at gate, up and down
 *
 * config_resolve takes the number once; from then on ffn.d_ff is what counts, in the config that
 * the run keeps, in the manifest and at every load. */
#ifndef WEFT_CONFIG_WIDTH_H
#define WEFT_CONFIG_WIDTH_H

#include "config/config.h"

/* The keys of [ffn] that one rule alone reads. Ends with a row whose key is NULL. */
typedef struct {
    const char *key, *rule;
} WidthKey;
extern const WidthKey width_keys[];

/* What config->ffn.width gives for this config (its d_ff for "explicit"), and, where `exact` isn't
 * NULL, the same before anything is rounded. 0, or WEFT_USAGE naming the keys when the rule can't
 * be applied or gives no width in range. */
int width_of(const Config *config, int64_t *d_ff, double *exact);

/* One line on where ffn.d_ff comes from: "ffn.width = llama: 11008 channels (10922.667 unrounded;
 * up to a multiple of 256)". */
void width_describe(const Config *config, char *text, size_t capacity);

#endif
