// Matrix products by cuBLAS, which is opened at run time.
//
// ND_CUBLAS in the environment names the file to open instead of the usual ones; a name that does
// not exist turns cuBLAS off, and ndarc's own kernels serve. The prototypes are those of cuBLAS 12
// and 13, whose 32-bit interface has not changed. A device has one handle, which serves one thread
// and one stream at a time: it is told the stream of every product, under the lock.
//
// A captured product gets its working memory from the graph. The handle's own would be used by
// launches and by other products at once; it comes back when the handle is told another stream.
#include "lib/device/cuda/cublas.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/gemm.h"
#include "lib/device/tf32.h"

typedef int create_function(void **ret_handle);
typedef int set_stream_function(void *handle, cudaStream_t stream);
typedef int set_math_function(void *handle, int mode);
typedef int set_workspace_function(void *handle, void *workspace, size_t bytes);
typedef int sgemm_function(void *handle, int transa, int transb, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long stride_a,
                           const float *b, int ldb, long long stride_b, const float *beta, float *c,
                           int ldc, long long stride_c, int batch);
typedef int dgemm_function(void *handle, int transa, int transb, int m, int n, int k,
                           const double *alpha, const double *a, int lda, long long stride_a,
                           const double *b, int ldb, long long stride_b, const double *beta,
                           double *c, int ldc, long long stride_c, int batch);
typedef int gemm_ex_function(void *handle, int transa, int transb, int m, int n, int k,
                             const void *alpha, const void *a, int a_type, int lda,
                             long long stride_a, const void *b, int b_type, int ldb,
                             long long stride_b, const void *beta, void *c, int c_type, int ldc,
                             long long stride_c, int batch, int compute_type, int algorithm);

typedef int strsm_function(void *handle, int side, int triangle, int transposed, int diagonal,
                           int m, int n, const float *alpha, const float *a, int lda, float *b,
                           int ldb);
typedef int dtrsm_function(void *handle, int side, int triangle, int transposed, int diagonal,
                           int m, int n, const double *alpha, const double *a, int lda, double *b,
                           int ldb);

static struct {
    create_function *create;
    set_stream_function *set_stream;
    set_math_function *set_math;
    set_workspace_function *set_workspace;
    sgemm_function *sgemm;
    dgemm_function *dgemm;
    gemm_ex_function *gemm_ex;
    strsm_function *strsm;
    dtrsm_function *dtrsm;
} cublas;

nd_status nd__cublas_status(int blas_status) {
    switch (blas_status) {
    case ND__BLAS_SUCCESS:
        return ND_OK;
    case ND__BLAS_ALLOC_FAILED:
        return ND_ERROR_OUT_OF_MEMORY;
    case ND__BLAS_NOT_SUPPORTED:
        return ND_ERROR_UNSUPPORTED;
    default:
        return ND_ERROR_DEVICE;
    }
}

int nd__cublas_dtype(nd_dtype dtype) {
    switch (dtype) {
    case ND_F16:
        return ND__BLAS_F16;
    case ND_BF16:
        return ND__BLAS_BF16;
    case ND_F64:
        return ND__BLAS_F64;
    default:
        return ND__BLAS_F32;
    }
}

static const nd_library_function functions[] = {
    {"cublasCreate_v2", &cublas.create},
    {"cublasSetStream_v2", &cublas.set_stream},
    {"cublasSetMathMode", &cublas.set_math},
    {"cublasSetWorkspace_v2", &cublas.set_workspace},
    {"cublasSgemmStridedBatched", &cublas.sgemm},
    {"cublasDgemmStridedBatched", &cublas.dgemm},
    {"cublasGemmStridedBatchedEx", &cublas.gemm_ex},
    {"cublasStrsm_v2", &cublas.strsm},
    {"cublasDtrsm_v2", &cublas.dtrsm},
    {0},
};

