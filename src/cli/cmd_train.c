#include "cli/command.h"
#include "run/train.h"
#include "run/triggers.h"

int command_train(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    arguments_parse(&arguments, argc, argv, "stdre", "CONFIG",
                    "Trains. Layout, threads and interruptions change no bit of the result.");
    int status = arguments_config(&arguments, arguments.path, &config);
    if (!status) command_settle_waiting(&config, argv);
    triggers_catch();
    status = command_start(&grid, status);
    TrainOptions options = {arguments.tp, arguments.dp, arguments.resume, arguments.stop_at};
    if (!status) status = train_run(&config, &options, &grid);
    return command_finish(&grid, status);
}
