#include "run/place.h"

#include "base/error.h"
#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "run/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int place_choose(Place *place, const char *out) {
    struct stat status;
    place->claim = -1;
    if (files_join(place->out, sizeof place->out, out, "")) return WEFT_USAGE;
    if (!out[0]) return error_set(WEFT_USAGE, "--out: a name is needed");
    size_t length = strlen(place->out);
    while (length > 1 && place->out[length - 1] == '/') place->out[--length] = '\0';
    if (!lstat(place->out, &status) && !fault_on("conversion-overwrites"))
        return error_set(WEFT_USAGE, "--out %s: exists already; nothing is replaced", out);
    if (checkpoint_encloses(place->out))
        return error_set(WEFT_USAGE, "--out %s: lies inside of a checkpoint, which it would spoil",
                         out);
    const char *slash = strrchr(place->out, '/'), *name = slash ? slash + 1 : place->out;
    snprintf(place->parent, sizeof place->parent, "%.*s",
             slash ? (int)(slash - place->out) + (slash == place->out) : 1,
             slash ? place->out : ".");
    if (!files_is_directory(place->parent))
        return error_set(WEFT_USAGE, "--out %s: there is no directory %s to make it in", out,
                         place->parent);
    char hidden[FILES_PATH];
    if (snprintf(hidden, sizeof hidden, ".tmp-%s", name) >= (int)sizeof hidden)
        return error_set(WEFT_USAGE, "path too long: %s", out);
    return files_join(place->aside, sizeof place->aside, place->parent, hidden);
}

int place_begin(Place *place) {
    char path[FILES_PATH];
    FileNames names;
    int status = directory_claim(place->aside, true, &place->claim);
    if (!status) status = files_list(place->aside, &names);
    if (status) return status;
    for (int i = 0; !status && i < names.count; i++) {
        if (!strcmp(names.name[i], DIRECTORY_CLAIM)) continue;
        status = files_join(path, sizeof path, place->aside, names.name[i]);
        if (!status) status = files_remove_tree(path);
    }
    files_names_release(&names);
    return status;
}

int place_publish(const Place *place, const char *made) {
    char claim[FILES_PATH];
    int status = files_join(claim, sizeof claim, place->aside, DIRECTORY_CLAIM);
    if (status) return status;
    unlink(claim);
    status = files_sync(made);
    if (status) return status;
    unsigned flags = fault_on("conversion-overwrites") ? 0 : RENAME_NOREPLACE;
    int failed = renameat2(AT_FDCWD, made, AT_FDCWD, place->out, flags);
    if (failed && (errno == EINVAL || errno == ENOSYS)) /* not every file system knows the flag */
        failed = files_exists(place->out) ? (errno = EEXIST, -1) : rename(made, place->out);
    if (failed)
        return error_set(WEFT_RUNTIME, "%s: can't publish it as %s: %s", made, place->out,
                         strerror(errno));
    status = files_sync(place->parent);
    return status ? status : files_remove_tree(place->aside); /* where `made` was a file in it */
}

void place_leave(Place *place, bool failed) {
    ErrorState failure;
    if (place->claim < 0) return;
    error_keep(&failure);
    if (failed) files_remove_tree(place->aside);
    error_restore(&failure);
    directory_leave(place->claim);
    place->claim = -1;
}
