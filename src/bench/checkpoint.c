/* What saving and loading cost, into run.dir: the stall against one memcpy of the state, writing
 * and reading against plain ones of as many bytes, steps with a save beside them against steps
 * without. Reading is from the page cache, for both. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/figure.h"
#include "checkpoint/publish.h"
#include "run/directory.h"
#include "run/state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 10, PIECE = 8 << 20 };

typedef struct {
    Trainer trainer;
    Saver *saver;
    size_t bytes; /* of the state on this rank */
    char *from, *to;
    char path[FILES_PATH]; /* of what is written plainly */
    Series stall, stall_ratio, write, write_ratio, read, read_ratio, run_ratio, longest;
} CheckpointBench;

/* ---- plain ---- */

static int failed(const CheckpointBench *bench, const char *what) {
    return error_set(WEFT_RUNTIME, "%s: can't %s it: %s", bench->path, what, strerror(errno));
}

/* One write or read after another. */
static int transfer(CheckpointBench *bench, int file, bool write_it) {
    for (size_t at = 0; at < bench->bytes;) {
        size_t left = bench->bytes - at, size = left < PIECE ? left : PIECE;
        ssize_t done =
            write_it ? write(file, bench->from + at, size) : read(file, bench->to + at, size);
        if (done <= 0) return failed(bench, write_it ? "write" : "read");
        at += (size_t)done;
    }
    return write_it && fsync(file) ? failed(bench, "sync") : 0;
}

static int plain(CheckpointBench *bench, bool write_it, double *seconds) {
    double start = clock_seconds();
    int flags = write_it ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    int file = open(bench->path, flags | O_CLOEXEC, 0644);
    if (file < 0) return failed(bench, "open");
    int status = transfer(bench, file, write_it);
    close(file);
    *seconds = clock_seconds() - start;
    return status;
}

static double copy_seconds(CheckpointBench *bench) {
    double start = clock_seconds();
    memcpy(bench->to, bench->from, bench->bytes);
    return clock_seconds() - start;
}

/* ---- weft's ---- */

static int begin_save(CheckpointBench *bench, double *stall) {
    double start = clock_seconds();
    int status = state_save(&bench->trainer, bench->saver, NAN);
    *stall = clock_seconds() - start;
    return status;
}

/* After a step, as run/loop.c does it: seconds that it takes go into *longest if they are more. */
static int go_on(CheckpointBench *bench, double *longest) {
    if (!saver_is_under_way(bench->saver)) return 0;
    double start = clock_seconds();
    int64_t busy = saver_is_busy(bench->saver);
    comm_max_int64(bench->trainer.grid, GROUP_GRID, &busy, 1);
    int status = busy ? 0 : saver_advance(bench->saver);
    double taken = clock_seconds() - start;
    if (*longest < taken) *longest = taken;
    return status;
}

/* Ten steps, with a save that begins before them. */
static int run_steps(CheckpointBench *bench, bool save, double *seconds, double *longest) {
    StepReport report;
    double start = clock_seconds();
    *longest = 0;
    int status = save ? begin_save(bench, longest) : 0;
    for (int i = 0; i < STEPS && !status; i++) {
        report = (StepReport){0};
        status = trainer_step(&bench->trainer, &report);
        if (!status) status = go_on(bench, longest);
    }
    *seconds = clock_seconds() - start;
    return status ? status : saver_finish(bench->saver);
}

/* A save that nothing runs beside, and a load of it. */
static int save_and_load(CheckpointBench *bench, double *save, double *load) {
    char directory[FILES_PATH];
    double start = clock_seconds(), stall;
    int status = begin_save(bench, &stall);
    if (!status) status = saver_finish(bench->saver);
    *save = clock_seconds() - start;
    if (!status)
        status = publish_path(bench->trainer.config.run.dir, bench->trainer.step, directory);
    start = clock_seconds();
    if (!status) status = state_load(&bench->trainer, directory);
    *load = clock_seconds() - start;
    return status;
}

/* ---- measuring ---- */

