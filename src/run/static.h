/* `weft verify --static`: what must be there, derived from the manifest alone, and whether it is.
 *
 *   1. The manifest agrees with itself (run/declared.h).
 *   2. Its tensors are those of the model that its function declares (run/reconcile.h).
 *   3. The files hold exactly these: names, shapes, types, attributes, storage; the view's sources;
 *      and none is a link out of the directory.
 *      Not a byte of a tensor is read until then.
 *   4. Of the declared biases, and of nothing else, the data: a bias that was zero-filled is found
 *      by this rule. Biases start at zero, and AdamW moves every cell whose gradient isn't zero, so
 *      after a step with a learning rate above zero a bias that is zero throughout has had no
 *      gradient, and its second moment is zero. If that isn't, or if the second moment of its
 *      projection's weight isn't (the bias's gradient is the sum over rows of what the weight's is
 *      made from), the zeros were filled in. Where the last update, by rate and moments, is below
 *      what a number can hold, that is a note; without moments, or at step 0, nothing is said.
 *
 * Equal shapes decide nothing here: square matrices whose data are transposed, gate and up
 * exchanged, another activation are seen where a field says otherwise, or by running the model.
 *
 * Serial, no MPI. */
#ifndef WEFT_RUN_STATIC_H
#define WEFT_RUN_STATIC_H

#include "run/findings.h"

#include <stdint.h>

typedef struct {
    Findings findings, notes;                  /* what is wrong; what is worth telling */
    int blocks, tensors, roles, files, biases; /* that were compared */
    int64_t datasets;
} StaticReport;

/* `directory` is a step directory. 0; WEFT_CHECK with the message of the first finding; or
 * WEFT_RUNTIME. static_release the report in each case. */
int static_verify(const char *directory, StaticReport *report);
void static_release(StaticReport *report);

#endif
