/* Files, carefully: published by writing aside, fsync, rename, fsync of the directory. */
#ifndef WEFT_BASE_FILES_H
#define WEFT_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILES_PATH 4096

/* Joins a and b with one '/'; WEFT_USAGE when the result does not fit `capacity`. */
int files_join(char *path, size_t capacity, const char *a, const char *b);

bool files_exists(const char *path);
bool files_is_directory(const char *path);
bool files_is_regular(const char *path); /* or a link to a regular file */
int64_t files_size(const char *path);    /* -1 when it can't be told */

int64_t files_free_space(const char *path); /* bytes that may be written there; -1: can't be told */

int files_make_directories(const char *path); /* like mkdir -p */
int files_remove_tree(const char *path);      /* like rm -r; a missing path is no error */
int files_sync(const char *path);             /* fsync of a file or directory */

/* Writes `size` bytes to path by way of a file beside it, fsync, rename, fsync of the directory. */
int files_write(const char *path, const void *bytes, size_t size);

/* Whole content, NUL-terminated (not counted in *size); free() it. A file larger than `limit`
 * bytes is refused. Returns 0 or WEFT_INPUT. */
int files_read(const char *path, size_t limit, char **bytes, size_t *size);

/* Names in a directory ("." and ".." left out), sorted bytewise. */
typedef struct {
    char **name;
    int count;
} FileNames;
int files_list(const char *directory, FileNames *names);
void files_names_release(FileNames *names);

#endif
