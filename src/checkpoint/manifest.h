/* manifest.json: everything about a checkpoint that isn't an array.
 *
 *   format "weft-checkpoint", version 1, step, tokens, grid {tensor, data},
 *   function  what defines the training function and its position (object; fingerprinted)
 *   ...       the caller's other blocks
 *   tensors   [{name, shape, axis (-1: replicated), shards, dtype}] in the order of declaration
 *   shards    [{file, dataset, role, tensor, offset, count, digest}] in the order of the catalog
 *   view      {digest} of the bytes of checkpoint.h5
 *   fingerprint
 *   digest    XXH3-128 of all of that (compact, sorted keys), so that damage here is seen as it is
 * in the arrays origin    layout, machine, clock, and a digest of its own: the one block that may
 * differ between equal states
 *
 * A manifest comes from outside: every field is checked for presence, type and range before it is
 * used. */
#ifndef WEFT_CHECKPOINT_MANIFEST_H
#define WEFT_CHECKPOINT_MANIFEST_H

#include "checkpoint/catalog.h"
#include "checkpoint/checkpoint.h"

#define MANIFEST_FILE "manifest.json"

/* A sealed manifest, or NULL with the error set; json_decref it. */
json_t *manifest_assemble(const Catalog *catalog, const CheckpointState *state,
                          Hash128 fingerprint);

/* Sets the digests of a manifest and of its origin block. 0 or WEFT_RUNTIME. */
int manifest_seal(json_t *manifest);

int manifest_write(const json_t *manifest, const char *directory);

/* Reads and checks the manifest and makes its catalog; neither is left behind on failure. 0, or
 * WEFT_INPUT naming file and field. */
int manifest_open(const char *directory, json_t **manifest, Catalog *catalog);

/* Of a manifest that manifest_open accepted. */
Hash128 manifest_fingerprint(const json_t *manifest);
int64_t manifest_step(const json_t *manifest);
int64_t manifest_tokens(const json_t *manifest);

#endif
