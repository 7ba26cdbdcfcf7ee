// Matrix products by cuBLAS, which is opened at run time: the library neither links nor needs it.
//
// ND_CUBLAS in the environment names the file to open instead of the usual ones; a name that does
// not exist turns cuBLAS off, and ndarc's own kernel serves. The prototypes are those of cuBLAS 12
// and 13, whose 32-bit interface has not changed.
#include "lib/device/cuda/cuda_device.h"
#include "lib/device/cuda/gemm.h"
#include <dlfcn.h>
#include <stdlib.h>

enum { BLAS_SUCCESS = 0, BLAS_ALLOC_FAILED = 3, BLAS_NOT_SUPPORTED = 15 };
enum { BLAS_PLAIN = 0, BLAS_TRANSPOSED = 1 };

typedef int create_function(void **ret_handle);
typedef int set_stream_function(void *handle, cudaStream_t stream);
typedef int sgemm_function(void *handle, int transa, int transb, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long stride_a,
                           const float *b, int ldb, long long stride_b, const float *beta, float *c,
                           int ldc, long long stride_c, int batch);
typedef int dgemm_function(void *handle, int transa, int transb, int m, int n, int k,
                           const double *alpha, const double *a, int lda, long long stride_a,
                           const double *b, int ldb, long long stride_b, const double *beta,
                           double *c, int ldc, long long stride_c, int batch);

static struct {
    bool found;
    create_function *create;
    set_stream_function *set_stream;
    sgemm_function *sgemm;
    dgemm_function *dgemm;
} cublas;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static nd_status status_of(int blas_status) {
    switch (blas_status) {
    case BLAS_SUCCESS:
        return ND_OK;
    case BLAS_ALLOC_FAILED:
        return ND_ERROR_OUT_OF_MEMORY;
    case BLAS_NOT_SUPPORTED:
        return ND_ERROR_UNSUPPORTED;
    default:
        return ND_ERROR_DEVICE;
    }
}

static void *open_library(void) {
    const char *chosen = secure_getenv("ND_CUBLAS");
    if (chosen && *chosen)
        return dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
    static const char *const names[] = {
        "libcublas.so.13",
        "libcublas.so.12",
        "/usr/local/cuda/lib64/libcublas.so.13",
        "/usr/local/cuda/lib64/libcublas.so.12",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

/// A symbol into a function pointer of any type; false when the library has no such symbol.
static bool find(void *library, const char *name, void *ret_function) {
    void *symbol = dlsym(library, name);
    *(void **)ret_function = symbol;
    return symbol != NULL;
}

static void open_once(void) {
    void *library = open_library();
    if (!library)
        return;
    cublas.found = find(library, "cublasCreate_v2", &cublas.create) &&
                   find(library, "cublasSetStream_v2", &cublas.set_stream) &&
                   find(library, "cublasSgemmStridedBatched", &cublas.sgemm) &&
                   find(library, "cublasDgemmStridedBatched", &cublas.dgemm);
    if (!cublas.found)
        dlclose(library);
}

/// The device's handle, at the first product. Caller holds blas_lock.
static nd_status handle_ready(nd_cuda_device *device) {
    if (device->blas)
        return ND_OK;
    if (device->blas_tried)
        return ND_ERROR_UNSUPPORTED;
    void *handle = NULL;
    nd_status status = status_of(cublas.create(&handle));
    if (status == ND_ERROR_OUT_OF_MEMORY)
        return status; // there may be room later
    device->blas_tried = true;
    if (status != ND_OK)
        return ND_ERROR_UNSUPPORTED;
    if (cublas.set_stream(handle, device->stream) != BLAS_SUCCESS)
        return ND_ERROR_UNSUPPORTED;
    device->blas = handle;
    return ND_OK;
}

static nd_status run_gemm(void *context, const nd_gemm *gemm) {
    nd_cuda_device *device = context;
    int transa = gemm->transpose_a ? BLAS_TRANSPOSED : BLAS_PLAIN;
    int transb = gemm->transpose_b ? BLAS_TRANSPOSED : BLAS_PLAIN;
    if (gemm->dtype == ND_F32) {
        const float one = 1.0f, beta = (float)gemm->beta;
        return status_of(cublas.sgemm(device->blas, transa, transb, gemm->m, gemm->n, gemm->k, &one,
                                      gemm->a, gemm->lda, gemm->stride_a, gemm->b, gemm->ldb,
                                      gemm->stride_b, &beta, gemm->c, gemm->ldc, gemm->stride_c,
                                      gemm->batch));
    }
    const double one = 1.0, beta = gemm->beta;
    return status_of(cublas.dgemm(device->blas, transa, transb, gemm->m, gemm->n, gemm->k, &one,
                                  gemm->a, gemm->lda, gemm->stride_a, gemm->b, gemm->ldb,
                                  gemm->stride_b, &beta, gemm->c, gemm->ldc, gemm->stride_c,
                                  gemm->batch));
}

nd_status nd__cublas_matmul(nd_cuda_device *device, const nd_kernel_call *call) {
    pthread_once(&opened, open_once);
    bool is_plain = call->op == ND_OP_matmul || (call->noperands < 4 && call->attrs.i[9] == 0);
    if (!cublas.found || !is_plain)
        return ND_ERROR_UNSUPPORTED;
    // A handle serves one thread at a time.
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = handle_ready(device);
    if (status == ND_OK)
        status = nd__gemm_matmul(call, run_gemm, device);
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}
