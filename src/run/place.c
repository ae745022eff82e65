#include "run/place.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLAIM ".claim"
#define MARK  "weft makes something here: " /* how the text of a claim begins */

enum { OWNER = 256, TOKEN = 16 };

static const char *name_in(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int find_parent(Place *place, const char *out) {
    const char *name = name_in(place->out);
    int length = (int)(name - place->out);
    if (length > 1) length--; /* the slash */
    snprintf(place->parent, sizeof place->parent, "%.*s", length ? length : 1,
             length ? place->out : ".");
    snprintf(place->stem, sizeof place->stem, ".tmp-%.200s-", name); /* names have 255 bytes */
    if (files_is_directory(place->parent)) return 0;
    return error_set(WEFT_USAGE, "--out %s: there is no directory %s to make it in", out,
                     place->parent);
}

static int exists_already(const char *out) {
    return error_set(WEFT_USAGE, "--out %s: exists already; nothing is replaced", out);
}

int place_choose(Place *place, const char *out) {
    struct stat status;
    place->claim = -1;
    place->aside[0] = '\0';
    if (files_join(place->out, sizeof place->out, out, "")) return WEFT_USAGE;
    if (!out[0]) return error_set(WEFT_USAGE, "--out: a name is needed");
    size_t length = strlen(place->out);
    while (length > 1 && place->out[length - 1] == '/') place->out[--length] = '\0';
    if (!lstat(place->out, &status) && !fault_on("conversion-overwrites"))
        return exists_already(out);
    if (checkpoint_encloses(place->out))
        return error_set(WEFT_USAGE, "--out %s: lies inside of a checkpoint, which it would spoil",
                         out);
    return find_parent(place, out);
}

/* ---- what stands aside ---- */

/* Whether a name that goes on after `name` with '/' or '\0' is one of a directory aside. */
static bool is_aside(const Place *place, const char *name) {
    size_t length = strlen(place->stem);
    if (strncmp(name, place->stem, length)) return false;
    name += length;
    size_t digits = strspn(name, "0123456789");
    if (!digits || name[digits] != '-') return false;
    name += digits + 1;
    return strspn(name, "0123456789abcdef") == TOKEN && (!name[TOKEN] || name[TOKEN] == '/');
}

int place_check_source(const Place *place, const char *path) {
    char parent[PATH_MAX], source[PATH_MAX];
    if (!path || !realpath(place->parent, parent) || !realpath(path, source)) return 0;
    size_t length = strlen(parent);
    if (strncmp(source, parent, length)) return 0;
    if (length > 1 && source[length++] != '/') return 0; /* "/" ends with its slash */
    if (!is_aside(place, source + length)) return 0;
    return error_set(WEFT_USAGE,
                     "%s: lies in what an unfinished run for --out %s has left, which goes away: "
                     "move it to another place first",
                     path, place->out);
}

/* The claim last: without it nobody would clear the rest. Its lock ends before, as some file
 * systems don't remove a directory in which a file is open. */
static int clear(const char *dir, int claim) {
    char path[FILES_PATH];
    FileNames names;
    int status = files_list(dir, &names);
    for (int i = 0; !status && i < names.count; i++) {
        if (!strcmp(names.name[i], CLAIM)) continue;
        status = files_join(path, sizeof path, dir, names.name[i]);
        if (!status) status = files_remove_tree(path);
    }
    files_names_release(&names);
    if (claim >= 0) close(claim);
    if (!status) status = files_join(path, sizeof path, dir, CLAIM);
    if (status) return status;
    unlink(path);
    if (rmdir(dir) && errno != ENOENT)
        return error_set(WEFT_RUNTIME, "%s: can't remove: %s", dir, strerror(errno));
    return 0;
}

/* The claim in a directory, with its text; -1 when this isn't weft's. */
static int open_claim(const char *dir, char owner[OWNER]) {
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return -1;
    int claim = openat(folder, CLAIM, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    close(folder);
    if (claim < 0) return -1;
    ssize_t length = pread(claim, owner, OWNER - 1, 0);
    owner[length > 0 ? length : 0] = '\0';
    if (!strncmp(owner, MARK, strlen(MARK))) return claim;
    close(claim);
    return -1;
}

static int clear_if_dead(const Place *place, const char *dir) {
    char owner[OWNER];
    int claim = open_claim(dir, owner);
    if (claim < 0) return 0;
    if (!flock(claim, LOCK_EX | LOCK_NB)) {
        if (clear(dir, claim)) log_warn("%s", error_message());
        return 0;
    }
    bool busy = errno == EWOULDBLOCK;
    close(claim);
    if (!busy) return 0; /* no locks here: nobody can tell */
    return error_set(WEFT_USAGE, "--out %s: another process is making it (%s)", place->out,
                     owner + strlen(MARK));
}

static int clear_the_dead(const Place *place) {
    char dir[FILES_PATH];
    FileNames names;
    int status = 0;
    if (files_list(place->parent, &names)) return 0; /* a directory may be closed to readers */
    for (int i = 0; !status && i < names.count; i++) {
        if (!is_aside(place, names.name[i])) continue;
        status = files_join(dir, sizeof dir, place->parent, names.name[i]);
        if (!status) status = clear_if_dead(place, dir);
    }
    files_names_release(&names);
    return status;
}

/* ---- one's own ---- */

static int make_aside(Place *place) {
    enum { TRIES = 8 };
    char name[sizeof place->stem + 64], path[FILES_PATH];
    for (int i = 0; i < TRIES; i++) {
        uint64_t token;
        if (getrandom(&token, sizeof token, 0) != sizeof token) break;
        snprintf(name, sizeof name, "%s%ld-%016" PRIx64, place->stem, (long)getpid(), token);
        int status = files_join(path, sizeof path, place->parent, name);
        if (status) return status;
        if (!mkdir(path, 0777)) {
            memcpy(place->aside, path, sizeof path);
            return files_join(place->made, sizeof place->made, path, name_in(place->out));
        }
        if (errno != EEXIST) break;
    }
    return error_set(WEFT_RUNTIME, "%s: can't make a directory in it: %s", place->parent,
                     strerror(errno));
}

/* The mark is written under the lock: a directory with one and without the other is a dead
 * process's. Where there are no locks there is no mark, and nobody else clears it. */
static int claim_aside(Place *place) {
    char path[FILES_PATH], host[128] = "", owner[OWNER];
    int status = files_join(path, sizeof path, place->aside, CLAIM);
    if (status) return status;
    place->claim = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (place->claim < 0)
        return error_set(WEFT_RUNTIME, "%s: can't write: %s", path, strerror(errno));
    if (flock(place->claim, LOCK_EX | LOCK_NB)) return 0;
    gethostname(host, sizeof host - 1);
    int length = snprintf(owner, sizeof owner, MARK "process %ld on %s", (long)getpid(), host);
    if (pwrite(place->claim, owner, (size_t)length, 0) == length) return 0;
    return error_set(WEFT_RUNTIME, "%s: can't write: %s", path, strerror(errno));
}

int place_check_space(const Place *place, int64_t needed) {
    int64_t there = files_free_space(place->parent);
    if (there < 0 || needed <= there) return 0;
    return error_set(WEFT_RUNTIME,
                     "%s: %.3f GB are needed in %s, %.3f GB are free: nothing is written",
                     place->out, (double)needed / 1e9, place->parent, (double)there / 1e9);
}

/* Of two that begin at once both may go on: the first to publish has it. */
int place_begin(Place *place) {
    int status = clear_the_dead(place);
    if (!status) status = make_aside(place);
    return status ? status : claim_aside(place);
}

/* A rename that replaces nothing: 0 or -1 with errno. */
static int move_anew(const char *from, const char *to) {
    struct stat status;
    if (fault_on("conversion-overwrites")) return rename(from, to);
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    /* Not every file system knows the flag. A link replaces nothing either. */
    if (!link(from, to)) return unlink(from);
    if (errno == EEXIST || !lstat(to, &status)) return errno = EEXIST, -1;
    return rename(from, to); /* of a directory: an empty one at most is replaced */
}

int place_publish(const Place *place) {
    int status = files_sync(place->made);
    if (status) return status;
    if (move_anew(place->made, place->out)) {
        if (errno == EEXIST) return exists_already(place->out);
        return error_set(WEFT_RUNTIME, "%s: can't publish it as %s: %s", place->made, place->out,
                         strerror(errno));
    }
    return files_sync(place->parent);
}

void place_leave(Place *place) {
    ErrorState failure;
    if (!place->aside[0]) return;
    error_keep(&failure);
    if (clear(place->aside, place->claim)) log_warn("%s", error_message());
    error_restore(&failure);
    place->claim = -1;
    place->aside[0] = '\0';
}
