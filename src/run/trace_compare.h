/* weft trace --against: a trace beside tensors of the same names in another HDF5 file, by weft or
 * by anybody else (of any number type; a shape with as many elements will do). */
#ifndef WEFT_RUN_TRACE_COMPARE_H
#define WEFT_RUN_TRACE_COMPARE_H

/* Prints a row for each tensor that both have, in the order of the pass. tolerance: differences up
 * to so many times the tensor's largest magnitude count as equal. 0, or WEFT_CHECK naming the first
 * tensor that differs, or WEFT_INPUT. On one rank. */
int trace_compare(const char *path, const char *other, double tolerance);

#endif
