#include "run/state.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/log.h"
#include "build_id.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/publish.h"
#include "run/declared.h"
#include "run/directory.h"
#include "run/identity.h"
#include "run/normalisation.h"
#include "run/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The JSON blocks that a CheckpointState borrows. */
typedef struct {
    json_t *function, *details, *origin;
} Blocks;

static void blocks_release(Blocks *blocks) {
    json_decref(blocks->function);
    json_decref(blocks->details);
    json_decref(blocks->origin);
}

/* What depends on layout, machine or clock. */
static json_t *origin_block(const Trainer *trainer) {
    char host[256] = "", stamp[64];
    gethostname(host, sizeof host - 1);
    clock_stamp(stamp, sizeof stamp);
    const Grid *grid = trainer->grid;
    const Config *config = &trainer->config;
    return json_pack("{s:{s:i, s:i, s:i, s:i, s:b}, s:s, s:s, s:s, s:s, s:s}", "layout", "tp",
                     grid->tp, "dp", grid->dp, "ranks", grid->world_size, "threads",
                     trainer->threads, "sequence", config->parallel.sequence, "recompute",
                     config->train.recompute, "reduction", config->grid.reduction, "host", host,
                     "written", stamp, "identity", identity_text());
}

static json_t *implementation_block(void) {
    return json_pack("{s:s, s:s, s:i, s:s, s:s}", "project", "weft", "revision", WEFT_REVISION,
                     "numerics_version", NUMERICS_VERSION, "file", "src/run/trainer.c", "symbol",
                     "trainer_step");
}

/* What the config and the data's normalisation define. New reference, NULL when memory is short. */
static json_t *function_block(const Trainer *trainer) {
    const Normalisation *normalisation = &trainer->data.normalisation;
    json_t *function = config_function(&trainer->config, trainer->data.order.samples);
    char digest[HASH_TEXT];
    if (!function || !normalisation->number) return function;
    normalisation_digest(normalisation, digest);
    if (!json_object_set_new(function, "normalisation", json_string(digest))) return function;
    json_decref(function);
    return NULL;
}

/* held_out: the loss at this state, NAN when it isn't known. */
static int make_blocks(const Trainer *trainer, double held_out, Blocks *blocks) {
    char *text = config_format(&trainer->config);
    *blocks =
        (Blocks){function_block(trainer), config_details(&trainer->config), origin_block(trainer)};
    const Normalisation *normalisation = &trainer->data.normalisation;
    int failed = !text || !blocks->function || !blocks->details || !blocks->origin;
    if (!failed) {
        char digest[HASH_TEXT];
        hash_format(trainer->data_digest, digest);
        failed =
            json_object_set_new(blocks->details, "implementation", implementation_block()) ||
            json_object_set_new(blocks->details, "training_data_digest", json_string(digest)) ||
            json_object_set_new(blocks->origin, "config", json_string(text)) ||
            (normalisation->number && json_object_set_new(blocks->details, "normalisation",
                                                          normalisation_json(normalisation))) ||
            (isfinite(held_out) &&
             json_object_set_new(blocks->origin, "held_out_loss", json_real(held_out)));
    }
    free(text);
    return failed ? error_set(WEFT_RUNTIME, "out of memory: manifest") : 0;
}

CheckpointPlaces state_places(const Config *config, int tp, int dp) {
    int tensor = (int)config->grid.tensor, data = (int)config->grid.data;
    return (CheckpointPlaces){axis_layout(tensor, tensor, tp), axis_layout(data, data, dp)};
}

static CheckpointState checkpoint_state(const Trainer *trainer, const Blocks *blocks) {
    const Config *config = &trainer->config;
    return (CheckpointState){
        .grid_tensor = (int)config->grid.tensor,
        .grid_data = (int)config->grid.data,
        .step = trainer->step,
        .tokens = trainer->tokens_seen,
        .function = blocks->function,
        .details = blocks->details,
        .origin = blocks->origin,
        .places = state_places(config, trainer->grid->tp, trainer->grid->dp),
        .retention = {(int)config->checkpoint.keep, config->checkpoint.keep_every,
                      config->checkpoint.keep_best},
    };
}

int state_parts(Trainer *trainer, Hash128 *parts, Hash128 *fingerprint) {
    Blocks blocks;
    int status = comm_agree(trainer->grid, GROUP_GRID, make_blocks(trainer, NAN, &blocks));
    if (!status) {
        CheckpointState state = checkpoint_state(trainer, &blocks);
        status = checkpoint_parts(trainer->grid, &trainer->model.set, &state, parts, fingerprint);
    }
    blocks_release(&blocks);
    return status;
}

