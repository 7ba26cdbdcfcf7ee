// See blas.h.
#include "tests/cudart/blas.h"
#include "kernels/half.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

queue_function *blas_queue(void) {
    queue_function *queue;
    *(void **)&queue = dlsym(RTLD_DEFAULT, "cudart_queue_library");
    return queue;
}

int blas_asked(const char *variable) {
    const char *value = getenv(variable);
    return value ? atoi(value) : 0;
}

bool blas_knows(int type) {
    return type == F32 || type == F64 || type == F16 || type == BF16 || type == I8;
}

double blas_cut_to_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~(uint32_t)0x1FFF;
    memcpy(&x, &bits, sizeof bits);
    return (double)x;
}

static double element(int type, const void *matrix, long long index) {
    switch (type) {
    case F32:
        return (double)((const float *)matrix)[index];
    case F64:
        return ((const double *)matrix)[index];
    case I8:
        return ((const int8_t *)matrix)[index];
    case I32:
        return ((const int32_t *)matrix)[index];
    case F16:
        return (double)nd__f16_to_f32(((const uint16_t *)matrix)[index]);
    default:
        return (double)nd__bf16_to_f32(((const uint16_t *)matrix)[index]);
    }
}

static void set_element(int type, void *matrix, long long index, double value) {
    switch (type) {
    case F32:
        ((float *)matrix)[index] = (float)value;
        return;
    case F64:
        ((double *)matrix)[index] = value;
        return;
    case I32: // which wraps
        ((int32_t *)matrix)[index] = (int32_t)(uint32_t)(int64_t)value;
        return;
    case F16:
        ((uint16_t *)matrix)[index] = nd__f64_to_f16(value);
        return;
    default:
        ((uint16_t *)matrix)[index] = nd__f64_to_bf16(value);
        return;
    }
}

static double rounded(int type, double value) {
    uint64_t place = 0;
    set_element(type, &place, 0, value);
    return element(type, &place, 0);
}

static double factor(const product *p, const void *matrix, long long index) {
    return p->tf32 ? blas_cut_to_tf32(((const float *)matrix)[index])
                   : element(p->type, matrix, index);
}

static int type_of_c(const product *p) {
    return p->type == I8 ? I32 : p->type;
}

/// As seen of cuBLAS 13.1: products of 16-bit floats whose rows are not aligned, before more is added.
static bool rounds_twice(const product *p) {
    return (p->type == F16 || p->type == BF16) &&
           (p->lda % 8 != 0 || p->ldb % 8 != 0 || p->ldc % 8 != 0);
}

static void put(const product *p, int problem, int row, int column, double sum) {
    long long at = problem * p->stride_c + row + column * p->ldc;
    if (rounds_twice(p))
        sum = rounded(p->type, sum);
    // What is multiplied by zero is not read: it may be anything.
    double result = p->alpha * sum + (p->beta != 0 ? p->beta * element(type_of_c(p), p->c, at) : 0);
    if (p->bias)
        result += element(p->type, p->bias, row);
    if (p->relu && result < 0)
        result = 0;
    set_element(type_of_c(p), p->c, at, result);
}

/// Sums of a row of op(a) with all columns of op(b), [k][n], each in the order of k.
static void add_up(const product *p, const double *a, const double *b, double *sums) {
    for (int column = 0; column < p->n; column++)
        sums[column] = 0;
    for (int i = 0; i < p->k; i++, b += p->n) {
        for (int column = 0; column < p->n; column++)
            sums[column] += a[i] * b[column];
        for (int column = 0; p->reduced_sums && column < p->n; column++)
            sums[column] = rounded(p->type, sums[column]);
    }
}

/// One problem, in memory for `n` sums, a row of op(a) and all of op(b): each element is converted once.
static void multiply_one(const product *p, int problem, double *memory) {
    double *sums = memory, *a = sums + p->n, *b = a + p->k;
    for (int i = 0; i < p->k; i++)
        for (int column = 0; column < p->n; column++) {
            long long at = p->transpose_b ? column + i * p->ldb : i + column * p->ldb;
            b[(size_t)i * (size_t)p->n + (size_t)column] =
                factor(p, p->b, problem * p->stride_b + at);
        }
    for (int row = 0; row < p->m; row++) {
        for (int i = 0; i < p->k; i++) {
            long long at = p->transpose_a ? i + row * p->lda : row + i * p->lda;
            a[i] = factor(p, p->a, problem * p->stride_a + at);
        }
        add_up(p, a, b, sums);
        for (int column = 0; column < p->n; column++)
            put(p, problem, row, column, sums[column]);
    }
}

static void multiply(void *data) {
    const product *p = data;
    if (p->workspace)
        memset(p->workspace, 0xEE, p->workspace_bytes);
    size_t n = (size_t)p->n, k = (size_t)p->k;
    double *memory = malloc((n + k + n * k + 1) * sizeof *memory);
    if (!memory)
        abort();
    for (int problem = 0; problem < p->batch; problem++)
        multiply_one(p, problem, memory);
    free(memory);
}

int blas_multiply(queue_function *queue, cudaStream_t stream, const char *name, const product *p) {
    int rows_a = p->transpose_a ? p->k : p->m, rows_b = p->transpose_b ? p->n : p->k;
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0 || p->lda < (rows_a > 1 ? rows_a : 1) ||
        p->ldb < (rows_b > 1 ? rows_b : 1) || p->ldc < (p->m > 1 ? p->m : 1) ||
        !blas_knows(p->type))
        return INVALID_VALUE;
    return queue(stream, name, multiply, p, sizeof *p) == cudaSuccess ? SUCCESS : EXECUTION_FAILED;
}
