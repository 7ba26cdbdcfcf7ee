// Matrix products, and systems of triangles, by cuBLAS.
#ifndef ND_LIB_DEVICE_CUDA_CUBLAS_H
#define ND_LIB_DEVICE_CUDA_CUBLAS_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

/// What its status means for a caller.
nd_status nd__cublas_status(int blas_status);
/// Its number of a float dtype.
int nd__cublas_dtype(nd_dtype dtype);

/// Makes the device's handle, where it can be made.
void nd__cublas_prepare(nd_cuda_device *device);

/// Whether it is there and can express the call's matrices.
bool nd__cublas_takes(nd_cuda_device *device, const nd_cuda_queue *queue,
                      const nd_kernel_call *call);
/// A MATMUL call, whose bias and activation are somebody else's. ND_ERROR_UNSUPPORTED, with nothing
/// queued, when cuBLAS is missing or cannot do it.
nd_status nd__cublas_matmul(nd_cuda_device *device, const nd_cuda_queue *queue,
                            const nd_kernel_call *call);

/// Systems of triangles [n, n] one behind the other, each with o columns; all row-major.
typedef struct nd_cublas_triangles {
    nd_dtype dtype; ///< f32 or f64
    int64_t count, n, o;
    bool upper, unit; ///< which triangle; with ones on the diagonal
    const void *a;
    void *x; ///< [count, n, o]: what is solved for, then the solutions
} nd_cublas_triangles;

/// Whether it is there.
bool nd__cublas_takes_triangles(nd_cuda_device *device);
/// What is 0 on a diagonal is divided by. Where it is there, and not while this thread captures.
nd_status nd__cublas_solve_triangles(nd_cuda_device *device, const nd_cuda_queue *queue,
                                     const nd_cublas_triangles *triangles);
#endif
