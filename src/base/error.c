#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[ERROR_SIZE];
static _Thread_local bool agreed;

int error_set(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[ERROR_SIZE]; /* an argument may be the present message */
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(message, text, sizeof message);
    agreed = false;
    return code;
}

int error_prefix(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char prefix[ERROR_SIZE / 2];
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    bool known = agreed;
    error_set(code, "%s%s", prefix, message);
    agreed = known;
    return code;
}

const char *error_message(void) { return message; }

bool error_is_agreed(void) { return agreed; }

void error_set_agreed(bool value) { agreed = value; }

void error_clear(void) {
    message[0] = '\0';
    agreed = false;
}

void error_keep(ErrorState *kept) {
    memcpy(kept->message, message, sizeof message);
    kept->agreed = agreed;
}

void error_restore(const ErrorState *kept) {
    memcpy(message, kept->message, sizeof message);
    agreed = kept->agreed;
}
