// What the fake cuBLAS and cuBLASLt share: a column-major product by plain loops, done late, in
// order on a stream.
#ifndef ND_TESTS_CUDART_BLAS_H
#define ND_TESTS_CUDART_BLAS_H
#include "tests/cudart/control.h"
#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    ALLOC_FAILED = 3,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15
};
enum { F32 = 0, F64 = 1, F16 = 2, I8 = 3, I32 = 10, BF16 = 14 };

typedef cudaError_t queue_function(cudaStream_t stream, const char *name,
                                   void (*function)(void *data), const void *data, size_t bytes);

/// c = activation(alpha op(a) op(b) + beta c + bias), column-major; the bias has one number for
/// each row of c.
typedef struct product {
    int type; ///< of all matrices; I8: of a and b, and c is of I32
    bool transpose_a, transpose_b;
    bool relu;
    bool reduced_sums; ///< parts of sums are rounded as results are
    bool tf32;         ///< operands are cut to 10 bits behind the point
    int m, n, k, batch;
    double alpha, beta;
    const void *a, *b, *bias;
    void *c;
    long long lda, ldb, ldc, stride_a, stride_b, stride_c;
    void *workspace; ///< overwritten; NULL: none
    size_t workspace_bytes;
} product;

/// The program's cudart_queue_library; NULL: there is no fake runtime.
queue_function *blas_queue(void);
bool blas_knows(int type);
/// An f32 with the digits that TF32 has.
double blas_cut_to_tf32(float x);
/// Checks what a BLAS checks, and queues.
int blas_multiply(queue_function *queue, cudaStream_t stream, const char *name, const product *p);
/// Number in the environment under a name; 0: none.
int blas_asked(const char *variable);
#endif