int state_fingerprint(Trainer *trainer, Hash128 *fingerprint) {
    return state_parts(trainer, NULL, fingerprint);
}

int state_save(Trainer *trainer, Saver *saver, double held_out) {
    Blocks blocks;
    const char *run_dir = trainer->config.run.dir;
    int status = fault_point(PHASE_SAVE);
    int made = make_blocks(trainer, held_out, &blocks);
    if (!status) status = made;
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (!status) {
        CheckpointState state = checkpoint_state(trainer, &blocks);
        status = saver_begin(saver, &state, run_dir);
    }
    blocks_release(&blocks);
    return status;
}

int state_config(const char *directory, Config *config) {
    json_t *manifest;
    int status = checkpoint_manifest(directory, &manifest);
    if (status) return status;
    const char *text =
        json_string_value(json_object_get(json_object_get(manifest, "origin"), "config"));
    config_defaults(config);
    status = text ? config_read_text(config, text, directory)
                  : error_set(WEFT_INPUT, "%s: its manifest holds no config", directory);
    if (!status) status = declared_check(manifest, directory);
    json_decref(manifest);
    return status;
}

/* One rank looks and tells: all must take the same directory. "" when there is none. */
static int find_together(Trainer *trainer, const char *from, char *found, size_t capacity) {
    int status = 0;
    found[0] = '\0';
    if (group_rank(trainer->grid, GROUP_GRID) == 0)
        status = checkpoint_find(from, true, found, capacity);
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (!status) comm_broadcast(trainer->grid, GROUP_GRID, found, capacity, 0);
    return status;
}

/* The state is bound to its logical grid: another one sums in another order. */
static int check_grid(const Config *config, const json_t *manifest, const char *directory) {
    const json_t *grid = json_object_get(manifest, "grid");
    int64_t tensor = json_integer_value(json_object_get(grid, "tensor"));
    int64_t data = json_integer_value(json_object_get(grid, "data"));
    if (tensor == config->grid.tensor && data == config->grid.data) return 0;
    return error_set(
        WEFT_USAGE,
        "%s: made on logical grid tensor %lld x data %lld, the config has %lld x %lld: sums "
        "would go another way; set grid.tensor and grid.data to the checkpoint's (the number "
        "of ranks is free)",
        directory, (long long)tensor, (long long)data, (long long)config->grid.tensor,
        (long long)config->grid.data);
}

/* For tests: an activation that the checkpoint doesn't have passes for its own. */
static void ignore_activation(const json_t *manifest, json_t *now) {
    const json_t *ffn = json_object_get(json_object_get(manifest, "function"), "ffn");
    json_t *theirs = json_object_get(ffn, "activation");
    if (fault_on("another-activation") && theirs)
        json_object_set(json_object_get(now, "ffn"), "activation", theirs);
}

/* Without what no config tells, the normalisation's digest (normalisation_take compares that), and,
 * where `samples` is 0, without the sample order. */
static int check_function(const Config *config, int64_t samples, const json_t *manifest,
                          const char *directory) {
    json_t *theirs = json_copy(json_object_get(manifest, "function"));
    json_t *now = config_function(config, samples);
    int status = theirs && now ? 0 : error_set(WEFT_RUNTIME, "out of memory: manifest");
    char *differences = NULL;
    if (!status) {
        ignore_activation(manifest, now);
        json_object_del(theirs, "normalisation");
        if (samples == 0) json_object_del(theirs, "sample_order");
        if (samples == 0) json_object_del(now, "sample_order");
        differences = checkpoint_differences(theirs, now);
    }
    if (differences)
        status = error_set(WEFT_USAGE, "%s: the config describes another function:\n%s%s",
                           directory, differences,
                           strstr(differences, "sample_order.samples")
                               ? "\n(samples follow from data.train, data.held_out, model.context)"
                               : "");
    json_decref(theirs);
    json_decref(now);
    free(differences);
    return status;
}

int state_check_function(const Config *config, const char *directory) {
    json_t *manifest;
    int status = checkpoint_manifest(directory, &manifest);
    if (status) return status;
    status = check_function(config, 0, manifest, directory);
    json_decref(manifest);
    return status;
}

