/* A run's normalisation in its checkpoints: the manifest's block
 *
 *     "normalisation": {"rule": ..., "inputs": {"mean": [...], "scale": [...]}, "targets": ...}
 *
 * with numbers to 17 digits, which are the same doubles when they are read back. A part that is
 * left as it is (classes) has empty lists. */
#ifndef WEFT_RUN_NORMALISATION_H
#define WEFT_RUN_NORMALISATION_H

#include "data/normalise.h"

#include <jansson.h>

/* The block. New reference, NULL when memory is short. */
json_t *normalisation_json(const Normalisation *n);

/* Takes the numbers from a manifest, unless none are wanted (n->number is NULL). `directory` is for
 * messages. 0, or WEFT_INPUT: there is no such block, or it isn't for these columns. */
int normalisation_take(Normalisation *n, const json_t *manifest, const char *directory);

#endif
