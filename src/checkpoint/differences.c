/* checkpoint_differences: what a resume would change, in words. */
#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_value(FILE *out, const json_t *value) {
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!value)
        fputs("has none", out);
    else
        fputs(json_is_string(value) ? json_string_value(value) : text ? text : "?", out);
    free(text);
}

/* `path` is the key of both values, "" at the top. */
static void compare(FILE *out, const char *path, const json_t *checkpoint, const json_t *config) {
    if (!json_is_object(checkpoint) || !json_is_object(config)) {
        if (json_equal(checkpoint, config)) return;
        fprintf(out, "%s: checkpoint ", path);
        print_value(out, checkpoint);
        fputs(", config ", out);
        print_value(out, config);
        fputc('\n', out);
        return;
    }
    const json_t *side[2] = {checkpoint, config};
    const char *key;
    json_t *value;
    for (int i = 0; i < 2; i++) {
        json_object_foreach((json_t *)side[i], key, value) {
            char longer[512];
            if (i == 1 && json_object_get(checkpoint, key)) continue; /* seen from the other side */
            snprintf(longer, sizeof longer, "%s%s%s", path, path[0] ? "." : "", key);
            compare(out, longer, json_object_get(checkpoint, key), json_object_get(config, key));
        }
    }
}

char *checkpoint_differences(const json_t *checkpoint, const json_t *config) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return strdup("out of memory: list of differences");
    compare(out, "", checkpoint, config);
    if (fclose(out)) {
        free(text);
        return strdup("out of memory: list of differences");
    }
    if (size == 0) {
        free(text);
        return NULL;
    }
    if (text[size - 1] == '\n') text[size - 1] = '\0';
    return text;
}
