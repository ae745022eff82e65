#include "data/source.h"

#include "base/error.h"
#include "data/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 16384 };

struct TokenSource {
    DataFile file;
    int token_bytes;
    int64_t vocab, length; /* length in tokens */
};

int source_open(TokenSource **out, const char *path, const char *kind, int token_bytes,
                int64_t vocab) {
    *out = NULL;
    TokenSource *source = calloc(1, sizeof *source);
    if (!source) return error_set(WEFT_RUNTIME, "%s: out of memory", path);
    source->token_bytes = strcmp(kind, "text") ? token_bytes : 1;
    source->vocab = vocab;
    int status = file_open(&source->file, path, "tokens");
    source->length = source->file.size / source->token_bytes;
    if (!status && source->file.size % source->token_bytes)
        status = error_set(WEFT_INPUT,
                           "%s: %" PRId64 " bytes are not a whole number of tokens of %d bytes",
                           path, source->file.size, source->token_bytes);
    if (status) {
        source_close(source);
        return status;
    }
    *out = source;
    return 0;
}

void source_close(TokenSource *source) {
    if (!source) return;
    file_close(&source->file);
    free(source);
}

int64_t source_length(const TokenSource *source) { return source->length; }

int source_digest(const TokenSource *source, Hash128 *digest) {
    return file_digest(&source->file, digest);
}

static uint32_t decode(const unsigned char *bytes, int width) {
    uint32_t token = 0;
    for (int i = width - 1; i >= 0; i--) token = token << 8 | bytes[i];
    return token;
}

int source_read(const TokenSource *source, int64_t first, int64_t count, int32_t *tokens) {
    int width = source->token_bytes;
    const char *path = source->file.path;
    if (first < 0 || count < 0 || first > source->length || count > source->length - first)
        return error_set(WEFT_INPUT,
                         "%s: %" PRId64 " tokens from %" PRId64 " wanted; the file has %" PRId64,
                         path, count, first, source->length);
    while (count) {
        unsigned char bytes[READ_BYTES];
        int64_t part = count < READ_BYTES / width ? count : READ_BYTES / width;
        int status = file_read(&source->file, first * width, bytes, (size_t)(part * width));
        if (status) return status;
        for (int64_t i = 0; i < part; i++) {
            uint32_t token = decode(bytes + i * width, width);
            if (token >= source->vocab)
                return error_set(WEFT_INPUT,
                                 "%s: token %" PRId64 " is %" PRIu32 "; model.vocab = %" PRId64
                                 " allows 0 to %" PRId64,
                                 path, first + i, token, source->vocab, source->vocab - 1);
            tokens[i] = (int32_t)token;
        }
        tokens += part;
        first += part;
        count -= part;
    }
    return 0;
}
