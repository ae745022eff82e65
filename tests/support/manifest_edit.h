/* Edits of a checkpoint's manifest, with its digests set right again. */
#ifndef WEFT_TESTS_MANIFEST_EDIT_H
#define WEFT_TESTS_MANIFEST_EDIT_H

#include <jansson.h>

/* Puts `value` (taken over; NULL: nothing) where a path like "shards/3/offset" leads in a manifest.
 * A field may be new, an item of an array may not. */
void manifest_put(json_t *manifest, const char *path, json_t *value);

/* The same in a copy of `original`, which becomes the directory's manifest. Under "origin" itself
 * nothing is sealed. */
void manifest_edit(const char *directory, const json_t *original, const char *path, json_t *value);

#endif
