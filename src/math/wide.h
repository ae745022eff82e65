#ifndef WEFT_MATH_WIDE_H
#define WEFT_MATH_WIDE_H

#if defined(__x86_64__) && !defined(WEFT_FAULTS) && !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define WIDE
#endif

#endif
