/* Lines for people, on stderr (log_*) or stdout (log_print: what a command was asked for).
 *
 * Every rank may call; only a rank that called log_enable(true) is heard (rank 0, and tools
 * without MPI, which are enabled from the start). log_error is always heard. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>

void log_enable(bool heard);
bool log_enabled(void);

/* "weft: ...", newline added */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "weft: warning: ..." */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "weft: error: ..." */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* At most `width` characters of a line that the next one overwrites; `keep` ends it. */
void log_progress(const char *text, int width, bool keep);
/* Of the terminal that stderr is, or 0 where it is none. */
int log_terminal_columns(void);

/* stdout, as it is: no prefix, no newline added */
void log_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
