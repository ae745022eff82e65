/* A list of sentences: what a check has found. */
#ifndef WEFT_RUN_FINDINGS_H
#define WEFT_RUN_FINDINGS_H

typedef struct {
    char **text;
    int count, capacity;
} Findings;

/* When memory is short the sentence is told as a warning instead, and counted. */
void findings_add(Findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void findings_release(Findings *findings);

#endif
