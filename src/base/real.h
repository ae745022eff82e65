/* The scalar of parameters and activations: float in `weft`, double in `weft-f64` (the oracle). */
#ifndef WEFT_BASE_REAL_H
#define WEFT_BASE_REAL_H

#ifdef WEFT_REAL64
typedef double real;
#define REAL_NAME "float64"
#else
typedef float real;
#define REAL_NAME "float32"
#endif

#endif
