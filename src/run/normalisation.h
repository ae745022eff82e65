/* A run's normalisation in its checkpoints: the manifest's block
 *
 *     "normalisation": {"rule": ..., "inputs": {"mean": [...], "scale": [...]}, "targets": ...}
 *
 * with numbers to 17 digits, which are the same doubles when they are read back. A part that is
 * left as it is (classes) has empty lists. These numbers belong to the function: their digest is
 * function.normalisation, so that the fingerprint covers them. */
#ifndef WEFT_RUN_NORMALISATION_H
#define WEFT_RUN_NORMALISATION_H

#include "base/hash.h"
#include "data/normalise.h"

#include <jansson.h>

/* The block. New reference, NULL when memory is short. */
json_t *normalisation_json(const Normalisation *n);

/* Of the bits of all means and scales. */
void normalisation_digest(const Normalisation *n, char text[HASH_TEXT]);

/* Fills n (opened) from a manifest, and tells whatever is wrong there: a block or number that is
 * missing or can't be, one that is unknown, a digest of other numbers. Returns how many. */
int normalisation_read(Normalisation *n, const json_t *manifest,
                       void (*tell)(void *context, const char *problem), void *context);

/* For whoever loads: the same, unless no numbers are wanted (n->number is NULL). `directory` is for
 * messages. 0, or WEFT_INPUT with the first that is wrong. */
int normalisation_take(Normalisation *n, const json_t *manifest, const char *directory);

#endif
