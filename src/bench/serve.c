/* Steps on demand, so that programs that are to be compared take turns (tests/bench/pairs). The
 * first rank prints `ready` and answers each line of stdin by a line whose first number is what was
 * asked:
 *
 *     step      SECONDS LOSS     one training step
 *     gemm      SECONDS RATE     2048 squared by BLAS, the better way; operations per second
 *     memory    BYTES            largest resident sets so far, of all ranks
 *     quit, or the end of stdin  ends it
 *
 * All ranks sleep while it waits. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/yardstick.h"
#include "run/trainer.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    Trainer trainer;
    Yardstick yardstick;
} Server;

static int serve_step(Server *server) {
    StepReport report = {0};
    comm_barrier(server->trainer.grid, GROUP_GRID);
    int status = trainer_step(&server->trainer, &report);
    comm_barrier(server->trainer.grid, GROUP_GRID);
    if (!status) log_print("%.9f %.9g\n", report.seconds, report.loss);
    return status;
}

/* The yardstick takes no memory before it is asked for. */
static int serve_gemm(Server *server) {
    const Trainer *trainer = &server->trainer;
    int status = 0;
    if (!server->yardstick.a)
        status = yardstick_open(&server->yardstick, trainer->grid, trainer->threads, NULL, 0);
    if (status) return status;
    double rate = yardstick_square_rates(&server->yardstick).best;
    log_print("%.9f %.6g\n", shape_operations(yardstick_square) / rate, rate);
    return 0;
}

static int serve_memory(Server *server) {
    int64_t bytes = memory_peak_resident();
    comm_sum_int64(server->trainer.grid, GROUP_GRID, &bytes, 1);
    log_print("%lld\n", (long long)bytes);
    return 0;
}

static const struct {
    const char *name;
    int (*serve)(Server *server);
} requests[] = {{"step", serve_step}, {"gemm", serve_gemm}, {"memory", serve_memory}};

enum { REQUESTS = sizeof requests / sizeof *requests, QUIT = REQUESTS };

/* The next line that is known. */
static int64_t read_request(void) {
    char line[64];
    while (fflush(stdout), fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!strcmp(line, "quit")) break;
        for (int64_t i = 0; i < REQUESTS; i++)
            if (!strcmp(line, requests[i].name)) return i;
        log_print("unknown: %s: step, gemm, memory, quit\n", line);
    }
    return QUIT;
}

static int serve(Server *server) {
    Grid *grid = server->trainer.grid;
    int status = 0;
    log_print("ready\n");
    for (int64_t request = 0; request != QUIT && !status;) {
        if (group_rank(grid, GROUP_GRID) == 0) request = read_request();
        comm_await(grid, GROUP_GRID, &request);
        if (request < QUIT) status = requests[request].serve(server);
    }
    return status;
}

static int run(const Bench *bench) {
    Server server = {.yardstick = {0}};
    StepReport warm = {0};
    int status = trainer_open(&server.trainer, bench->config, bench->grid, bench->threads, true);
    if (!status) status = trainer_survey(&server.trainer);
    if (!status) status = trainer_step(&server.trainer, &warm);
    if (!status) status = serve(&server);
    if (status && !error_is_agreed()) return status;
    yardstick_close(&server.yardstick);
    trainer_close(&server.trainer);
    return status;
}

const BenchPart bench_server = {"serve", "steps on demand", run};
