/* proof.json in a step directory: what the steps after the checkpoint were, so that anybody can
 * repeat them. The one file that is added to a published directory.
 *
 *   format "weft-proof", version 1
 *   step      of the checkpoint
 *   start     a state: that which training went on from, in memory, when the checkpoint was saved
 *   config    the resolved INI text that the steps were made under (not always the manifest's: a
 *             resume may change what steers)
 *   identity, layout   who computed them, on how many ranks
 *   data      XXH3-128 of the training data, as in the manifest
 *   steps     [state and {samples: [ids in order], loss, grad_norm, lr: exact, as C's %a prints
 * them, loss_decimal: for people}] of steps step + 1, step + 2, ... digest    XXH3-128 of all of
 * that (compact, sorted keys)
 *
 * A state is {step, fingerprint, tensors: {"value/NAME": part of the fingerprint, "moment1/NAME":
 * ...}}: what checkpoint_parts gives, on any layout and logical grid. A reshard must not copy the
 * file: the steps would sum in another order.
 *
 * `weft verify --deep` wants proof_file_check; what the steps' numbers should be only `weft replay`
 * can tell. No MPI. */
#ifndef WEFT_CHECKPOINT_PROOF_FILE_H
#define WEFT_CHECKPOINT_PROOF_FILE_H

#include "base/hash.h"

#include <jansson.h>
#include <stdbool.h>

#define PROOF_FILE "proof.json"

bool proof_file_exists(const char *directory);

/* Reads it and checks digest and fields: types, hashes, numbers, that the steps follow one another.
 * *proof is the caller's (json_decref), NULL on failure. 0, or WEFT_INPUT naming file and field. */
int proof_file_read(const char *directory, json_t **proof);

/* For a directory with a proof: reads it, and compares step and starting state with the manifest's
 * (of a manifest that manifest_open accepted). 0, also without a proof, or WEFT_INPUT. */
int proof_file_check(const char *directory, const json_t *manifest);

/* A proof without steps; the caller appends to its "steps". Takes `start` over. NULL with the error
 * set when memory is short (also for start NULL). */
json_t *proof_file_begin(int64_t step, json_t *start, const char *config, const char *identity,
                         const char *layout, Hash128 data);

/* Sets the digest and writes the file by rename. What is unfinished lies in the directory above, as
 * `.proof.json`: a published directory holds whole files alone. 0 or a negative code. */
int proof_file_write(json_t *proof, const char *directory);

#endif
