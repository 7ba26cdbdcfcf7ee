// A cuBLAS for the fake runtime: libcublas.so with the functions that lib/device/cuda opens at run
// time.
//
// Unless its handle was told not to, it joins parts of sums of 16-bit floats as 16-bit floats,
// which the real one may. A handle that was told no stream works on the default one.
#include "tests/cudart/blas.h"
#include <stdlib.h>

enum { NO_REDUCED_SUMS = 16, MAGIC = 0x0B1A5 };
enum { COMPUTE_F32 = 68, COMPUTE_I32 = 72, COMPUTE_TF32 = 77 };

typedef struct handle {
    int magic;
    cudaStream_t stream;
    void *workspace;        ///< of the program's; NULL: its own
    size_t workspace_bytes; ///< of which products write so much
    int mode;
    queue_function *queue;
} handle;

EXPORT int cublasCreate_v2(void **ret_handle);
EXPORT int cublasDestroy_v2(void *made);
EXPORT int cublasSetStream_v2(void *made, cudaStream_t stream);
EXPORT int cublasSetMathMode(void *made, int mode);
EXPORT int cublasSetWorkspace_v2(void *made, void *workspace, size_t bytes);
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
EXPORT int cublasGemmStridedBatchedEx(void *made, int transa, int transb, int m, int n, int k,
                                      const void *alpha, const void *a, int a_type, int lda,
                                      long long stride_a, const void *b, int b_type, int ldb,
                                      long long stride_b, const void *beta, void *c, int c_type,
                                      int ldc, long long stride_c, int batch, int compute_type,
                                      int algorithm);

/// ND_CUDART_CUBLAS in the environment is the status that it answers.
int cublasCreate_v2(void **ret_handle) {
    if (blas_asked("ND_CUDART_CUBLAS") != SUCCESS)
        return blas_asked("ND_CUDART_CUBLAS");
    handle *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    made->magic = MAGIC;
    made->queue = blas_queue();
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
    ((handle *)made)->workspace = NULL;
    return SUCCESS;
}

int cublasSetWorkspace_v2(void *made, void *workspace, size_t bytes) {
    if (workspace && bytes == 0)
        return INVALID_VALUE;
    enum { WRITTEN = 4096 };
    ((handle *)made)->workspace = workspace;
    ((handle *)made)->workspace_bytes = bytes < WRITTEN ? bytes : WRITTEN;
    return SUCCESS;
}

int cublasSetMathMode(void *made, int mode) {
    if (mode != 0 && mode != NO_REDUCED_SUMS)
        return INVALID_VALUE;
    ((handle *)made)->mode = mode;
    return SUCCESS;
}

static int queue(handle *to, const char *name, const product *p) {
    if (to->magic != MAGIC)
        return NOT_INITIALIZED;
    product with = *p;
    with.workspace = to->workspace;
    with.workspace_bytes = to->workspace_bytes;
    return blas_multiply(to->queue, to->stream, name, &with);
}

int cublasSgemmStridedBatched(void *made, int transa, int transb, int m, int n, int k,
                              const float *alpha, const float *a, int lda, long long stride_a,
                              const float *b, int ldb, long long stride_b, const float *beta,
                              float *c, int ldc, long long stride_c, int batch) {
    product p = {.type = F32,
                 .transpose_a = transa,
                 .transpose_b = transb,
                 .m = m,
                 .n = n,
                 .k = k,
                 .batch = batch,
                 .alpha = (double)*alpha,
                 .beta = (double)*beta,
                 .a = a,
                 .b = b,
                 .c = c,
                 .lda = lda,
                 .ldb = ldb,
                 .ldc = ldc,
                 .stride_a = stride_a,
                 .stride_b = stride_b,
                 .stride_c = stride_c};
    return queue(made, "cublasSgemmStridedBatched", &p);
}

int cublasDgemmStridedBatched(void *made, int transa, int transb, int m, int n, int k,
                              const double *alpha, const double *a, int lda, long long stride_a,
                              const double *b, int ldb, long long stride_b, const double *beta,
                              double *c, int ldc, long long stride_c, int batch) {
    product p = {.type = F64,
                 .transpose_a = transa,
                 .transpose_b = transb,
                 .m = m,
                 .n = n,
                 .k = k,
                 .batch = batch,
                 .alpha = *alpha,
                 .beta = *beta,
                 .a = a,
                 .b = b,
                 .c = c,
                 .lda = lda,
                 .ldb = ldb,
                 .ldc = ldc,
                 .stride_a = stride_a,
                 .stride_b = stride_b,
                 .stride_c = stride_c};
    return queue(made, "cublasDgemmStridedBatched", &p);
}

