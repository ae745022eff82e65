#include "base/files.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int files_join(char *path, size_t capacity, const char *a, const char *b) {
    const char *slash = a[0] && a[strlen(a) - 1] != '/' ? "/" : "";
    int length = snprintf(path, capacity, "%s%s%s", a, slash, b);
    if (length < 0 || (size_t)length >= capacity)
        return error_set(WEFT_USAGE, "path too long: %s/%s", a, b);
    return 0;
}

bool files_exists(const char *path) {
    struct stat status;
    return stat(path, &status) == 0;
}

bool files_is_directory(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool files_is_regular(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

int64_t files_size(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? (int64_t)status.st_size : -1;
}

int64_t files_free_space(const char *path) {
    struct statvfs status;
    if (statvfs(path, &status)) return -1;
    return (int64_t)status.f_bavail * (int64_t)status.f_frsize;
}

int files_make_directories(const char *path) {
    char part[FILES_PATH];
    if (files_join(part, sizeof part, path, "")) return WEFT_USAGE;
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return error_set(WEFT_RUNTIME, "%s: can't make directory: %s", part, strerror(errno));
        *p = '/';
    }
    if (!files_is_directory(path))
        return error_set(WEFT_RUNTIME, "%s: there is a file where a directory is needed", path);
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

int files_remove_tree(const char *path) {
    struct stat status;
    if (lstat(path, &status)) return 0;
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS))
        return error_set(WEFT_RUNTIME, "%s: can't remove: %s", path, strerror(errno));
    return 0;
}

int files_sync(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return error_set(WEFT_RUNTIME, "%s: can't open to sync: %s", path, strerror(errno));
    int failed = fsync(descriptor);
    int reason = errno;
    close(descriptor);
    /* some file systems can't sync a directory and say so: nothing more can be done there */
    if (failed && reason != EINVAL && reason != EROFS)
        return error_set(WEFT_RUNTIME, "%s: fsync failed: %s", path, strerror(reason));
    return 0;
}

static int sync_parent(const char *path) {
    char parent[FILES_PATH];
    if (files_join(parent, sizeof parent, path, "")) return WEFT_USAGE;
    parent[strlen(parent) - 1] = '\0';
    char *slash = strrchr(parent, '/');
    if (!slash) return files_sync(".");
    slash[slash == parent] = '\0';
    return files_sync(parent);
}

static int write_all(int descriptor, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t done = write(descriptor, bytes, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

int files_write(const char *path, const void *bytes, size_t size) {
    char aside[FILES_PATH];
    if (snprintf(aside, sizeof aside, "%s.tmp", path) >= (int)sizeof aside)
        return error_set(WEFT_USAGE, "path too long: %s", path);
    unlink(aside); /* whatever a killed one has left, or somebody's pipe */
    int descriptor = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return error_set(WEFT_RUNTIME, "%s: can't write: %s", aside, strerror(errno));
    int failed = write_all(descriptor, bytes, size) || fsync(descriptor);
    int reason = errno;
    close(descriptor);
    if (!failed && rename(aside, path)) failed = 1, reason = errno;
    if (failed) {
        unlink(aside);
        return error_set(WEFT_RUNTIME, "%s: can't write: %s", path, strerror(reason));
    }
    return sync_parent(path);
}

int files_read(const char *path, size_t limit, char **bytes, size_t *size) {
    *bytes = NULL;
    if (files_exists(path) && !files_is_regular(path)) /* a pipe would never end */
        return error_set(WEFT_INPUT, "%s: is %s", path,
                         files_is_directory(path) ? "a directory, a file is needed"
                                                  : "no regular file");
    FILE *file = fopen(path, "rb");
    if (!file) return error_set(WEFT_INPUT, "%s: can't read: %s", path, strerror(errno));
    int status = 0;
    int64_t length = files_size(path);
    if (length < 0 || (size_t)length > limit) {
        status = error_set(WEFT_INPUT, "%s: %lld bytes, at most %zu are read", path,
                           (long long)length, limit);
        goto done;
    }
    *bytes = malloc((size_t)length + 1);
    if (!*bytes) {
        status = error_set(WEFT_RUNTIME, "%s: out of memory (%lld bytes)", path, (long long)length);
        goto done;
    }
    *size = fread(*bytes, 1, (size_t)length, file);
    (*bytes)[*size] = '\0';
    if (*size != (size_t)length) {
        status =
            error_set(WEFT_INPUT, "%s: read %zu of %lld bytes", path, *size, (long long)length);
        free(*bytes);
        *bytes = NULL;
    }
done:
    fclose(file);
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int files_list(const char *directory, FileNames *names) {
    *names = (FileNames){0};
    DIR *stream = opendir(directory);
    if (!stream)
        return error_set(WEFT_INPUT, "%s: can't list directory: %s", directory, strerror(errno));
    int status = 0;
    for (struct dirent *entry; !status && (entry = readdir(stream));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char **grown = realloc(names->name, (size_t)(names->count + 1) * sizeof *grown);
        char *copy = strdup(entry->d_name);
        if (grown) names->name = grown;
        if (grown && copy) {
            names->name[names->count++] = copy;
        } else {
            free(copy);
            status = error_set(WEFT_RUNTIME, "%s: out of memory listing it", directory);
        }
    }
    closedir(stream);
    if (status) files_names_release(names);
    if (names->count) qsort(names->name, (size_t)names->count, sizeof *names->name, compare_names);
    return status;
}

void files_names_release(FileNames *names) {
    for (int i = 0; i < names->count; i++) free(names->name[i]);
    free(names->name);
    *names = (FileNames){0};
}
