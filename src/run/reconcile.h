/* The tensors that a model declares beside those of a checkpoint's catalog: none missing, none
 * extra, in the same order, of the same shape, cut along the same axis at the same places. No I/O.
 */
#ifndef WEFT_RUN_RECONCILE_H
#define WEFT_RUN_RECONCILE_H

#include "checkpoint/catalog.h"
#include "run/findings.h"

/* `tied`: lm_head.weight is another name of the embedding. */
void reconcile_tensors(const ParamSet *set, bool tied, const Catalog *catalog, Findings *findings);

bool reconcile_is_bias(const char *tensor);

#endif
