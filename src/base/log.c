#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool heard = true;
static atomic_bool drawn; /* a progress line stands on the terminal, the cursor at its beginning */

/* Whoever prints next, mpirun too, overwrites the progress line; we can clear the rest of it. */
static void clear_progress(void) {
    if (!atomic_exchange(&drawn, false)) return;
    fputs("\033[K", stderr);
    fflush(stderr);
}

void log_enable(bool on) { heard = on; }

bool log_enabled(void) { return heard; }

/* One write per line, so that lines of several ranks don't mix. */
static void line(FILE *stream, const char *prefix, const char *format, va_list arguments) {
    char text[4096];
    vsnprintf(text, sizeof text, format, arguments);
    clear_progress();
    fprintf(stream, "%s%s\n", prefix, text);
    fflush(stream);
}

void log_info(const char *format, ...) {
    if (!heard) return;
    va_list arguments;
    va_start(arguments, format);
    line(stderr, "weft: ", format, arguments);
    va_end(arguments);
}

void log_warn(const char *format, ...) {
    if (!heard) return;
    va_list arguments;
    va_start(arguments, format);
    line(stderr, "weft: warning: ", format, arguments);
    va_end(arguments);
}

void log_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line(stderr, "weft: error: ", format, arguments);
    va_end(arguments);
}

void log_progress(const char *text, int width, bool keep) {
    if (!heard) return;
    fprintf(stderr, "%.*s\033[K%s", width, text, keep ? "\n" : "\r");
    fflush(stderr);
    atomic_store(&drawn, !keep);
}

int log_terminal_columns(void) {
    struct winsize size;
    if (!isatty(2)) return 0;
    return !ioctl(2, TIOCGWINSZ, &size) && size.ws_col > 0 ? size.ws_col : 80;
}

void log_print(const char *format, ...) {
    if (!heard) return;
    clear_progress();
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stdout, format, arguments);
    va_end(arguments);
    fflush(stdout);
}