/* What only steers the future: printed, and taken from the config. */
static void tell_changes(const Trainer *trainer, const json_t *manifest, const char *directory) {
    Config before;
    if (!state_config(directory, &before)) {
        char *changes = config_changes(&trainer->config, &before);
        if (changes) log_info("changed since the checkpoint:\n%s", changes);
        free(changes);
    } else {
        log_warn("what has changed since the checkpoint can't be told: %s", error_message());
    }
    error_clear();
    char digest[HASH_TEXT];
    hash_format(trainer->data_digest, digest);
    const char *old = json_string_value(json_object_get(manifest, "training_data_digest"));
    if (old && strcmp(old, digest))
        log_warn("%s isn't the data that the checkpoint was trained on",
                 trainer->config.data.train);
    const char *identity =
        json_string_value(json_object_get(json_object_get(manifest, "origin"), "identity"));
    if (identity && strcmp(identity, identity_text()))
        log_info("the checkpoint was computed by (%s), this is (%s): bits may differ from here on",
                 identity, identity_text());
}

static int take_manifest(Trainer *trainer, const char *directory, bool tells) {
    json_t *manifest;
    int status = checkpoint_manifest(directory, &manifest);
    if (status) return status;
    status = declared_check(manifest, directory);
    if (!status) status = check_grid(&trainer->config, manifest, directory);
    if (!status)
        status = check_function(&trainer->config, trainer->data.order.samples, manifest, directory);
    if (!status) status = normalisation_take(&trainer->data.normalisation, manifest, directory);
    if (!status) {
        trainer->step = json_integer_value(json_object_get(manifest, "step"));
        trainer->tokens_seen = json_integer_value(json_object_get(manifest, "tokens"));
        if (tells && group_rank(trainer->grid, GROUP_GRID) == 0)
            tell_changes(trainer, manifest, directory);
    }
    json_decref(manifest);
    return status;
}

/* For tests: what a resume would do that forgets a part of the state. */
static void forget(Trainer *trainer) {
    ParamSet *set = &trainer->model.set;
    if (fault_on("lose-moments")) {
        memset(set->arena[PARAM_MOMENT1], 0, params_bytes(set, 1));
        memset(set->arena[PARAM_MOMENT2], 0, params_bytes(set, 1));
    }
    if (fault_on("restart-rate")) trainer->forgotten.by_schedule = trainer->step;
    if (fault_on("lose-step")) trainer->forgotten.by_optimizer = trainer->step;
}

int state_resume(Trainer *trainer, const char *from, char directory[FILES_PATH]) {
    bool automatic = !strcmp(from, "auto");
    if (group_rank(trainer->grid, GROUP_GRID) == 0) publish_recover(trainer->config.run.dir);
    int status =
        find_together(trainer, automatic ? trainer->config.run.dir : from, directory, FILES_PATH);
    if (status) return status;
    if (!directory[0] && automatic) {
        log_info("%s holds no checkpoint: starting at step 0", trainer->config.run.dir);
        return 0;
    }
    if (!directory[0])
        return comm_agree(trainer->grid, GROUP_GRID,
                          error_set(WEFT_INPUT, "--resume %s: there is no checkpoint in it", from));
    status = fault_point(PHASE_LOAD);
    if (!status) status = take_manifest(trainer, directory, true);
    if (!status && !automatic && group_rank(trainer->grid, GROUP_GRID) == 0)
        status = directory_check_branch(trainer->config.run.dir, directory, trainer->step);
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (!status) status = checkpoint_load(trainer->grid, &trainer->model.set, directory);
    forget(trainer);
    if (!status) log_info("resuming from %s at step %lld", directory, (long long)trainer->step);
    return status;
}

int state_load(Trainer *trainer, const char *directory) {
    int status = fault_point(PHASE_LOAD);
    if (!status) status = take_manifest(trainer, directory, false);
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    if (!status) status = checkpoint_load(trainer->grid, &trainer->model.set, directory);
    forget(trainer);
    return status;
}

int state_load_values(Trainer *trainer, const char *directory) {
    json_t *manifest = NULL;
    int status = fault_point(PHASE_LOAD);
    if (!status) status = checkpoint_manifest(directory, &manifest);
    if (!status) status = normalisation_take(&trainer->data.normalisation, manifest, directory);
    json_decref(manifest);
    status = comm_agree(trainer->grid, GROUP_GRID, status);
    return status ? status : checkpoint_load(trainer->grid, &trainer->model.set, directory);
}
