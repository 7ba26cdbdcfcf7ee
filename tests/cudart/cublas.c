// A cuBLAS for the fake runtime: libcublas.so with the functions that lib/device/cuda opens at run
// time, their work plain loops in order on the handle's stream.
#include "tests/cudart/control.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    ALLOC_FAILED = 3,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13
};

typedef cudaError_t queue_function(cudaStream_t stream, const char *name,
                                   void (*function)(void *data), const void *data, size_t bytes);

typedef struct handle {
    cudaStream_t stream;
    queue_function *queue; ///< the program's cudart_queue_library
} handle;

/// c = alpha op(a) op(b) + beta c, column-major.
typedef struct product {
    bool wide; ///< double
    bool transpose_a, transpose_b;
    int m, n, k, batch;
    double alpha, beta;
    const void *a, *b;
    void *c;
    long long lda, ldb, ldc, stride_a, stride_b, stride_c;
} product;

static double element(const product *p, const void *matrix, long long index) {
    return p->wide ? ((const double *)matrix)[index] : (double)((const float *)matrix)[index];
}

static void multiply_one(const product *p, int problem, int row, int column) {
    double sum = 0;
    for (int i = 0; i < p->k; i++) {
        long long a = p->transpose_a ? i + row * p->lda : row + i * p->lda;
        long long b = p->transpose_b ? column + i * p->ldb : i + column * p->ldb;
        sum += element(p, p->a, problem * p->stride_a + a) *
               element(p, p->b, problem * p->stride_b + b);
    }
    long long at = problem * p->stride_c + row + column * p->ldc;
    // What is multiplied by zero is not read: it may be anything.
    double result = p->alpha * sum + (p->beta != 0 ? p->beta * element(p, p->c, at) : 0);
    if (p->wide)
        ((double *)p->c)[at] = result;
    else
        ((float *)p->c)[at] = (float)result;
}

static void multiply(void *data) {
    const product *p = data;
    for (int problem = 0; problem < p->batch; problem++)
        for (int column = 0; column < p->n; column++)
            for (int row = 0; row < p->m; row++)
                multiply_one(p, problem, row, column);
}

static int queue(handle *to, const char *name, const product *p) {
    int rows_a = p->transpose_a ? p->k : p->m, rows_b = p->transpose_b ? p->n : p->k;
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0 || p->lda < (rows_a > 1 ? rows_a : 1) ||
        p->ldb < (rows_b > 1 ? rows_b : 1) || p->ldc < (p->m > 1 ? p->m : 1))
        return INVALID_VALUE;
    return to->queue(to->stream, name, multiply, p, sizeof *p) == cudaSuccess ? SUCCESS
                                                                              : EXECUTION_FAILED;
}

EXPORT int cublasCreate_v2(void **ret_handle);
EXPORT int cublasDestroy_v2(void *made);
EXPORT int cublasSetStream_v2(void *made, cudaStream_t stream);
EXPORT int cublasSgemmStridedBatched(void *made, int transa, int transb, int m, int n, int k,
                                     const float *alpha, const float *a, int lda,
                                     long long stride_a, const float *b, int ldb,
                                     long long stride_b, const float *beta, float *c, int ldc,
                                     long long stride_c, int batch);
EXPORT int cublasDgemmStridedBatched(void *made, int transa, int transb, int m, int n, int k,
                                     const double *alpha, const double *a, int lda,
                                     long long stride_a, const double *b, int ldb,
                                     long long stride_b, const double *beta, double *c, int ldc,
                                     long long stride_c, int batch);

/// ND_CUDART_CUBLAS in the environment is the status that it answers.
int cublasCreate_v2(void **ret_handle) {
    const char *status = getenv("ND_CUDART_CUBLAS");
    if (status && atoi(status) != SUCCESS)
        return atoi(status);
    handle *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    *(void **)&made->queue = dlsym(RTLD_DEFAULT, "cudart_queue_library");
    if (!made->queue) {
        free(made);
        return NOT_INITIALIZED;
    }
    *ret_handle = made;
    return SUCCESS;
}

int cublasDestroy_v2(void *made) {
    free(made);
    return SUCCESS;
}

int cublasSetStream_v2(void *made, cudaStream_t stream) {
    ((handle *)made)->stream = stream;
    return SUCCESS;
}

int cublasSgemmStridedBatched(void *made, int transa, int transb, int m, int n, int k,
                              const float *alpha, const float *a, int lda, long long stride_a,
                              const float *b, int ldb, long long stride_b, const float *beta,
                              float *c, int ldc, long long stride_c, int batch) {
    product p = {false, transa, transb, m,   n,   k,   batch,    *alpha,   *beta,
                 a,     b,      c,      lda, ldb, ldc, stride_a, stride_b, stride_c};
    return queue(made, "cublasSgemmStridedBatched", &p);
}

int cublasDgemmStridedBatched(void *made, int transa, int transb, int m, int n, int k,
                              const double *alpha, const double *a, int lda, long long stride_a,
                              const double *b, int ldb, long long stride_b, const double *beta,
                              double *c, int ldc, long long stride_c, int batch) {
    product p = {true, transa, transb, m,   n,   k,   batch,    *alpha,   *beta,
                 a,    b,      c,      lda, ldb, ldc, stride_a, stride_b, stride_c};
    return queue(made, "cublasDgemmStridedBatched", &p);
}
