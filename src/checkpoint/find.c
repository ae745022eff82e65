/* checkpoint_find: which directory to continue from. */
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"
#include "checkpoint/verify.h"
#include "checkpoint/view.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int check(const char *directory, bool deep) {
    return deep ? verify_directory(directory, false) : verify_presence(directory);
}

static bool has_file(const char *directory, const char *name) {
    char file[FILES_PATH];
    return !files_join(file, sizeof file, directory, name) && files_exists(file);
}

/* By its name, or else by what is in it. */
static bool is_step_directory(const char *path) {
    int64_t step;
    const char *slash = strrchr(path, '/');
    return publish_step_parse(slash ? slash + 1 : path, &step) || has_file(path, MANIFEST_FILE) ||
           has_file(path, VIEW_FILE);
}

/* The present error, without the directory that it begins with. */
static const char *reason(const char *directory) {
    const char *message = error_message();
    size_t length = strlen(directory);
    bool repeats = !strncmp(message, directory, length) && message[length] == '/';
    return repeats ? message + length + 1 : message;
}

/* For tests: what has no manifest can't contradict it. */
static bool passes_bare(const char *directory) {
    return fault_on("no-manifest") && !has_file(directory, MANIFEST_FILE);
}

static int find_newest(const char *run_dir, bool deep, char *found, size_t capacity) {
    char name[PUBLISH_NAME];
    int64_t *steps;
    int count, status = publish_list(run_dir, &steps, &count);
    if (status) return status;
    found[0] = '\0';
    for (int i = count - 1; i >= 0; i--) {
        publish_step_name(steps[i], name);
        status = files_join(found, capacity, run_dir, name);
        if (status || passes_bare(found) || check(found, deep) == 0) goto done;
        log_info("%s: skipped: %s", found, reason(found));
        found[0] = '\0';
    }
    if (count > 0)
        status = error_set(WEFT_INPUT, "%s: none of its %d checkpoints is good", run_dir, count);
done:
    free(steps);
    return status;
}

/* Without slashes at its end; a directory it must be. */
static int trim(const char *path, char trimmed[FILES_PATH]) {
    int status = files_join(trimmed, FILES_PATH, path, "");
    if (status) return status;
    for (size_t end = strlen(trimmed); end > 1 && trimmed[end - 1] == '/'; end--)
        trimmed[end - 1] = '\0';
    if (files_is_directory(trimmed)) return 0;
    return error_set(WEFT_INPUT, "%s: %s; a run directory or a step directory is needed", trimmed,
                     files_exists(trimmed) ? "is a file" : "no such directory");
}

int checkpoint_find(const char *path, bool deep, char *found, size_t capacity) {
    char trimmed[FILES_PATH];
    found[0] = '\0';
    int status = trim(path, trimmed);
    if (status) return status;
    if (!is_step_directory(trimmed)) return find_newest(trimmed, deep, found, capacity);
    if (check(trimmed, deep)) return error_set(WEFT_INPUT, "%s", error_message());
    if (strlen(trimmed) >= capacity) return error_set(WEFT_USAGE, "path too long: %s", trimmed);
    memcpy(found, trimmed, strlen(trimmed) + 1);
    return 0;
}

bool checkpoint_encloses(const char *path) {
    char at[FILES_PATH], whole[PATH_MAX];
    if (files_join(at, sizeof at, path, "")) return false;
    while (!realpath(at, whole)) { /* up to what exists */
        char *slash = strrchr(at, '/');
        if (!slash) return realpath(".", whole) && has_file(whole, MANIFEST_FILE);
        slash[slash == at] = '\0';
    }
    for (char *slash; !has_file(whole, MANIFEST_FILE); *slash = '\0') {
        slash = strrchr(whole, '/');
        if (!slash || slash == whole) return false;
    }
    return true;
}

int checkpoint_newest(const char *path, char found[FILES_PATH], int64_t *step) {
    char name[PUBLISH_NAME];
    int64_t *steps;
    int count;
    *step = -1;
    int status = trim(path, found);
    if (status || is_step_directory(found)) return status;
    status = publish_list(path, &steps, &count);
    if (status) return status;
    found[0] = '\0';
    if (count > 0) {
        *step = steps[count - 1];
        publish_step_name(*step, name);
        status = files_join(found, FILES_PATH, path, name);
    }
    free(steps);
    return status;
}
