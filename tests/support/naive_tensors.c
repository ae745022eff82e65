#include "support/naive_tensors.h"

#include "support/naive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void naive_tensors_add(NaiveTensors *tensors, const char *name, int64_t rows, int64_t columns) {
    size_t size = ((size_t)tensors->count + 1) * sizeof *tensors->tensor;
    tensors->tensor = realloc(tensors->tensor, size);
    if (!tensors->tensor) abort();
    NaiveTensor *tensor = &tensors->tensor[tensors->count++];
    *tensor = (NaiveTensor){.rows = rows,
                            .columns = columns,
                            .weight = naive_array(rows * columns),
                            .gradient = naive_array(rows * columns)};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

void naive_tensors_add_in_layer(NaiveTensors *tensors, int layer, const char *name, int64_t rows,
                                int64_t columns) {
    char full[80];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    naive_tensors_add(tensors, full, rows, columns);
}

const NaiveTensor *naive_tensors_find(const NaiveTensors *tensors, const char *name) {
    for (int i = 0; i < tensors->count; i++)
        if (!strcmp(tensors->tensor[i].name, name)) return &tensors->tensor[i];
    return NULL;
}

void naive_tensors_zero_gradients(const NaiveTensors *tensors) {
    for (int i = 0; i < tensors->count; i++) {
        const NaiveTensor *tensor = &tensors->tensor[i];
        memset(tensor->gradient, 0,
               (size_t)(tensor->rows * tensor->columns) * sizeof *tensor->gradient);
    }
}

void naive_tensors_release(NaiveTensors *tensors) {
    for (int i = 0; i < tensors->count; i++) {
        free(tensors->tensor[i].weight);
        free(tensors->tensor[i].gradient);
    }
    free(tensors->tensor);
    *tensors = (NaiveTensors){0};
}
