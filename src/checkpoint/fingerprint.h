/* The fingerprint: one 128-bit number for the training state and what defines it. It is the sum
 * modulo 2^128 of
 *   - a hash of (role and tensor name, global row-major index, bits) for every element of
 * parameters and moments
 *   - a hash of each tensor's name, shape and dtype
 *   - a hash of the function block (compact JSON, sorted keys) with step and tokens.
 * Nothing in it knows of shards, ranks or files: each owner of a piece adds up its own. No I/O, no
 * MPI. */
#ifndef WEFT_CHECKPOINT_FINGERPRINT_H
#define WEFT_CHECKPOINT_FINGERPRINT_H

#include "checkpoint/catalog.h"

#include <jansson.h>

/* Part of one piece: `data` is [piece.rows, piece.cols] with rows `ld` elements apart. */
Hash128 fingerprint_piece(const CatalogTensor *tensor, int role, ParamPiece piece, const real *data,
                          int64_t ld);

/* The part that isn't elements; to be added once. 0 or WEFT_RUNTIME. */
int fingerprint_identity(const Catalog *catalog, const json_t *function, int64_t step,
                         int64_t tokens, Hash128 *hash);

/* Hash of a JSON value, as compact text with sorted keys. 0 or WEFT_RUNTIME. */
int fingerprint_json(const json_t *value, Hash128 *hash);

#endif
