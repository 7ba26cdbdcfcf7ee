// cuSOLVER as it is opened at run time (ND_CUSOLVER names the file, as ND_CUBLAS does): its functions and a
// device's handle. The prototypes are those of CUDA 12 and 13.
#ifndef ND_LIB_DEVICE_CUDA_CUSOLVER_LIBRARY_H
#define ND_LIB_DEVICE_CUDA_CUSOLVER_LIBRARY_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"
#include <stddef.h>
#include <stdint.h>

typedef int nd_cusolver_make(void **ret_made);
typedef int nd_cusolver_set_stream(void *handle, cudaStream_t stream);
typedef int nd_cusolver_potrf_size(void *handle, void *params, int triangle, int64_t n, int type,
                                   const void *a, int64_t lda, int compute, size_t *ret_bytes,
                                   size_t *ret_host_bytes);
typedef int nd_cusolver_potrf(void *handle, void *params, int triangle, int64_t n, int type,
                              void *a, int64_t lda, int compute, void *work, size_t bytes,
                              void *host, size_t host_bytes, int *info);
typedef int nd_cusolver_getrf_size(void *handle, void *params, int64_t m, int64_t n, int type,
                                   const void *a, int64_t lda, int compute, size_t *ret_bytes,
                                   size_t *ret_host_bytes);
typedef int nd_cusolver_getrf(void *handle, void *params, int64_t m, int64_t n, int type, void *a,
                              int64_t lda, int64_t *pivots, int compute, void *work, size_t bytes,
                              void *host, size_t host_bytes, int *info);
typedef int nd_cusolver_getrs(void *handle, void *params, int transposed, int64_t n, int64_t others,
                              int type, const void *a, int64_t lda, const int64_t *pivots,
                              int b_type, void *b, int64_t ldb, int *info);
typedef int nd_cusolver_geqrf_size(void *handle, void *params, int64_t m, int64_t n, int type,
                                   const void *a, int64_t lda, int tau_type, const void *tau,
                                   int compute, size_t *ret_bytes, size_t *ret_host_bytes);
typedef int nd_cusolver_geqrf(void *handle, void *params, int64_t m, int64_t n, int type, void *a,
                              int64_t lda, int tau_type, void *tau, int compute, void *work,
                              size_t bytes, void *host, size_t host_bytes, int *info);
/// Of S and D; sizes are elements.
typedef int nd_cusolver_orgqr_size(void *handle, int m, int n, int k, const void *a, int lda,
                                   const void *tau, int *ret_size);
typedef int nd_cusolver_orgqr(void *handle, int m, int n, int k, void *a, int lda, const void *tau,
                              void *work, int size, int *info);
typedef int nd_cusolver_syevd_size(void *handle, void *params, int vectors, int triangle, int64_t n,
                                   int type, const void *a, int64_t lda, int w_type, const void *w,
                                   int compute, size_t *ret_bytes, size_t *ret_host_bytes);
typedef int nd_cusolver_syevd(void *handle, void *params, int vectors, int triangle, int64_t n,
                              int type, void *a, int64_t lda, int w_type, void *w, int compute,
                              void *work, size_t bytes, void *host, size_t host_bytes, int *info);
typedef int nd_cusolver_gesvd_size(void *handle, void *params, signed char job_u, signed char job_v,
                                   int64_t m, int64_t n, int type, const void *a, int64_t lda,
                                   int s_type, const void *s, int u_type, const void *u,
                                   int64_t ldu, int v_type, const void *v, int64_t ldv, int compute,
                                   size_t *ret_bytes, size_t *ret_host_bytes);
typedef int nd_cusolver_gesvd(void *handle, void *params, signed char job_u, signed char job_v,
                              int64_t m, int64_t n, int type, void *a, int64_t lda, int s_type,
                              void *s, int u_type, void *u, int64_t ldu, int v_type, void *v,
                              int64_t ldv, int compute, void *work, size_t bytes, void *host,
                              size_t host_bytes, int *info);

/// Its functions, by LAPACK's names.
typedef struct nd_cusolver {
    nd_cusolver_make *make, *make_params;
    nd_cusolver_set_stream *set_stream;
    nd_cusolver_potrf_size *potrf_size;
    nd_cusolver_potrf *potrf;
    nd_cusolver_getrf_size *getrf_size;
    nd_cusolver_getrf *getrf;
    nd_cusolver_getrs *getrs;
    nd_cusolver_geqrf_size *geqrf_size;
    nd_cusolver_geqrf *geqrf;
    nd_cusolver_orgqr_size *sorgqr_size, *dorgqr_size;
    nd_cusolver_orgqr *sorgqr, *dorgqr;
    nd_cusolver_syevd_size *syevd_size;
    nd_cusolver_syevd *syevd;
    nd_cusolver_gesvd_size *gesvd_size;
    nd_cusolver_gesvd *gesvd;
} nd_cusolver;

/// NULL: it is not there, or there is no room to open it now.
const nd_cusolver *nd__cusolver_library(void);
/// What a status means; everything that is none of memory or of the device is a refusal.
nd_status nd__cusolver_library_status(int status);
/// The device's handle and parameters are there, and on the queue's stream. ND_ERROR_UNSUPPORTED: they cannot be
/// made. Caller holds blas_lock, and there is a library.
nd_status nd__cusolver_library_handle(nd_cuda_device *device, const nd_cuda_queue *queue);
#endif
