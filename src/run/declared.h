/* What a manifest declares, reconciled within itself: the block `function` (what the fingerprint
 * covers, and the authority here), the config in `origin`, and the blocks that describe the model
 * to readers (topology, activation, projections ...), each of whose fields must be what
 * config_details writes for that function. A field that is missing is named and never guessed:
 * equal shapes decide neither activation nor variant, branch order nor bias policy.
 *
 * What older programs wrote differently is accepted as they wrote it (the table in declared.c). */
#ifndef WEFT_RUN_DECLARED_H
#define WEFT_RUN_DECLARED_H

#include "config/config.h"
#include "run/findings.h"

#include <jansson.h>

typedef struct {
    Config config; /* by `function`; what that doesn't tell, by the config in `origin` */
    bool usable;   /* the config is whole and possible: a model can be declared from it */
    bool older;    /* written before some blocks grew */
    int blocks;    /* descriptive blocks that were compared */
    Findings findings;
    Findings notes; /* worth telling, and no fault */
} Declared;

/* Of a manifest that manifest_open accepted. 0, or WEFT_RUNTIME when memory is short. */
int declared_read(const json_t *manifest, Declared *declared);
void declared_release(Declared *declared);

/* For whoever loads. 0, or WEFT_INPUT naming the first field that contradicts another or is
 * missing. */
int declared_check(const json_t *manifest, const char *directory);

#endif
