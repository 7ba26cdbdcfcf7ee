// A row-major product as calls of a column-major BLAS with strided batches. Knows nothing of CUDA,
// so that the tests can check the plan against a BLAS of their own.
//
// A row-major matrix is a column-major one transposed, and (a b)^T = b^T a^T: the BLAS is given b
// first, and writes out without any copy.
#ifndef ND_LIB_DEVICE_CUDA_GEMM_H
#define ND_LIB_DEVICE_CUDA_GEMM_H
#include "kernels/kernel.h"

/// One call: c = op(a) op(b) + beta c, all column-major, for `batch` problems.
typedef struct nd_gemm {
    nd_dtype dtype; ///< a float's; ND_I8: of a and b, and c is i32
    bool transpose_a, transpose_b;
    int m, n, k; ///< c: [m, n]
    const void *a, *b;
    void *c;
    int lda, ldb, ldc;
    long long stride_a, stride_b, stride_c; ///< between problems, in elements
    int batch;
    double beta;
} nd_gemm;

typedef nd_status (*nd_gemm_function)(void *context, const nd_gemm *gemm);

/// Runs a MATMUL call through `run`. ND_ERROR_UNSUPPORTED, with nothing run, when its strides or
/// sizes cannot be written as such calls. Else the first failure of `run`, or ND_OK.
nd_status nd__gemm_matmul(const nd_kernel_call *call, nd_gemm_function run, void *context);
#endif
