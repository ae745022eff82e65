/* A small parameter set for checkpoint tests: rows, columns and vectors that are split unevenly,
 * replicated tensors, whole groups as units. Every element of values and moments is a function of
 * its place in the whole tensor that no other element shares; gate holds +i and up -i, so that the
 * two can't pass for each other. */
#ifndef WEFT_TESTS_CHECKPOINT_PATTERN_H
#define WEFT_TESTS_CHECKPOINT_PATTERN_H

#include "base/files.h"
#include "checkpoint/checkpoint.h"

#define PATTERN_GATE "model.layers.0.mlp.gate_proj.weight"
#define PATTERN_UP   "model.layers.0.mlp.up_proj.weight"

typedef struct {
    ParamSet set;
    CheckpointState state; /* step 12, with a function, a details and an origin block */
    json_t *function, *details, *origin;
} PatternModel;

/* Allocated, all zero. What the rank `grid` says holds of a model on a logical grid. */
void pattern_open(PatternModel *model, const Grid *grid, int grid_tensor, int grid_data);
void pattern_close(PatternModel *model);

/* The element at a row-major index of the whole tensor. */
real pattern_value(int tensor, ParamRole role, int64_t index);
void pattern_fill(PatternModel *model);
int64_t pattern_mismatches(const PatternModel *model); /* elements on this rank that differ */

/* Where this rank holds an element, by its place in the whole tensor. */
real *pattern_element(const PatternModel *model, const char *tensor, ParamRole role, int64_t row,
                      int64_t col);

/* A new empty directory for one test. */
#define SCRATCH_PATH 64
void scratch_make(char path[SCRATCH_PATH]);

/* A run in one process without MPI: a run directory and a filled model on a grid of 8 x 3. */
typedef struct {
    Grid grid;
    PatternModel model;
    char run_dir[SCRATCH_PATH];
} SerialRun;
void serial_begin(SerialRun *run);
void serial_end(SerialRun *run);
void serial_save(SerialRun *run, int64_t step, int keep); /* must succeed */

/* A step's directory (file "") or a file in it. */
void serial_path(const SerialRun *run, int64_t step, const char *file, char path[FILES_PATH]);

/* Takes what the process prints to descriptor 1 or 2 in between; free() the text. */
typedef struct {
    int descriptor, before;
    char path[SCRATCH_PATH];
} Capture;
void capture_begin(Capture *capture, int descriptor);
char *capture_end(Capture *capture);

/* Whether two files have the same bytes; false when one can't be read. */
bool same_bytes(const char *a, const char *b);

#endif
