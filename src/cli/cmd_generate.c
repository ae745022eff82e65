#include "cli/command.h"
#include "run/generate.h"

int command_generate(int argc, char **argv) {
    Arguments arguments;
    Config config;
    Grid grid;
    char directory[FILES_PATH];
    arguments_parse(&arguments, argc, argv, "stbpTS", "DIR",
                    "Text written by a checkpoint, byte by byte.");
    int status = command_start(&grid, 0);
    if (!status) status = arguments_checkpoint(&arguments, &grid, directory, &config);
    GenerateOptions options = {directory,       arguments.prompt,
                               arguments.bytes, arguments.temperature,
                               arguments.seed,  arguments.tp};
    if (!status) status = generate_run(&config, &options, &grid);
    return command_finish(&grid, status);
}