static int take_pair(CheckpointBench *bench) {
    double without, with, longest, unused, save = 0, load = 0, write_it = 0, read_it = 0;
    int status = run_steps(bench, false, &without, &unused);
    double copy = copy_seconds(bench);
    if (!status) status = run_steps(bench, true, &with, &longest);
    if (!status) status = trainer_step(&bench->trainer, &(StepReport){0}); /* another step's name */
    if (!status) status = save_and_load(bench, &save, &load);
    if (!status) status = plain(bench, true, &write_it);
    if (!status) status = plain(bench, false, &read_it);
    if (status) return status;
    series_add(&bench->run_ratio, with / without);
    series_add(&bench->longest, longest);
    series_add(&bench->stall, copy);
    series_add(&bench->stall_ratio, longest / copy);
    series_add(&bench->write, (double)bench->bytes / save);
    series_add(&bench->write_ratio, write_it / save);
    series_add(&bench->read, (double)bench->bytes / load);
    series_add(&bench->read_ratio, read_it / load);
    return 0;
}

static void print(const CheckpointBench *bench) {
    log_print("state: %.1f MB on a rank; a save at the first of %d steps\n",
              (double)bench->bytes / 1e6, STEPS);
    series_print(&bench->longest, "longest stall", 1e-3, "ms");
    series_print(&bench->stall, "memcpy of the state", 1e-3, "ms");
    series_print(&bench->stall_ratio, "longest stall / memcpy", 1, "times its time");
    series_print(&bench->run_ratio, "10 steps with a save / without", 1, "times their time");
    series_print(&bench->write, "save, nothing beside it", 1e6, "MB/s a rank");
    series_print(&bench->write_ratio, "save / plain write and fsync", 1, "of its bytes/s");
    series_print(&bench->read, "load", 1e6, "MB/s a rank");
    series_print(&bench->read_ratio, "load / plain read", 1, "of its bytes/s");
}

static int measure(CheckpointBench *bench, int pairs) {
    double seconds, longest;
    int status = run_steps(bench, true, &seconds, &longest); /* warms up */
    for (int i = 0; i < pairs && !status; i++) {
        status = take_pair(bench);
        log_info("pair %d of %d", i + 1, pairs);
    }
    if (!status) print(bench);
    return status;
}

/* The directory is this bench's own, as a run's would be. */
static int claim(Grid *grid, const Config *config, int *held) {
    int status = 0;
    if (group_rank(grid, GROUP_GRID) == 0) status = directory_claim(config->run.dir, false, held);
    return comm_agree(grid, GROUP_GRID, status);
}

static int open_all(CheckpointBench *bench, const Config *config, const Bench *given) {
    Trainer *trainer = &bench->trainer;
    int status = trainer_open(trainer, config, given->grid, given->threads, true);
    if (!status) status = trainer_survey(trainer);
    if (status) return status;
    CheckpointPlaces places = state_places(config, given->grid->tp, given->grid->dp);
    status = saver_open(&bench->saver, given->grid, &trainer->model.set, &places);
    if (status) return status;
    bench->bytes = saver_bytes(bench->saver);
    bench->from = memory_allocate(bench->bytes, "a copy of the state");
    bench->to = memory_allocate(bench->bytes, "a copy of the state");
    if (bench->from) memset(bench->from, 1, bench->bytes);
    if (bench->to) memset(bench->to, 2, bench->bytes);
    char name[32];
    snprintf(name, sizeof name, "plain-%d", given->grid->world_rank);
    status = files_join(bench->path, sizeof bench->path, config->run.dir, name);
    if (!bench->from || !bench->to) status = WEFT_RUNTIME;
    return comm_agree(given->grid, GROUP_GRID, status);
}

int bench_checkpoint(const Bench *bench) {
    CheckpointBench checkpoint = {.bytes = 0};
    Config config = *bench->config;
    int held = -1;
    config.train.steps = 1000000; /* more than are done: the schedule has no end here */
    int status = claim(bench->grid, &config, &held);
    if (status) return status;
    status = open_all(&checkpoint, &config, bench);
    if (!status) status = measure(&checkpoint, bench->pairs);
    if (status && !error_is_agreed()) return status;
    unlink(checkpoint.path);
    if (checkpoint.saver) saver_close(checkpoint.saver);
    trainer_close(&checkpoint.trainer);
    free(checkpoint.from);
    free(checkpoint.to);
    if (held >= 0) directory_leave(held);
    return status;
}
