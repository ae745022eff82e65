#include "run/findings.h"

#include "base/error.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_room(Findings *findings) {
    if (findings->count < findings->capacity) return 0;
    int capacity = findings->capacity ? 2 * findings->capacity : 16;
    char **grown = realloc(findings->text, (size_t)capacity * sizeof *grown);
    if (!grown) return -1;
    findings->text = grown;
    findings->capacity = capacity;
    return 0;
}

void findings_add(Findings *findings, const char *format, ...) {
    char text[ERROR_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *copy = make_room(findings) ? NULL : strdup(text);
    if (copy) {
        findings->text[findings->count++] = copy;
    } else {
        findings->lost++;
        log_error("%s", text);
    }
}

int findings_whole(const Findings *findings) {
    return findings->lost ? error_set(WEFT_RUNTIME, "out of memory: %d findings", findings->lost)
                          : 0;
}

void findings_release(Findings *findings) {
    for (int i = 0; i < findings->count; i++) free(findings->text[i]);
    free(findings->text);
    *findings = (Findings){0};
}
