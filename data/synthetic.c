/* Makes rows whose structure is known, as many as wanted, for a model with a squared error:
 *
 *     build/synthetic FILE [ROWS]          (1,000,000: 272 MB)
 *
 * `inputs` [ROWS, 64] are normal numbers z, each column with a mean and a deviation of its own;
 * `targets` [ROWS, 4] are a teacher's answers, V tanh(U z), and noise of a tenth of their size.
 * Every number is a function of its row and column (Philox): fewer rows are the beginning of more.
 * What no model can predict, the noise's share of the targets' variance, is printed: the loss of a
 * perfect model, in normalised units. Memory doesn't grow with the rows. */
#include "tensor/philox.h"

#include <hdf5.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 64, HIDDEN = 32, TARGETS = 4, BLOCK = 4096 };
enum { COLUMNS, FIRST_LAYER, SECOND_LAYER, ROW, NOISE }; /* Philox layers: what a number is of */

typedef struct {
    double mean[INPUTS], deviation[INPUTS];
    double u[HIDDEN][INPUTS], v[TARGETS][HIDDEN];
} Teacher;

static void normals(uint32_t what, uint32_t row, int count, double *values) {
    PhiloxStream stream = {.seed = 1, .purpose = PHILOX_INIT, .layer = what};
    philox_normals(&stream, row, (Range){0, count}, values);
}

static void make_teacher(Teacher *teacher) {
    normals(COLUMNS, 0, INPUTS, teacher->mean);
    normals(COLUMNS, 1, INPUTS, teacher->deviation);
    for (int i = 0; i < INPUTS; i++) {
        teacher->mean[i] *= 10;
        teacher->deviation[i] = exp(2 * teacher->deviation[i]);
    }
    for (int h = 0; h < HIDDEN; h++) normals(FIRST_LAYER, (uint32_t)h, INPUTS, teacher->u[h]);
    for (int t = 0; t < TARGETS; t++) normals(SECOND_LAYER, (uint32_t)t, HIDDEN, teacher->v[t]);
}

static void answer(const Teacher *teacher, const double *z, double *targets) {
    double hidden[HIDDEN];
    for (int h = 0; h < HIDDEN; h++) {
        double sum = 0;
        for (int i = 0; i < INPUTS; i++) sum += teacher->u[h][i] * z[i];
        hidden[h] = tanh(sum / sqrt(INPUTS));
    }
    for (int t = 0; t < TARGETS; t++) {
        targets[t] = 0;
        for (int h = 0; h < HIDDEN; h++) targets[t] += teacher->v[t][h] * hidden[h];
    }
}

/* squares: of the noise, and of all. The targets' means are nearly 0. */
static void make_row(const Teacher *teacher, int64_t row, float *inputs, float *targets,
                     double squares[2]) {
    double z[INPUTS], noise[TARGETS], told[TARGETS];
    normals(ROW, (uint32_t)row, INPUTS, z);
    normals(NOISE, (uint32_t)row, TARGETS, noise);
    answer(teacher, z, told);
    for (int i = 0; i < INPUTS; i++)
        inputs[i] = (float)(teacher->mean[i] + teacher->deviation[i] * z[i]);
    for (int t = 0; t < TARGETS; t++) {
        noise[t] *= 0.1 * sqrt(HIDDEN * 0.4); /* 0.4: roughly tanh's mean square */
        targets[t] = (float)(told[t] + noise[t]);
        squares[0] += noise[t] * noise[t];
        squares[1] += (told[t] + noise[t]) * (told[t] + noise[t]);
    }
}

static hid_t create(hid_t file, const char *name, int64_t rows, int64_t cols) {
    hid_t space = H5Screate_simple(2, (hsize_t[]){(hsize_t)rows, (hsize_t)cols}, NULL);
    hid_t dataset =
        H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Sclose(space);
    return dataset;
}

static int append(hid_t dataset, int64_t first, int64_t rows, int64_t cols, const float *values) {
    hsize_t offset[2] = {(hsize_t)first, 0}, size[2] = {(hsize_t)rows, (hsize_t)cols};
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(2, size, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, NULL, size, NULL);
    int failed = H5Dwrite(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values) < 0;
    H5Sclose(memory);
    H5Sclose(space);
    return failed;
}

static int write_rows(hid_t inputs, hid_t targets, int64_t rows, double squares[2]) {
    static float input[BLOCK * INPUTS], target[BLOCK * TARGETS];
    static Teacher teacher;
    int failed = inputs < 0 || targets < 0;
    make_teacher(&teacher);
    for (int64_t first = 0; !failed && first < rows; first += BLOCK) {
        int64_t count = rows - first < BLOCK ? rows - first : BLOCK;
        for (int64_t i = 0; i < count; i++)
            make_row(&teacher, first + i, input + i * INPUTS, target + i * TARGETS, squares);
        failed = append(inputs, first, count, INPUTS, input) ||
                 append(targets, first, count, TARGETS, target);
    }
    return failed;
}

int main(int argc, char **argv) {
    int64_t rows = argc > 2 ? strtoll(argv[2], NULL, 10) : 1000000;
    double squares[2] = {0, 0};
    if (argc < 2 || argc > 3 || rows < 1 || rows > INT32_MAX) {
        fprintf(stderr, "usage: synthetic FILE [ROWS]\n");
        return 2;
    }
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) return 4; /* HDF5 has said why */
    hid_t inputs = create(file, "inputs", rows, INPUTS);
    hid_t targets = create(file, "targets", rows, TARGETS);
    int failed = write_rows(inputs, targets, rows, squares);
    failed = H5Dclose(inputs) < 0 || H5Dclose(targets) < 0 || H5Fclose(file) < 0 || failed;
    if (failed) return 4;
    printf("%s: %lld rows; %.4f of the targets' variance is noise\n", argv[1], (long long)rows,
           squares[0] / squares[1]);
    return 0;
}
