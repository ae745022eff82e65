/* proof.json: what the steps after a checkpoint were, so that anybody can repeat them.
 *
 *   {"format": "weft-proof", "version": 1, "step": 100, "fingerprint": of the checkpoint,
 *    "config": the resolved INI text that the steps were made under, "identity": who computed,
 *    "digest": XXH3-128 of the rest (compact, sorted keys),
 *    "steps": [{"step": 101, "samples": [...], "loss": "0x1.8p+1", "loss_decimal": 3.0,
 *               "grad_norm": hex, "lr": hex, "fingerprint": ..., "tensors": {"value/NAME": part of
 * the fingerprint, ...}}, ...]}
 *
 * A run keeps a list of its checkpoints whose next checkpoint.proof_steps steps haven't all
 * happened. When they have, and the checkpoint is published, the first rank writes the file. Where
 * a proof is there already (the run was resumed from that checkpoint), the steps are compared with
 * it instead, and a difference is a warning. */
#ifndef WEFT_RUN_PROOF_H
#define WEFT_RUN_PROOF_H

#include "run/trainer.h"

typedef struct Proofs Proofs;

/* NULL when checkpoint.proof_steps is 0 or memory is short. */
Proofs *proofs_open(const Trainer *trainer);

/* The run stands at a checkpoint: one that is being saved, or the one it was resumed from, at
 * `directory`. Same on all ranks. */
int proofs_begin(Proofs *proofs, const Trainer *trainer, const char *directory);

/* After a step. Collective over GROUP_GRID when a proof is under way. 0 or a negative code,
 * agreed. */
int proofs_step(Proofs *proofs, Trainer *trainer, const StepReport *report);

/* The checkpoint of `step` is published, or (published false) its save has failed: proofs that are
 * complete are written. A proof that can't be written is a warning. */
void proofs_published(Proofs *proofs, int64_t step, bool published);

/* At the end of the run: what there is of the unfinished ones is written. NULL is allowed. */
void proofs_close(Proofs *proofs);

#endif
