/* Numbers as the plan prints them. Internal to the plan files. */
#ifndef WEFT_RUN_PLAN_PRINT_H
#define WEFT_RUN_PLAN_PRINT_H

#include "run/plan_ledger.h"

typedef struct {
    char text[32];
} Shown;

Shown show_count(double count); /* 1,234,567; from 10^10 on 1.2346e10 */
Shown show_megabytes(double bytes);

/* "gated, silu": kind and activation, and clamps, offset and biases where there are some. */
typedef struct {
    char text[128];
} ShownKind;
ShownKind show_kind(const Config *config);

/* log_print in lines of at most 80 columns, cut at blanks; all but the first are indented. */
void print_wrapped(const char *text);

#endif
