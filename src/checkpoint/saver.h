/* Saving while training goes on. A save takes a copy of the state; then a thread of each rank
 * writes that rank's files, and at last one of the first rank publishes the directory. The threads
 * make no MPI call: between the stages the ranks meet, when none is busy any more.
 *
 *     saver_open(&saver, grid, set, &places);           // memory for the copy
 *     saver_begin(saver, &state, run_dir);              // returns once the copy is taken
 *     after each step: any rank's saver_is_busy(saver)? if none's: saver_advance(saver)
 *     saver_finish(saver);                              // or wait for it
 *     saver_close(saver);
 *
 * A failure ends the save, not more: nothing of it is left behind, and the next may begin. */
#ifndef WEFT_CHECKPOINT_SAVER_H
#define WEFT_CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint.h"

typedef struct Saver Saver;

/* The set has its memory and keeps it. Collective over GROUP_GRID; agreed errors. */
int saver_open(Saver **saver, Grid *grid, const ParamSet *set, const CheckpointPlaces *places);
void saver_close(
    Saver *saver); /* waits for this rank's thread; what is unfinished is not published */

/* Bytes of the copy that this rank holds; what it will be for a set that is declared only: 0 or
 * WEFT_RUNTIME. */
size_t saver_bytes(const Saver *saver);
int saver_bytes_predicted(const ParamSet *set, const CheckpointPlaces *places, int tensor_rank,
                          int data_rank, size_t *bytes);

/* Checks the room on disk, makes the directory, takes the copy and starts writing. No save may be
 * under way. Collective over GROUP_GRID; agreed errors. */
int saver_begin(Saver *saver, const CheckpointState *state, const char *run_dir);

/* A save has begun and is neither published nor failed. The same on all ranks. */
bool saver_is_under_way(const Saver *saver);
int64_t saver_step(const Saver *saver); /* of the last that began */
bool saver_is_busy(Saver *saver);       /* this rank's thread is at work */

/* The ranks meet and the save goes on to its next stage: call it when no rank is busy (else it
 * waits). Afterwards the save may be over: published, or failed, which is the error returned.
 * Collective over GROUP_GRID; agreed errors. */
int saver_advance(Saver *saver);

/* Waits until the save is over; at once when there is none. Collective over GROUP_GRID; agreed
 * errors. */
int saver_finish(Saver *saver);

#endif
