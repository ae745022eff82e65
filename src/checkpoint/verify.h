/* What checkpoint_verify does, for those who want another voice. */
#ifndef WEFT_CHECKPOINT_VERIFY_H
#define WEFT_CHECKPOINT_VERIFY_H

#include <stdbool.h>

/* checkpoint_verify; problems are log_error lines only when `heard`. WEFT_CHECK with the message of
 * the first. */
int verify_directory(const char *directory, bool heard);

/* The manifest is good and all files are there; their content isn't looked at. 0 or WEFT_CHECK. */
int verify_presence(const char *directory, bool heard);

#endif
