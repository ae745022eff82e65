/* What checkpoint_verify does, for those who want another voice. */
#ifndef WEFT_CHECKPOINT_VERIFY_H
#define WEFT_CHECKPOINT_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

/* checkpoint_verify; problems are log_error lines only when `heard`. WEFT_CHECK with the message of
 * the first. */
int verify_directory(const char *directory, bool heard);

/* Every byte that the manifest has a digest of is as it says; what follows from that (fingerprint,
 * what the view shows) isn't computed again. 0 or WEFT_CHECK with the first problem. */
int verify_digests(const char *directory);

/* What verify_deep has looked at. */
typedef struct {
    int files, tensors, roles;
    int64_t datasets; /* in the shard files */
    int64_t cells;    /* of all tensors and roles */
    int64_t bytes;    /* of all files */
    bool proof;       /* there is a proof.json */
} VerifyReport;

/* verify_directory, and also: every value is finite, no second moment is negative, proof.json, if
 * there is one, is whole and of this checkpoint. */
int verify_deep(const char *directory, bool heard, VerifyReport *report);

/* The manifest is good and all files are there; their content isn't looked at. 0 or WEFT_CHECK. */
int verify_presence(const char *directory);

/* The same check; each problem is told instead of heard. Returns how many. */
int verify_files(const char *directory, void (*tell)(void *context, const char *problem),
                 void *context);

#endif
