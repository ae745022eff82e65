/* weft replay: the steps after a checkpoint, made again and compared with its proof.json. Nothing
 * is saved, evaluated or written.
 *
 *     replay_open(&replay, grid, path);       // finds the checkpoint; the config its steps had
 *     ... changes to a copy of replay.config, replay_check(&replay, &config) ...
 *     session_open(&session, grid, &config, tp, dp);
 *     replay_run(&replay, &config, &session, tolerance);   // not on surplus ranks
 *     replay_close(&replay); */
#ifndef WEFT_RUN_REPLAY_H
#define WEFT_RUN_REPLAY_H

#include "base/files.h"
#include "run/session.h"

#include <jansson.h>

typedef struct {
    char directory[FILES_PATH]; /* a good step directory with a proof */
    json_t *proof;
    Config config; /* with run.threads free again */
} Replay;

/* `path`: a step directory, or a run directory, whose newest good checkpoint with a proof is taken.
 * Collective over the world; agreed errors: WEFT_INPUT saying why there is no proof. */
int replay_open(Replay *replay, Grid *grid, const char *path);
void replay_close(Replay *replay); /* safe on zeroed memory and after a failed replay_open */

/* Whether `config` makes the steps that the proof is of: 0, or WEFT_USAGE naming the keys. */
int replay_check(const Replay *replay, const Config *config);

/* Repeats the steps, prints a row for each and the verdict. tolerance 0: all bits must be equal;
 * else loss and gradient norm may differ by that much relative, and fingerprints aren't compared
 * but the loaded state's, which owes nothing to the machine. Collective over GROUP_GRID. 0,
 * WEFT_CHECK when the verdict is fail, or another negative code. */
int replay_run(const Replay *replay, const Config *config, const Session *session,
               double tolerance);

#endif