int cublasGemmStridedBatchedEx(void *made, int transa, int transb, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda,
                               long long stride_a, const void *b, int b_type, int ldb,
                               long long stride_b, const void *beta, void *c, int c_type, int ldc,
                               long long stride_c, int batch, int compute_type, int algorithm) {
    const bool tf32 = a_type == F32 && c_type == F32 && compute_type == COMPUTE_TF32;
    const bool halves =
        (a_type == F16 || a_type == BF16) && c_type == a_type && compute_type == COMPUTE_F32;
    const bool bytes = a_type == I8 && c_type == I32 && compute_type == COMPUTE_I32 &&
                       ((uintptr_t)a | (uintptr_t)b | (uintptr_t)lda | (uintptr_t)ldb) % 4 == 0;
    if (a_type != b_type || (!tf32 && !halves && !bytes) || algorithm != -1)
        return NOT_SUPPORTED;
    product p = {.type = a_type,
                 .transpose_a = transa,
                 .transpose_b = transb,
                 .reduced_sums = !tf32 && ((handle *)made)->mode != NO_REDUCED_SUMS,
                 .tf32 = tf32,
                 .m = m,
                 .n = n,
                 .k = k,
                 .batch = batch,
                 .alpha = bytes ? *(const int32_t *)alpha : (double)*(const float *)alpha,
                 .beta = bytes ? *(const int32_t *)beta : (double)*(const float *)beta,
                 .a = a,
                 .b = b,
                 .c = c,
                 .lda = lda,
                 .ldb = ldb,
                 .ldc = ldc,
                 .stride_a = stride_a,
                 .stride_b = stride_b,
                 .stride_c = stride_c};
    return queue(made, "cublasGemmStridedBatchedEx", &p);
}

// ------------------------------------------------------------------------------------------------
// triangles

/// b, column-major [m, n], becomes the x with x a = b.
typedef struct triangle {
    bool wide, upper, unit;
    int m, n, lda, ldb;
    const void *a;
    void *b;
} triangle;

static double of_a(const triangle *t, int row, int column) {
    const int at = row + column * t->lda;
    return t->wide ? ((const double *)t->a)[at] : (double)((const float *)t->a)[at];
}

/// One row of x, in the order in which its elements can be known.
static void solve_row(const triangle *t, int row, double *x) {
    for (int i = 0; i < t->n; i++) {
        const int column = t->upper ? i : t->n - 1 - i;
        const int at = row + column * t->ldb;
        double sum = t->wide ? ((double *)t->b)[at] : (double)((float *)t->b)[at];
        for (int k = t->upper ? 0 : column + 1; k < (t->upper ? column : t->n); k++)
            sum -= x[k] * of_a(t, k, column);
        x[column] = t->unit ? sum : sum / of_a(t, column, column);
        if (t->wide)
            ((double *)t->b)[at] = x[column];
        else
            ((float *)t->b)[at] = (float)x[column];
    }
}

static void solve(void *data) {
    const triangle *t = data;
    double *x = malloc((size_t)t->n * sizeof *x);
    if (!x)
        abort();
    for (int row = 0; row < t->m; row++)
        solve_row(t, row, x);
    free(x);
}

/// From the right, of matrices as they are; nothing else.
static int queue_triangle(handle *to, const char *name, int side, int transposed,
                          const triangle *t) {
    if (to->magic != MAGIC)
        return NOT_INITIALIZED;
    if (side != 1 || transposed != 0)
        return NOT_SUPPORTED;
    if (t->m < 0 || t->n < 0 || t->lda < (t->n > 1 ? t->n : 1) || t->ldb < (t->m > 1 ? t->m : 1))
        return INVALID_VALUE;
    return to->queue(to->stream, name, solve, t, sizeof *t) == cudaSuccess ? SUCCESS
                                                                           : EXECUTION_FAILED;
}

EXPORT int cublasStrsm_v2(void *made, int side, int upper, int transposed, int unit, int m, int n,
                          const float *alpha, const float *a, int lda, float *b, int ldb) {
    const triangle t = {false, upper == 1, unit == 1, m, n, lda, ldb, a, b};
    return *alpha == 1.0f ? queue_triangle(made, "cublasStrsm", side, transposed, &t)
                          : NOT_SUPPORTED;
}

EXPORT int cublasDtrsm_v2(void *made, int side, int upper, int transposed, int unit, int m, int n,
                          const double *alpha, const double *a, int lda, double *b, int ldb) {
    const triangle t = {true, upper == 1, unit == 1, m, n, lda, ldb, a, b};
    return *alpha == 1.0 ? queue_triangle(made, "cublasDtrsm", side, transposed, &t)
                         : NOT_SUPPORTED;
}
