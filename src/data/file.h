/* A file of data, read in place and never held whole; by pread rather than through a mapping: a
 * file that is cut short during a run gives an error here, where a mapping would kill the process.
 */
#ifndef WEFT_DATA_FILE_H
#define WEFT_DATA_FILE_H

#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *path;
    int descriptor;
    int64_t size;
} DataFile;

/* `holds` says in messages what the file should be of ("tokens"). Returns 0 or WEFT_INPUT naming
 * the file: can't be opened, no regular file, empty. */
int file_open(DataFile *file, const char *path, const char *holds);
void file_close(DataFile *file); /* also after a failed file_open */

/* All `count` bytes from `offset`, or WEFT_INPUT: the file is shorter than when it was opened. */
int file_read(const DataFile *file, int64_t offset, void *bytes, size_t count);

/* For who reads it through another library: 0, or WEFT_INPUT when it has become shorter. */
int file_check_size(const DataFile *file);

/* XXH3-128 of the file's bytes, as `xxhsum -H2` prints it. Returns 0 or WEFT_INPUT. */
int file_digest(const DataFile *file, Hash128 *digest);

#endif
