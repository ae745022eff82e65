/* A list of sentences: what a check has found. */
#ifndef WEFT_RUN_FINDINGS_H
#define WEFT_RUN_FINDINGS_H

typedef struct {
    char **text;
    int count, capacity;
    int lost; /* for want of memory: told at once, by log_error */
} Findings;

/* A list that has lost some isn't to be taken for an empty one: see findings_whole. */
void findings_add(Findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* 0, or WEFT_RUNTIME when some were lost. */
int findings_whole(const Findings *findings);

void findings_release(Findings *findings);

#endif
