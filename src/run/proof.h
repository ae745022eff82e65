/* The proof of a checkpoint's continuation: what the steps after it were, in the checkpoint's
 * proof.json (format: checkpoint/proof_file.h).
 *
 *     proofs = proofs_open(&trainer);
 *     proofs_begin(proofs, &trainer, directory);      // after resuming, and when a save has begun
 *     after each step: proofs_step(proofs, &trainer, &report);
 *     proofs_published(proofs, step, true);           // once that directory is there
 *     proofs_close(proofs);
 *
 * A run keeps a list of its checkpoints whose next checkpoint.proof_steps steps haven't all
 * happened. When they have, and the checkpoint is published, the first rank writes the file. Where
 * a proof is there already (an interrupted run repeats its steps), it stays and the steps are
 * compared with it: a difference is a warning that names step and tensor. A checkpoint that is gone
 * again is passed over.
 *
 * Each step under proof, and each checkpoint that no such step led to, costs one hash of the state.
 */
#ifndef WEFT_RUN_PROOF_H
#define WEFT_RUN_PROOF_H

#include "run/trainer.h"

typedef struct Proofs Proofs;

/* NULL when checkpoint.proof_steps is 0 or memory is short (a warning). */
Proofs *proofs_open(const Trainer *trainer);

/* The trainer stands at a checkpoint: one that is being saved, or the one it was resumed from.
 * `directory`: where it is or will be. Same on all ranks. Collective over GROUP_GRID; 0 or a
 * negative code, agreed. */
int proofs_begin(Proofs *proofs, Trainer *trainer, const char *directory);

/* After a step. Collective over GROUP_GRID when a proof is under way. 0 or a negative code,
 * agreed. */
int proofs_step(Proofs *proofs, Trainer *trainer, const StepReport *report);

/* The checkpoint of `step` is published, or (published false) its save has failed: the first rank
 * has to be told, others may. A proof that can't be written is a warning. */
void proofs_published(Proofs *proofs, int64_t step, bool published);

/* At the end of the run: what there is of the unfinished ones is written. NULL is allowed. */
void proofs_close(Proofs *proofs);

#endif
