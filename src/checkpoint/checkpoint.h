/* Checkpoints: directories `step-00001000/` that hold the whole training state, independent of who
 * computed it.
 *
 *   shard-tTTT-dDDD.h5  for every (t, d) of the logical grid: datasets value/NAME, moment1/NAME,
 *                       moment2/NAME, each [rows, cols] (or [cols]), contiguous, with int64
 *                       attributes global_shape, offset, count and an int32 axis (-1: replicated).
 *                       Shard s of a tensor goes to t = s, a replicated one to t = 0; its piece d
 *                       (param_piece) to d. Empty pieces have no dataset; every file exists.
 *   checkpoint.h5       virtual datasets: NAME (value) at the root, moment1/NAME, moment2/NAME
 *   manifest.json       written last: what the state is, digests (XXH3-128) of every shard dataset,
 *                       fingerprint; its format stands in manifest.h
 *
 * Files depend on the logical grid and the state alone: byte for byte the same whatever the layout;
 * what depends on layout, machine or clock stands in the manifest's `origin` block.
 *
 * Published by rename of `.tmp-step-...`; there is no "latest" pointer: the newest directory that
 * verifies is the latest. Functions without a Grid need no MPI. */
#ifndef WEFT_CHECKPOINT_CHECKPOINT_H
#define WEFT_CHECKPOINT_CHECKPOINT_H

#include "base/files.h"
#include "comm/comm.h"
#include "param/param.h"

#include <jansson.h>

/* Which rank writes which files: axes of grid.tensor and grid.data shards, over the ranks. */
typedef struct {
    AxisLayout tensor_files; /* of t, over the tensor-parallel ranks */
    AxisLayout data_files;   /* of d, over the data-parallel ranks */
} CheckpointPlaces;

/* Which older checkpoints a save leaves. */
typedef struct {
    int keep;           /* newest ones; 0: all */
    int64_t keep_every; /* and those of steps that this divides; 0: none */
    bool keep_best;     /* and the one with the lowest held-out loss */
} CheckpointRetention;

/* What defines the run beside the tensors. The JSON blocks are borrowed. */
typedef struct {
    int grid_tensor, grid_data; /* logical grid */
    int64_t step, tokens;
    const json_t *function; /* object: what defines the function and position; fingerprinted,
                             * compared at resume */
    const json_t *details;  /* object: other blocks for the manifest's top level; may be NULL */
    const json_t *origin;   /* object: layout, machine, clock, "held_out_loss" where it is known;
                             * may be NULL */
    CheckpointPlaces places;
    CheckpointRetention retention;
} CheckpointState;

/* Fingerprint of the live state (fingerprint.h): what checkpoint_save would write into the
 * manifest. 0 or WEFT_RUNTIME, agreed. Collective over GROUP_GRID. */
int checkpoint_fingerprint(Grid *grid, const ParamSet *set, const CheckpointState *state,
                           Hash128 *fingerprint);

/* The same with its parts: parts[role * set->count + tensor], role as in catalog_roles, is the sum
 * over the elements of one tensor in one role. They add up, with what isn't elements, to the
 * fingerprint; none depends on layout or logical grid. parts may be NULL. */
int checkpoint_parts(Grid *grid, const ParamSet *set, const CheckpointState *state, Hash128 *parts,
                     Hash128 *fingerprint);

/* Writes, fsyncs, agrees, publishes `run_dir`/step-XXXXXXXX and removes older steps that the
 * retention doesn't keep. A directory of that step stays when it verifies and has the same
 * fingerprint; any other is replaced, once the new one is complete. A failed save leaves nothing
 * behind. Returns when it is done; saver.h is the way to go on meanwhile. Collective over
 * GROUP_GRID; agreed errors. */
int checkpoint_save(Grid *grid, const ParamSet *set, const CheckpointState *state,
                    const char *run_dir);

/* The directory to continue from: `path` is a step directory, which must be good, or a run
 * directory, whose newest good checkpoint is taken; bad ones are skipped with a line that says
 * which and why. `deep`: verify the content of all files, not only the manifest and that they
 * exist. *found gets the step directory, "" when a run directory has none at all. 0, or WEFT_INPUT:
 * no such directory, or checkpoints but no good one. One rank calls it and broadcasts. */
int checkpoint_find(const char *path, bool deep, char *found, size_t capacity);

/* Whether `path`, which need not exist, lies inside of a checkpoint: a file more makes it a bad
 * one.
 */
bool checkpoint_encloses(const char *path);

/* The newest checkpoint that `path` means, whether good or not: a step directory itself (*step is
 * then -1), or of a run directory the newest; "" and -1 when it has none. 0 or WEFT_INPUT. */
int checkpoint_newest(const char *path, char found[FILES_PATH], int64_t *step);

/* Reads and validates a manifest. *manifest is owned by the caller (json_decref), NULL on failure.
 * 0, or WEFT_INPUT naming file and field. */
int checkpoint_manifest(const char *directory, json_t **manifest);

/* Reads this rank's shards (values, and moments when the set has them) in global coordinates, from
 * a checkpoint of any logical grid; every piece that is read is checked against its digest. Names
 * missing or extra tensors and other shapes. Collective over GROUP_GRID; agreed errors. */
int checkpoint_load(Grid *grid, ParamSet *set, const char *directory);

/* Re-reads everything: files there and none extra, datasets, attributes, digests, each cell covered
 * once, the view's sources and what it shows, the fingerprint computed again from the data. 0, or
 * WEFT_CHECK with the first problem, naming file and dataset; all problems are log_error lines. */
int checkpoint_verify(const char *directory);

/* Prints (log_print) the manifest's blocks, a field a line, every tensor with global shape and cut,
 * with `pieces` also the pieces and their digests, and as the last line "fingerprint <32 hex
 * digits> step <n>". 0 or WEFT_INPUT. */
int checkpoint_inspect(const char *directory, bool pieces);

/* Differences between two `function` blocks, one per line: "key: checkpoint X, config Y", nested
 * keys as "ffn.activation"; NULL when there are none. free() it. */
char *checkpoint_differences(const json_t *checkpoint, const json_t *config);

/* The same between any two values, either of which may be NULL, in these words for their sides. */
char *checkpoint_differences_between(const json_t *left, const char *left_name, const json_t *right,
                                     const char *right_name);

#endif
