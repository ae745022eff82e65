#include "data/source.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { READ_BYTES = 16384, DIGEST_BYTES = 1 << 20 };

struct TokenSource {
    char *path;
    int descriptor;
    int token_bytes;
    int64_t vocab, length; /* length in tokens */
};

/* Opens without waiting (a FIFO has no writer yet) and looks at what it is. */
static int open_file(TokenSource *source, const char *path) {
    struct stat status;
    source->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (source->descriptor < 0 || fstat(source->descriptor, &status))
        return error_set(WEFT_INPUT, "%s: can't open: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return error_set(WEFT_INPUT, "%s: is a directory; a file of tokens is needed", path);
    if (!S_ISREG(status.st_mode)) return error_set(WEFT_INPUT, "%s: not a regular file", path);
    if (status.st_size == 0) return error_set(WEFT_INPUT, "%s: is empty", path);
    if (status.st_size % source->token_bytes)
        return error_set(WEFT_INPUT,
                         "%s: %" PRId64 " bytes are not a whole number of tokens of %d bytes", path,
                         (int64_t)status.st_size, source->token_bytes);
    source->length = (int64_t)status.st_size / source->token_bytes;
    return 0;
}

int source_open(TokenSource **out, const char *path, const char *kind, int token_bytes,
                int64_t vocab) {
    *out = NULL;
    TokenSource *source = calloc(1, sizeof *source);
    char *name = strdup(path);
    if (!source || !name) {
        free(source);
        free(name);
        return error_set(WEFT_RUNTIME, "%s: out of memory", path);
    }
    *source = (TokenSource){.path = name,
                            .descriptor = -1,
                            .token_bytes = strcmp(kind, "text") ? token_bytes : 1,
                            .vocab = vocab};
    int status = open_file(source, path);
    if (status) {
        source_close(source);
        return status;
    }
    *out = source;
    return 0;
}

void source_close(TokenSource *source) {
    if (!source) return;
    if (source->descriptor >= 0) close(source->descriptor);
    free(source->path);
    free(source);
}

int64_t source_length(const TokenSource *source) { return source->length; }

/* All `size` bytes at `offset`, or an error. */
static int read_bytes(const TokenSource *source, int64_t offset, void *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(source->descriptor, (char *)bytes + done, size - done,
                            (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return error_set(WEFT_INPUT, "%s: can't read at byte %" PRId64 ": %s", source->path,
                             offset + (int64_t)done, strerror(errno));
        if (got == 0)
            return error_set(
                WEFT_INPUT, "%s: ends at byte %" PRId64 ", had %" PRId64 " bytes when opened",
                source->path, offset + (int64_t)done, source->length * source->token_bytes);
        done += (size_t)got;
    }
    return 0;
}

int source_digest(const TokenSource *source, Hash128 *digest) {
    int status = 0;
    int64_t size = source->length * source->token_bytes;
    char *block = malloc(DIGEST_BYTES);
    XXH3_state_t *state = XXH3_createState();
    if (!block || !state) {
        status = error_set(WEFT_RUNTIME, "%s: out of memory for its digest", source->path);
        goto done;
    }
    XXH3_128bits_reset(state);
    for (int64_t offset = 0; !status && offset < size; offset += DIGEST_BYTES) {
        int64_t rest = size - offset;
        size_t part = rest < DIGEST_BYTES ? (size_t)rest : DIGEST_BYTES;
        status = read_bytes(source, offset, block, part);
        if (!status) XXH3_128bits_update(state, block, part);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    *digest = (Hash128){hash.high64, hash.low64};
done:
    XXH3_freeState(state);
    free(block);
    return status;
}

static uint32_t decode(const unsigned char *bytes, int width) {
    uint32_t token = 0;
    for (int i = width - 1; i >= 0; i--) token = token << 8 | bytes[i];
    return token;
}

int source_read(const TokenSource *source, int64_t first, int64_t count, int32_t *tokens) {
    int width = source->token_bytes;
    if (first < 0 || count < 0 || first > source->length || count > source->length - first)
        return error_set(WEFT_INPUT,
                         "%s: %" PRId64 " tokens from %" PRId64 " wanted; the file has %" PRId64,
                         source->path, count, first, source->length);
    while (count) {
        unsigned char bytes[READ_BYTES];
        int64_t part = count < READ_BYTES / width ? count : READ_BYTES / width;
        int status = read_bytes(source, first * width, bytes, (size_t)(part * width));
        if (status) return status;
        for (int64_t i = 0; i < part; i++) {
            uint32_t token = decode(bytes + i * width, width);
            if (token >= source->vocab)
                return error_set(WEFT_INPUT,
                                 "%s: token %" PRId64 " is %" PRIu32 "; model.vocab = %" PRId64
                                 " allows 0 to %" PRId64,
                                 source->path, first + i, token, source->vocab, source->vocab - 1);
            tokens[i] = (int32_t)token;
        }
        tokens += part;
        first += part;
        count -= part;
    }
    return 0;
}
