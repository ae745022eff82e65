/* Checkpoints of a decoder as `weft train` writes them, without MPI, data or training: for tests of
 * what reads them.
 *
 *     model_checkpoint_open(&made, "grid.tensor=4", "ffn.kind=dense", NULL);
 *     ... change values by model_checkpoint_whole / _put ...
 *     model_checkpoint_save(&made, run_dir);          // run_dir/step-00000003
 *     model_checkpoint_close(&made); */
#ifndef WEFT_TESTS_MODEL_CHECKPOINT_H
#define WEFT_TESTS_MODEL_CHECKPOINT_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "nn/model.h"

typedef struct {
    Config config;
    Model model;
    Grid grid;
    CheckpointState state; /* step 3 */
    json_t *function, *details, *origin;
} ModelCheckpoint;

/* A small model (3 layers, d_model 16, 12 channels, biases, a grid of 4 x 2) but for the settings
 * "section.key=value", a list that ends with NULL. declare: no memory; open: with values that are
 * all different, and moments. */
void model_checkpoint_declare(ModelCheckpoint *made, const char *const *settings);
void model_checkpoint_open(ModelCheckpoint *made, const char *const *settings);
void model_checkpoint_close(ModelCheckpoint *made);

/* A tensor's values as a whole, [rows, cols]: free() it. And back. */
real *model_checkpoint_whole(const ModelCheckpoint *made, int param);
void model_checkpoint_put(ModelCheckpoint *made, int param, const real *whole);

/* Must succeed. */
void model_checkpoint_save(ModelCheckpoint *made, const char *run_dir);

#endif
