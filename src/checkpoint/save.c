/* checkpoint_save: a save that is waited for. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"

int checkpoint_save(Grid *grid, const ParamSet *set, const CheckpointState *state,
                    const char *run_dir) {
    Saver *saver;
    int status = saver_open(&saver, grid, set, &state->places);
    if (!status) status = saver_begin(saver, state, run_dir);
    if (!status) status = saver_finish(saver);
    saver_close(saver);
    return status;
}