static nd_library library = {
    .variable = "ND_CUBLAS",
    .stem = "libcublas",
    .versions = {13, 12},
    .folders = {"cublas", "cu1[23]"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};

/// The device's handle, at the first product. Caller holds blas_lock.
static nd_status handle_ready(nd_cuda_device *device) {
    if (device->blas)
        return ND_OK;
    if (device->blas_tried || nd__capture_running())
        return ND_ERROR_UNSUPPORTED;
    void *handle = NULL;
    nd_status status = nd__cublas_status(cublas.create(&handle));
    if (status == ND_ERROR_OUT_OF_MEMORY)
        return status; // there may be room later
    device->blas_tried = true;
    if (status != ND_OK)
        return ND_ERROR_UNSUPPORTED;
    // Sums of 16-bit floats are joined in f32.
    if (cublas.set_math(handle, ND__BLAS_NO_REDUCED_SUMS) != ND__BLAS_SUCCESS)
        return ND_ERROR_UNSUPPORTED;
    device->blas = handle;
    return ND_OK;
}

/// The handle is there, on the queue's stream. Caller holds blas_lock.
static nd_status handle_on(nd_cuda_device *device, const nd_cuda_queue *queue) {
    nd_status status = handle_ready(device);
    if (status == ND_OK && device->blas_stream != queue->stream) {
        status = nd__cublas_status(cublas.set_stream(device->blas, (cudaStream_t)queue->stream));
        device->blas_stream = status == ND_OK ? queue->stream : NULL;
    }
    return status;
}

/// Of f32 by TF32, and of halves.
static int run_tensor_cores(void *handle, const nd_gemm *gemm, int transa, int transb) {
    const float one = 1.0f, beta = (float)gemm->beta;
    const int compute = gemm->dtype == ND_F32 ? ND__BLAS_COMPUTE_TF32 : ND__BLAS_COMPUTE_F32;
    const int type = nd__cublas_dtype(gemm->dtype);
    return cublas.gemm_ex(handle, transa, transb, gemm->m, gemm->n, gemm->k, &one, gemm->a, type,
                          gemm->lda, gemm->stride_a, gemm->b, type, gemm->ldb, gemm->stride_b,
                          &beta, gemm->c, type, gemm->ldc, gemm->stride_c, gemm->batch, compute,
                          -1);
}

/// cuBLAS has no product of bytes that are not aligned to four of them.
static bool is_aligned(const nd_gemm *gemm) {
    return (uintptr_t)gemm->a % 4 == 0 && (uintptr_t)gemm->b % 4 == 0 && gemm->lda % 4 == 0 &&
           gemm->ldb % 4 == 0 && gemm->ldc % 4 == 0 &&
           (gemm->batch == 1 || (gemm->stride_a % 4 == 0 && gemm->stride_b % 4 == 0));
}

static int run_bytes(void *handle, const nd_gemm *gemm, int transa, int transb) {
    const int32_t one = 1, zero = 0;
    if (!is_aligned(gemm))
        return ND__BLAS_NOT_SUPPORTED;
    return cublas.gemm_ex(handle, transa, transb, gemm->m, gemm->n, gemm->k, &one, gemm->a,
                          ND__BLAS_I8, gemm->lda, gemm->stride_a, gemm->b, ND__BLAS_I8, gemm->ldb,
                          gemm->stride_b, &zero, gemm->c, ND__BLAS_I32, gemm->ldc, gemm->stride_c,
                          gemm->batch, ND__BLAS_COMPUTE_I32, -1);
}

static nd_status run_gemm(void *context, const nd_gemm *gemm) {
    nd_cuda_device *device = context;
    int transa = gemm->transpose_a ? ND__BLAS_TRANSPOSED : ND__BLAS_PLAIN;
    int transb = gemm->transpose_b ? ND__BLAS_TRANSPOSED : ND__BLAS_PLAIN;
    if (gemm->dtype == ND_F16 || gemm->dtype == ND_BF16 ||
        (gemm->dtype == ND_F32 && nd__tf32_allowed()))
        return nd__cublas_status(run_tensor_cores(device->blas, gemm, transa, transb));
    if (gemm->dtype == ND_I8)
        return nd__cublas_status(run_bytes(device->blas, gemm, transa, transb));
    if (gemm->dtype == ND_F32) {
        const float one = 1.0f, beta = (float)gemm->beta;
        return nd__cublas_status(cublas.sgemm(device->blas, transa, transb, gemm->m, gemm->n,
                                              gemm->k, &one, gemm->a, gemm->lda, gemm->stride_a,
                                              gemm->b, gemm->ldb, gemm->stride_b, &beta, gemm->c,
                                              gemm->ldc, gemm->stride_c, gemm->batch));
    }
    const double one = 1.0, beta = gemm->beta;
    return nd__cublas_status(cublas.dgemm(device->blas, transa, transb, gemm->m, gemm->n, gemm->k,
                                          &one, gemm->a, gemm->lda, gemm->stride_a, gemm->b,
                                          gemm->ldb, gemm->stride_b, &beta, gemm->c, gemm->ldc,
                                          gemm->stride_c, gemm->batch));
}

/// Takes a plan for what it is.
static nd_status run_nothing(void *context, const nd_gemm *gemm) {
    (void)context, (void)gemm;
    return ND_OK;
}

bool nd__cublas_takes(nd_cuda_device *device, const nd_cuda_queue *queue,
                      const nd_kernel_call *call) {
    (void)queue;
    if (!nd__library_open(&library) || nd__gemm_matmul(call, run_nothing, NULL) != ND_OK)
        return false;
    pthread_mutex_lock(&device->blas_lock);
    bool ready = handle_ready(device) == ND_OK;
    pthread_mutex_unlock(&device->blas_lock);
    return ready;
}

void nd__cublas_prepare(nd_cuda_device *device) {
    if (!nd__library_open(&library))
        return;
    pthread_mutex_lock(&device->blas_lock);
    (void)handle_ready(device);
    pthread_mutex_unlock(&device->blas_lock);
}

/// With the lock held, and the handle told the stream.
static nd_status multiply_captured(nd_cuda_device *device, const nd_cuda_queue *queue,
                                   const nd_kernel_call *call) {
    // As much as the handle's own, so that the same algorithms are chosen: what NVIDIA names for
    // compute capability 9.0 and later.
    const size_t bytes = (size_t)32 << 20;
    void *workspace;
    nd_status status = queue->allocate(queue->context, bytes, &workspace);
    if (status != ND_OK)
        return status;
    status = nd__cublas_status(cublas.set_workspace(device->blas, workspace, bytes));
    if (status == ND_OK)
        status = nd__gemm_matmul(call, run_gemm, device);
    device->blas_stream = NULL; // so that the handle gets its own back
    queue->release(queue->context, workspace);
    return status;
}

nd_status nd__cublas_matmul(nd_cuda_device *device, const nd_cuda_queue *queue,
                            const nd_kernel_call *call) {
    if (!nd__library_open(&library))
        return ND_ERROR_UNSUPPORTED;
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = handle_on(device, queue);
    if (status == ND_OK)
        status = nd__capture_running() ? multiply_captured(device, queue, call)
                                       : nd__gemm_matmul(call, run_gemm, device);
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}

bool nd__cublas_takes_triangles(nd_cuda_device *device) {
    if (!nd__library_open(&library))
        return false;
    pthread_mutex_lock(&device->blas_lock);
    bool ready = handle_ready(device) == ND_OK;
    pthread_mutex_unlock(&device->blas_lock);
    return ready;
}

/// Row by row, a x = b is x^T a^T = b^T column by column: the other triangle, on the other side.
static int solve_triangle(void *handle, const nd_cublas_triangles *t, int64_t at) {
    const int triangle = t->upper ? ND__BLAS_LOWER : ND__BLAS_UPPER;
    const int n = (int)t->n, o = (int)t->o;
    const int64_t a_at = at * t->n * t->n, x_at = at * t->n * t->o;
    const float one = 1.0f;
    const double wide_one = 1.0;
    if (t->dtype == ND_F64)
        return cublas.dtrsm(handle, ND__BLAS_RIGHT, triangle, ND__BLAS_PLAIN, t->unit, o, n,
                            &wide_one, (const double *)t->a + a_at, n, (double *)t->x + x_at, o);
    return cublas.strsm(handle, ND__BLAS_RIGHT, triangle, ND__BLAS_PLAIN, t->unit, o, n, &one,
                        (const float *)t->a + a_at, n, (float *)t->x + x_at, o);
}

nd_status nd__cublas_solve_triangles(nd_cuda_device *device, const nd_cuda_queue *queue,
                                     const nd_cublas_triangles *triangles) {
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = handle_on(device, queue);
    for (int64_t at = 0; at < triangles->count && status == ND_OK; at++)
        status = nd__cublas_status(solve_triangle(device->blas, triangles, at));
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}
