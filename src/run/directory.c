#include "run/directory.h"

#include "base/error.h"
#include "base/files.h"
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
#include <sys/stat.h>
#include <unistd.h>

/* Whether anything but a claim is there. */
static int is_used(const char *dir, bool *used) {
    FileNames names;
    int status = files_list(dir, &names);
    *used = false;
    for (int i = 0; !status && i < names.count; i++)
        *used |= strcmp(names.name[i], DIRECTORY_CLAIM) != 0;
    if (!status) files_names_release(&names);
    return status;
}

/* A lock that ends with the process. Where the file system has none, a line says so. */
static int take_lock(const char *dir, int claim) {
    char owner[256] = "";
    if (flock(claim, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) {
            log_warn("%s: can't be claimed here (%s): start no second job on it", dir,
                     strerror(errno));
            return 0;
        }
        ssize_t length = pread(claim, owner, sizeof owner - 1, 0);
        owner[length > 0 ? length : 0] = '\0';
        return error_set(WEFT_USAGE, "run.dir = %s: another job is at work there (%s)", dir, owner);
    }
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    int length = snprintf(owner, sizeof owner, "process %ld on %s", (long)getpid(), host);
    if (ftruncate(claim, 0) || pwrite(claim, owner, (size_t)length, 0) != length)
        return error_set(WEFT_RUNTIME, "%s/%s: can't write: %s", dir, DIRECTORY_CLAIM,
                         strerror(errno));
    return 0;
}

int directory_claim(const char *dir, bool resuming, int *claim) {
    char path[FILES_PATH];
    bool used = false;
    *claim = -1;
    int status = 0;
    if (checkpoint_encloses(dir))
        return error_set(WEFT_USAGE,
                         "run.dir = %s: lies inside of a checkpoint, which it would spoil", dir);
    status = files_make_directories(dir);
    if (!status) status = is_used(dir, &used);
    if (!status && used && !resuming)
        status = error_set(WEFT_USAGE,
                           "run.dir = %s: isn't empty; --resume auto continues it, another run.dir "
                           "starts afresh",
                           dir);
    if (!status) status = files_join(path, sizeof path, dir, DIRECTORY_CLAIM);
    if (status) return status;
    *claim = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*claim < 0) return error_set(WEFT_RUNTIME, "%s: can't write: %s", path, strerror(errno));
    status = take_lock(dir, *claim);
    if (status) {
        directory_leave(*claim);
        *claim = -1;
    }
    return status;
}

int directory_check_claim(const char *dir, int claim) {
    char path[FILES_PATH];
    struct stat here, claimed;
    int status = files_join(path, sizeof path, dir, DIRECTORY_CLAIM);
    if (status) return status;
    if (!stat(path, &here) && !fstat(claim, &claimed) && here.st_dev == claimed.st_dev &&
        here.st_ino == claimed.st_ino)
        return 0;
    return error_set(WEFT_RUNTIME,
                     "run.dir = %s: is no longer the directory that this run has begun in: it was "
                     "moved, removed or replaced",
                     dir);
}

void directory_leave(int claim) {
    if (claim >= 0) close(claim);
}

bool directory_holds(const char *dir, const char *checkpoint) {
    char parent[FILES_PATH], a[PATH_MAX], b[PATH_MAX];
    if (files_join(parent, sizeof parent, checkpoint, "..")) return false;
    return realpath(parent, a) && realpath(dir, b) && !strcmp(a, b);
}

int directory_check_branch(const char *dir, const char *checkpoint, int64_t step) {
    char newest[FILES_PATH];
    int64_t last;
    bool used;
    int status = checkpoint_newest(dir, newest, &last);
    if (!status) status = is_used(dir, &used);
    if (status) return status;
    if (!directory_holds(dir, checkpoint) && used)
        return error_set(WEFT_USAGE,
                         "run.dir = %s: holds another run than %s; give the continuation a run.dir "
                         "of its own",
                         dir, checkpoint);
    if (last > step)
        return error_set(WEFT_USAGE,
                         "run.dir = %s: has %s, which is later than %s: two branches would lie in "
                         "one directory; remove the later checkpoints, or set another run.dir",
                         dir, newest, checkpoint);
    return 0;
}
