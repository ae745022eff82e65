/* Token sources: where tokens come from. `text`: the bytes of a file. `tokens`: little-endian
 * unsigned integers of 2 or 4 bytes. Files are hostile: sizes and every token read are checked. */
#ifndef WEFT_DATA_SOURCE_H
#define WEFT_DATA_SOURCE_H

#include "base/hash.h"

#include <stdint.h>

typedef struct TokenSource TokenSource;

/* kind "text" or "tokens" (token_bytes 2 or 4). Returns 0 or WEFT_INPUT naming the file: can't be
 * opened, no regular file, empty, not whole tokens. */
int source_open(TokenSource **out, const char *path, const char *kind, int token_bytes,
                int64_t vocab);
void source_close(TokenSource *source);

int64_t source_length(const TokenSource *source); /* tokens */

int source_digest(const TokenSource *source, Hash128 *digest); /* file_digest of its file */

/* tokens[i] = token at first + i. WEFT_INPUT when out of range, when the file is shorter than when
 * it was opened, or a token is >= vocab (names file and position). */
int source_read(const TokenSource *source, int64_t first, int64_t count, int32_t *tokens);

#endif
