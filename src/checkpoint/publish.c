#include "checkpoint/publish.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/catalog.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ASIDE_PREFIX ".tmp-"
#define OLD_SUFFIX   "-old"

void publish_step_name(int64_t step, char name[PUBLISH_NAME]) {
    snprintf(name, PUBLISH_NAME, "step-%08" PRId64, step);
}

bool publish_step_parse(const char *name, int64_t *step) {
    char again[PUBLISH_NAME];
    if (strncmp(name, "step-", 5)) return false;
    *step = strtoll(name + 5, NULL, 10);
    publish_step_name(*step, again);
    return *step >= 0 && !strcmp(name, again);
}

static int step_path(const char *run_dir, const char *prefix, int64_t step, char path[FILES_PATH]) {
    char name[PUBLISH_NAME], prefixed[PUBLISH_NAME + sizeof ASIDE_PREFIX];
    publish_step_name(step, name);
    snprintf(prefixed, sizeof prefixed, "%s%s", prefix, name);
    return files_join(path, FILES_PATH, run_dir, prefixed);
}

int publish_path(const char *run_dir, int64_t step, char path[FILES_PATH]) {
    return step_path(run_dir, "", step, path);
}

int publish_aside(const char *run_dir, int64_t step, char aside[FILES_PATH]) {
    return step_path(run_dir, ASIDE_PREFIX, step, aside);
}

/* Nothing there, or a real directory: a link or a file is not ours to replace. */
static int check_place(const char *path) {
    struct stat status;
    if (lstat(path, &status) || S_ISDIR(status.st_mode)) return 0;
    return error_set(WEFT_RUNTIME,
                     "%s: is in the way of a checkpoint and no directory: move it away", path);
}

int publish_begin(const char *run_dir, int64_t step, const char *aside) {
    char final[FILES_PATH];
    int status = step_path(run_dir, "", step, final);
    if (!status) status = check_place(final);
    if (!status) status = files_remove_tree(aside);
    if (!status) status = files_make_directories(aside);
    return status;
}

/* Whether the published directory is good and holds the same state as the one aside. */
static bool same_state(const char *final, const char *aside) {
    json_t *old = NULL, *new = NULL;
    bool same = verify_directory(final, false) == 0 && checkpoint_manifest(final, &old) == 0 &&
                checkpoint_manifest(aside, &new) == 0 &&
                hash_equal(manifest_fingerprint(old), manifest_fingerprint(new)) &&
                json_equal(json_object_get(old, "grid"), json_object_get(new, "grid"));
    json_decref(old);
    json_decref(new);
    return same;
}

/* Puts `aside` in the place of the old directory, at once where the file system can exchange two
 * names. */
static int replace(const char *final, const char *aside) {
    char old[FILES_PATH];
    int status = snprintf(old, sizeof old, "%s" OLD_SUFFIX, aside) < (int)sizeof old
                     ? 0
                     : error_set(WEFT_USAGE, "path too long: %s" OLD_SUFFIX, aside);
    if (status) return status;
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        return files_remove_tree(aside);
    status = files_remove_tree(old);
    if (status) return status;
    if (rename(final, old) || rename(aside, final))
        return error_set(WEFT_RUNTIME, "%s: can't replace it: %s", final, strerror(errno));
    return files_remove_tree(old);
}

int publish_finish(const char *run_dir, int64_t step, const char *aside) {
    char final[FILES_PATH];
    int status = step_path(run_dir, "", step, final);
    if (!status) status = files_sync(aside);
    if (!status) status = check_place(final);
    if (status) return status;
    if (!files_exists(final)) {
        if (rename(aside, final))
            return error_set(WEFT_RUNTIME, "%s: can't publish it as %s: %s", aside, final,
                             strerror(errno));
    } else {
        status = same_state(final, aside) ? files_remove_tree(aside) : replace(final, aside);
    }
    return status ? status : files_sync(run_dir);
}

static int compare_steps(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

int publish_list(const char *run_dir, int64_t **steps, int *count) {
    FileNames names;
    *steps = NULL;
    *count = 0;
    int status = files_list(run_dir, &names);
    if (status) return status;
    *steps = malloc(((size_t)names.count + 1) * sizeof **steps);
    if (!*steps) status = error_set(WEFT_RUNTIME, "out of memory: list of %s", run_dir);
    for (int i = 0; !status && i < names.count; i++)
        if (publish_step_parse(names.name[i], *steps + *count)) (*count)++;
    if (!status) qsort(*steps, (size_t)*count, sizeof **steps, compare_steps);
    files_names_release(&names);
    return status;
}

/* The step that a leftover is of, and whether it is what replace() has moved aside. */
static bool parse_aside(const char *name, int64_t *step, bool *old) {
    char stem[PUBLISH_NAME] = "";
    size_t prefix = strlen(ASIDE_PREFIX), suffix = strlen(OLD_SUFFIX), length = strlen(name);
    if (strncmp(name, ASIDE_PREFIX, prefix)) return false;
    *old = length > suffix && !strcmp(name + length - suffix, OLD_SUFFIX);
    length -= prefix + (*old ? suffix : 0);
    if (length >= sizeof stem) return false;
    memcpy(stem, name + prefix, length);
    return publish_step_parse(stem, step);
}

/* The old directory is the only copy until the new one has its name. */
static bool put_back(const char *run_dir, int64_t step, const char *path) {
    char final[FILES_PATH];
    return !publish_path(run_dir, step, final) && !files_exists(final) && !rename(path, final);
}

void publish_recover(const char *run_dir) {
    char path[FILES_PATH];
    FileNames names;
    if (files_list(run_dir, &names)) return;
    for (int i = 0; i < names.count; i++) {
        int64_t step;
        bool old;
        if (!parse_aside(names.name[i], &step, &old) ||
            files_join(path, sizeof path, run_dir, names.name[i]) ||
            (old && put_back(run_dir, step, path)))
            continue;
        if (files_remove_tree(path)) log_warn("%s", error_message());
    }
    files_names_release(&names);
}
