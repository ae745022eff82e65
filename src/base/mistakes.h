/* The mistakes that tests/failure-lab makes on purpose, one at a time: programs that train all the
 * same, only another function, or not the way they say. Each is switched on like any fault
 * (base/fault.h) and asked for by fault_on where it would be made. */
#ifndef WEFT_BASE_MISTAKES_H
#define WEFT_BASE_MISTAKES_H

typedef struct {
    const char *name, *what;
} Mistake;

extern const Mistake mistakes[]; /* ends with a row whose name is NULL */

#endif
