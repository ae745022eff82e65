#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "run/session.h"
#include "run/state.h"

#include <math.h>

static int evaluate(const Config *config, const char *directory, const Session *session) {
    Trainer trainer;
    HeldOut held;
    char text[128];
    int status = trainer_open(&trainer, config, session->grid, session->threads, false);
    if (!status && dataset_eval_batches(&trainer.data, 0) == 0)
        status = comm_agree(
            session->grid, GROUP_GRID,
            error_set(WEFT_USAGE, "data.held_out = 0: nothing is held out to evaluate on"));
    if (!status) status = state_load_values(&trainer, directory);
    if (!status) status = trainer_evaluate(&trainer, &held);
    if (!status && !isfinite(held.loss))
        status = comm_agree(
            session->grid, GROUP_GRID,
            error_set(WEFT_RUNTIME,
                      "%s: the held-out loss isn't finite: values of the held-out data, or of the "
                      "checkpoint (weft verify --deep), are too large",
                      directory));
    if (!status) {
        metrics_describe(trainer_words(&trainer), &held, text, sizeof text);
        log_print("held-out loss %s (%s)\n", text, directory);
    }
    if (!status || error_is_agreed()) trainer_close(&trainer);
    return status;
}

int command_eval(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    Session session;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "std", "DIR",
                    "Loss of a checkpoint on the held-out part.");
    int status = command_start(&grid, 0);
    if (!status) status = arguments_checkpoint(&arguments, &grid, directory, &config);
    if (!status) status = session_open(&session, &grid, &config, arguments.tp, arguments.dp);
    if (!status) {
        status = grid.surplus ? 0 : evaluate(&config, directory, &session);
        if (!status || error_is_agreed()) status = session_close(&session, status);
    }
    return command_finish(&grid, status);
}
