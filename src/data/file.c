#include "data/file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGEST_BYTES = 1 << 20 };

/* Opens without waiting (a FIFO has no writer yet) and looks at what it is. */
int file_open(DataFile *file, const char *path, const char *holds) {
    struct stat status;
    *file = (DataFile){.path = strdup(path), .descriptor = -1};
    if (!file->path) return error_set(WEFT_RUNTIME, "%s: out of memory", path);
    file->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0 || fstat(file->descriptor, &status))
        return error_set(WEFT_INPUT, "%s: can't open: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return error_set(WEFT_INPUT, "%s: is a directory; a file of %s is needed", path, holds);
    if (!S_ISREG(status.st_mode)) return error_set(WEFT_INPUT, "%s: not a regular file", path);
    if (status.st_size == 0) return error_set(WEFT_INPUT, "%s: is empty", path);
    file->size = (int64_t)status.st_size;
    return 0;
}

void file_close(DataFile *file) {
    if (file->path && file->descriptor >= 0) close(file->descriptor);
    free(file->path);
    *file = (DataFile){.descriptor = -1};
}

static int ends_at(const DataFile *file, int64_t offset) {
    return error_set(WEFT_INPUT, "%s: ends at byte %" PRId64 ", had %" PRId64 " bytes when opened",
                     file->path, offset, file->size);
}

int file_check_size(const DataFile *file) {
    struct stat status;
    if (fstat(file->descriptor, &status))
        return error_set(WEFT_INPUT, "%s: can't read: %s", file->path, strerror(errno));
    return status.st_size < file->size ? ends_at(file, (int64_t)status.st_size) : 0;
}

int file_read(const DataFile *file, int64_t offset, void *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        ssize_t got = pread(file->descriptor, (char *)bytes + done, count - done,
                            (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return error_set(WEFT_INPUT, "%s: can't read at byte %" PRId64 ": %s", file->path,
                             offset + (int64_t)done, strerror(errno));
        if (got == 0) return ends_at(file, offset + (int64_t)done);
        done += (size_t)got;
    }
    return 0;
}

int file_digest(const DataFile *file, Hash128 *digest) {
    int status = 0;
    char *block = malloc(DIGEST_BYTES);
    HashStream *stream = hash_stream_begin();
    if (!block || !stream)
        status = error_set(WEFT_RUNTIME, "%s: out of memory for its digest", file->path);
    for (int64_t offset = 0; !status && offset < file->size; offset += DIGEST_BYTES) {
        int64_t rest = file->size - offset;
        size_t part = rest < DIGEST_BYTES ? (size_t)rest : DIGEST_BYTES;
        status = file_read(file, offset, block, part);
        if (!status) hash_stream_add(stream, block, part);
    }
    *digest = hash_stream_end(stream);
    free(block);
    return status;
}
