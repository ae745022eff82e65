#include "run/reshard.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"
#include "checkpoint/reshard.h"
#include "checkpoint/verify.h"
#include "run/known_row.h"
#include "run/place.h"
#include "run/setup.h"
#include "run/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const ReshardRequest *request;
    Place place;
    char step[FILES_PATH]; /* the step directory in place.made */
    Config config;         /* of the continuation */
    Reader source;
    Model model;
    Catalog target;
    Reshard job;
    double started, shown; /* clock */
    int columns;           /* of the terminal that sees the progress; 0: there is none */
} Work;

/* ---- what is asked for ---- */

static int open_source(Work *work) {
    char directory[FILES_PATH];
    const char *from = work->request->from;
    int status = checkpoint_find(from, false, directory, sizeof directory);
    if (!status && !directory[0])
        status = error_set(WEFT_INPUT, "%s: there is no checkpoint in it", from);
    return status ? status : reader_open(&work->source, directory);
}

/* A config file must be able to say it. */
static int check_readable(const Config *config, const char *out) {
    Config again;
    char *text = config_format(config);
    if (!text) return error_set(WEFT_RUNTIME, "out of memory: config");
    config_defaults(&again);
    int status = config_read_text(&again, text, "the new config");
    free(text);
    if (status || !strcmp(again.run.dir, config->run.dir)) return status;
    return error_set(WEFT_USAGE, "--out %s: no config can say this as its run.dir", out);
}

static int make_config(Work *work) {
    const ReshardRequest *request = work->request;
    Config *config = &work->config;
    if (state_config(work->source.directory, config))
        return error_set(WEFT_INPUT, "%s", error_message());
    int data = request->data ? request->data : work->source.catalog.grid_data;
    if (request->tensor > SHARD_MAX || data > SHARD_MAX)
        return error_set(WEFT_USAGE, "--tensor %d, --data %d: at most %d are possible",
                         request->tensor, data, SHARD_MAX);
    config->grid.tensor = request->tensor;
    config->grid.data = data;
    if (strlen(work->place.out) >= sizeof config->run.dir)
        return error_set(WEFT_USAGE, "--out %s: a run.dir has at most %zu bytes", work->place.out,
                         sizeof config->run.dir - 1);
    memcpy(config->run.dir, work->place.out, strlen(work->place.out) + 1);
    int status = check_readable(config, work->place.out);
    if (status) return status;
    if (config_check(config))
        return error_prefix(WEFT_USAGE, "a grid of %d x %d isn't possible: ", request->tensor,
                            data);
    return 0;
}

static int make_target(Work *work) {
    ModelConfig shape = setup_model(&work->config, work->config.train.micro_batch, 1);
    int status = model_declare(&work->model, &shape, 0, 1);
    if (!status)
        status = catalog_from_shapes(&work->target, &work->model.set, work->source.catalog.roles,
                                     (int)work->config.grid.tensor, (int)work->config.grid.data);
    work->job =
        (Reshard){.source = &work->source, .target = &work->target, .elements = RESHARD_ELEMENTS};
    return status ? status : reshard_match(&work->job);
}

/* ---- the plan ---- */

static void print_plan(const Work *work) {
    const Catalog *source = &work->source.catalog, *target = &work->target;
    log_print("%s (grid %d x %d) -> %s (grid %d x %d)\n", work->source.directory,
              source->grid_tensor, source->grid_data, work->place.out, target->grid_tensor,
              target->grid_data);
    reshard_print(&work->job);
    log_print("total: %d shard files with %" PRId64 " datasets, %" PRId64 " bytes of values; "
              "blocks of %.1f MB in memory\n",
              target->grid_tensor * target->grid_data, target->entries, reshard_bytes(&work->job),
              (double)reshard_memory(&work->job) / 1e6);
}

/* ---- doing it ---- */

static void show_progress(void *context, int64_t written, int64_t total) {
    enum { BAR = 24 };
    static const double interval = 0.1; /* seconds between two pictures */
    Work *work = context;
    double now = clock_seconds(), passed = now - work->started;
    if (!work->columns || (now - work->shown < interval && written < total) || passed <= 0) return;
    work->shown = now;
    double rate = (double)written / passed, part = total ? (double)written / (double)total : 1;
    char bar[BAR + 1] = "", text[200];
    memset(bar, ' ', BAR);
    memset(bar, '#', (size_t)(part * BAR));
    snprintf(text, sizeof text, "reshard [%s] %.2f / %.2f GB, %.0f MB/s, %.0f s left", bar,
             (double)written / 1e9, (double)total / 1e9, rate / 1e6,
             rate > 0 ? (double)(total - written) / rate : 0.0);
    log_progress(text, work->columns - 1, written == total);
}

static int begin_aside(Work *work) {
    int status = place_begin(&work->place);
    if (!status)
        status = publish_path(work->place.made, manifest_step(work->source.manifest), work->step);
    return status ? status : files_make_directories(work->step);
}

/* Every element has its part in the sum: equal fingerprints prove that all have arrived. */
static int check_fingerprint(const Work *work, Hash128 elements) {
    Hash128 found, wanted = manifest_fingerprint(work->source.manifest);
    const char *from = work->source.directory;
    int status = fingerprint_identity(
        &work->target, json_object_get(work->source.manifest, "function"),
        manifest_step(work->source.manifest), manifest_tokens(work->source.manifest), &found);
    if (status || hash_equal(hash_add(found, elements), wanted)) return status;
    if (verify_directory(from, false))
        return error_set(WEFT_INPUT, "%s is damaged, nothing is made of it: %s", from,
                         error_message());
    return error_set(WEFT_RUNTIME,
                     "%s verifies, but what was read of it had another fingerprint: memory or "
                     "hardware is at fault; nothing is made of it",
                     from);
}

