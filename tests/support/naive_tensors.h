/* The weights and gradients of a naive model by name. */
#ifndef WEFT_TESTS_NAIVE_TENSORS_H
#define WEFT_TESTS_NAIVE_TENSORS_H

#include <stdint.h>

typedef struct {
    char name[80];
    int64_t rows, columns;
    double *weight, *gradient; /* [rows, columns] */
} NaiveTensor;

typedef struct {
    NaiveTensor *tensor;
    int count;
} NaiveTensors;

/* Adds a tensor of zeros. */
void naive_tensors_add(NaiveTensors *tensors, const char *name, int64_t rows, int64_t columns);
/* The same, named model.layers.LAYER.NAME. */
void naive_tensors_add_in_layer(NaiveTensors *tensors, int layer, const char *name, int64_t rows,
                                int64_t columns);
/* NULL when there is none of that name. */
const NaiveTensor *naive_tensors_find(const NaiveTensors *tensors, const char *name);
void naive_tensors_zero_gradients(const NaiveTensors *tensors);
void naive_tensors_release(NaiveTensors *tensors);

#endif
