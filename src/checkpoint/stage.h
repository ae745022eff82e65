/* The staged copy of what one rank writes: taken while the state stands still, written from then on
 * without the parameters and without other ranks.
 *
 *     stage_open(&stage, set, state, grid);       // catalog and one block of memory
 *     comm_move(grid, GROUP_TENSOR, stage.move, stage.moves); // the copy, from the owners
 *     stage_write(&stage, directory);             // digests from memory, then the files
 *     stage_close(&stage); */
#ifndef WEFT_CHECKPOINT_STAGE_H
#define WEFT_CHECKPOINT_STAGE_H

#include "checkpoint/catalog.h"
#include "checkpoint/checkpoint.h"

typedef struct {
    Catalog catalog;
    AxisLayout tensor_files, data_files;
    int tensor_rank, data_rank;
    real **staged; /* by entry: its place in memory; NULL when another rank writes it */
    real *memory;
    Piece *move; /* from the owners' arenas into `memory`: the same list on all ranks of the tensor
                    group */
    int64_t moves;
    Hash128 *digest;  /* by entry, of what this rank wrote; zero for the rest */
    Hash128 elements; /* fingerprint part of what this rank wrote */
} Stage;

int stage_open(Stage *stage, const ParamSet *set, const CheckpointState *state, const Grid *grid);
int stage_write(Stage *stage, const char *directory);
void stage_close(Stage *stage);

#endif
