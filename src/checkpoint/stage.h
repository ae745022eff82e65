/* The staged copy of what one rank writes: taken while the state stands still, written from then on
 * without the parameters and without other ranks. Opened once, used for save after save.
 *
 *     stage_open(&stage, set, &places, tensor_rank, data_rank); // catalog, one block of memory
 *     stage_begin(&stage, step);
 *     comm_move(grid, GROUP_TENSOR, stage.move, stage.moves); // the copy, from the owners
 *     stage_write(&stage, directory);             // digests from memory, then the files
 *     stage_close(&stage); */
#ifndef WEFT_CHECKPOINT_STAGE_H
#define WEFT_CHECKPOINT_STAGE_H

#include "checkpoint/catalog.h"
#include "checkpoint/checkpoint.h"

typedef struct {
    Catalog catalog;
    CheckpointPlaces places;
    int tensor_rank, data_rank;
    int64_t step;
    real **staged; /* by entry: its place in memory; NULL when another rank writes it */
    real *memory;
    size_t bytes; /* of memory */
    Piece *move;  /* from the owners' arenas into `memory`: the same list on all ranks of the tensor
                     group */
    int64_t moves;
    Hash128 *digest;  /* by entry, of what this rank wrote; zero for the rest */
    Hash128 elements; /* fingerprint part of what this rank wrote */
} Stage;

int stage_open(Stage *stage, const ParamSet *set, const CheckpointPlaces *places, int tensor_rank,
               int data_rank);
void stage_begin(Stage *stage, int64_t step);

/* Makes no MPI call and reads nothing but the stage: may run in a thread. 0 or WEFT_RUNTIME. */
int stage_write(Stage *stage, const char *directory);
void stage_close(Stage *stage);

/* Bytes of the copy on one rank, of a set that is declared (with or without memory). */
size_t stage_bytes(const Catalog *catalog, const CheckpointPlaces *places, int tensor_rank,
                   int data_rank);

#endif