/* The config's blocks, and those of the source that the config doesn't tell. */
static json_t *make_details(const Work *work) {
    static const char *const others[] = {"format", "version",     "step",    "tokens",
                                         "grid",   "function",    "tensors", "shards",
                                         "view",   "fingerprint", "origin",  "digest"};
    const char *key;
    json_t *value, *details = config_details(&work->config);
    json_object_foreach(work->source.manifest, key, value) {
        bool other = json_object_get(details, key);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            other |= !strcmp(key, others[i]);
        if (!other && json_object_set(details, key, value)) {
            json_decref(details);
            return NULL;
        }
    }
    return details;
}

/* Where it comes from stays; with it, that it was cut anew. */
static json_t *make_origin(const Work *work) {
    char stamp[64];
    const Catalog *from = &work->source.catalog, *to = &work->target;
    json_t *origin = json_deep_copy(json_object_get(work->source.manifest, "origin"));
    char *config = config_format(&work->config);
    clock_stamp(stamp, sizeof stamp);
    json_t *list = json_object_get(origin, "resharded");
    if (!json_is_array(list)) {
        list = json_array();
        json_object_set_new(origin, "resharded", list);
    }
    int failed =
        !config || json_object_set_new(origin, "config", json_string(config)) ||
        json_array_append_new(
            list, json_pack("{s:{s:i, s:i}, s:{s:i, s:i}, s:s, s:s}", "from", "tensor",
                            from->grid_tensor, "data", from->grid_data, "to", "tensor",
                            to->grid_tensor, "data", to->grid_data, "written", stamp, "note",
                            "state kept exactly; sums follow the new grid's trees"));
    free(config);
    if (!failed) return origin;
    json_decref(origin);
    return NULL;
}

static int write_manifest(const Work *work) {
    const json_t *old = work->source.manifest;
    json_t *details = make_details(work), *origin = make_origin(work), *manifest = NULL;
    int status = details && origin ? 0 : error_set(WEFT_RUNTIME, "out of memory: manifest");
    CheckpointState state = {.step = manifest_step(old),
                             .tokens = manifest_tokens(old),
                             .function = json_object_get(old, "function"),
                             .details = details,
                             .origin = origin};
    if (!status) {
        manifest = manifest_assemble(&work->target, &state, manifest_fingerprint(old));
        status = manifest ? manifest_write(manifest, work->step) : WEFT_RUNTIME;
    }
    json_decref(manifest);
    json_decref(details);
    json_decref(origin);
    return status;
}

static int check_known_row(Work *work) {
    Reader made;
    int status = reader_open(&made, work->step);
    if (!status) status = known_row_compare(&work->source, &made, &work->model);
    reader_close(&made);
    return status == WEFT_CHECK
               ? error_set(WEFT_RUNTIME, "%s; nothing is published", error_message())
               : status;
}

static int write_config(const Work *work) {
    char path[FILES_PATH];
    int status = files_join(path, sizeof path, work->place.made, "config.ini");
    char *text = status ? NULL : config_format(&work->config);
    if (!status)
        status = text ? files_write(path, text, strlen(text))
                      : error_set(WEFT_RUNTIME, "out of memory: config");
    free(text);
    return status;
}

static int publish(const Work *work) {
    int status = files_sync(work->step);
    return status ? status : place_publish(&work->place);
}

static int build(Work *work) {
    Hash128 elements;
    int status = reshard_write(&work->job, work->step, &elements);
    if (!status) status = check_fingerprint(work, elements);
    if (!status) status = write_manifest(work);
    if (!status) status = check_known_row(work);
    if (!status) status = write_config(work);
    return status ? status : publish(work);
}

static void tell(const Work *work) {
    char text[HASH_TEXT];
    double seconds = clock_seconds() - work->started, bytes = (double)reshard_bytes(&work->job);
    const Catalog *from = &work->source.catalog, *to = &work->target;
    log_info("%s: %s on a grid of %d x %d instead of %d x %d, %.3f GB in %.1f s (%.0f MB/s)",
             work->place.out, work->source.directory, to->grid_tensor, to->grid_data,
             from->grid_tensor, from->grid_data, bytes / 1e9, seconds, bytes / 1e6 / seconds);
    hash_format(manifest_fingerprint(work->source.manifest), text);
    log_print("fingerprint %s step %" PRId64 "\n", text, manifest_step(work->source.manifest));
}

static int run(Work *work) {
    int status = place_check_space(&work->place, catalog_disk_bytes(&work->target));
    if (status) return status;
    work->started = clock_seconds();
    work->columns = log_terminal_columns();
    work->job.progress = show_progress;
    work->job.context = work;
    status = begin_aside(work);
    if (!status) status = build(work);
    place_leave(&work->place);
    if (!status) tell(work);
    return status;
}

int reshard_directory(const ReshardRequest *request) {
    Work *work = calloc(1, sizeof *work);
    if (!work) return error_set(WEFT_RUNTIME, "out of memory: reshard");
    work->request = request;
    int status = place_choose(&work->place, request->out);
    if (!status) status = place_check_source(&work->place, request->from);
    if (!status) status = open_source(work);
    if (!status) status = make_config(work);
    if (!status) status = make_target(work);
    if (!status && request->dry_run)
        print_plan(work);
    else if (!status)
        status = run(work);
    free(work->job.from);
    catalog_release(&work->target);
    model_forget(&work->model);
    reader_close(&work->source);
    free(work);
    return status;
}
