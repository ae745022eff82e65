/* Errors: one message and one code per thread, set where the failure is seen.
 *
 * Functions that can fail return 0 or one of the negative codes below; the negated code is the
 * program's exit code. A failure that only this rank has seen is turned into everybody's by
 * comm_agree(); until then error_is_agreed() is false and the caller may not enter a collective. */
#ifndef WEFT_BASE_ERROR_H
#define WEFT_BASE_ERROR_H

#include <stdbool.h>

enum { ERROR_SIZE = 2048 }; /* of a message, its end included */

enum {
    WEFT_CHECK = -1,   /* a check failed (verify, diff, replay) */
    WEFT_USAGE = -2,   /* bad command line or config */
    WEFT_INPUT = -3,   /* bad input file */
    WEFT_RUNTIME = -4, /* anything else: memory, disk, MPI */
};

/* Sets the message of this thread and returns `code`. */
int error_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts text in front of the present message ("file x: " + "short read") and returns `code`. */
int error_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The present message; "" when there is none. */
const char *error_message(void);

/* Whether all ranks know of the present error (then nobody waits for anybody). */
bool error_is_agreed(void);
void error_set_agreed(bool agreed);

void error_clear(void);

/* The present error, kept while other things are tried that may leave one of their own. */
typedef struct {
    char message[ERROR_SIZE];
    bool agreed;
} ErrorState;
void error_keep(ErrorState *kept);
void error_restore(const ErrorState *kept);

#endif
