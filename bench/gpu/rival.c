// The rivals in this process, by CUDA's runtime and cuBLAS.
#include "bench/gpu/rival.h"

#ifdef WITH_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// Of cuBLAS 12 and 13.
enum {
    BLAS_PLAIN = 0,
    TYPE_F32 = 0,
    TYPE_F16 = 2,
    TYPE_I8 = 3,
    TYPE_I32 = 10,
    TYPE_BF16 = 14,
    COMPUTE_F32 = 68,
    COMPUTE_I32 = 72,
    COMPUTE_TF32 = 77,
    ALGORITHM = -1
};
typedef int create_function(void **ret_handle);
typedef int destroy_function(void *handle);
typedef int set_stream_function(void *handle, cudaStream_t stream);
typedef int sgemm_function(void *handle, int transa, int transb, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long stride_a,
                           const float *b, int ldb, long long stride_b, const float *beta, float *c,
                           int ldc, long long stride_c, int batch);
typedef int gemm_function(void *handle, int transa, int transb, int m, int n, int k,
                          const void *alpha, const void *a, int type_a, int lda, const void *b,
                          int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                          int compute, int algorithm);

struct rival {
    void *library, *handle;
    cudaStream_t stream;
    sgemm_function *sgemm;
    gemm_function *gemm; ///< NULL: this library has none
    void *blocks[3];
    size_t bytes;
    nd_dtype dtype;
    int n;
    bool tf32;
};

static void find(void *library, const char *name, void *ret_function) {
    *(void **)ret_function = library ? dlsym(library, name) : NULL;
}

static void *open_library(void) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                        "/usr/local/cuda/lib64/libcublas.so.13",
                                        "/usr/local/cuda/lib64/libcublas.so.12"};
    const char *chosen = getenv("ND_CUBLAS");
    void *library = chosen && *chosen ? dlopen(chosen, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

const char *rival_open(rival **ret_rival) {
    rival *self = calloc(1, sizeof *self);
    *ret_rival = self;
    if (!self || cudaSetDevice(0) != cudaSuccess ||
        cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking) != cudaSuccess)
        return "SKIPPED: no stream of its own";
    create_function *create;
    set_stream_function *set_stream;
    self->library = open_library();
    find(self->library, "cublasCreate_v2", &create);
    find(self->library, "cublasSetStream_v2", &set_stream);
    find(self->library, "cublasSgemmStridedBatched", &self->sgemm);
    find(self->library, "cublasGemmEx", &self->gemm);
    if (!create || !set_stream || create(&self->handle) != 0 ||
        set_stream(self->handle, self->stream) != 0)
        return "copies by cudaMemcpyAsync; products SKIPPED: no cuBLAS";
    return "cudaMemcpyAsync and cuBLAS, in this process";
}

static void give_back(rival *self) {
    for (int i = 0; i < 3; i++) {
        cudaFree(self->blocks[i]);
        self->blocks[i] = NULL;
    }
}

void rival_close(rival *self) {
    if (!self)
        return;
    destroy_function *destroy;
    find(self->library, "cublasDestroy_v2", &destroy);
    if (destroy && self->handle)
        destroy(self->handle);
    give_back(self);
    if (self->stream)
        cudaStreamDestroy(self->stream);
    free(self);
}

bool rival_is_fake(void) {
    return dlsym(RTLD_DEFAULT, "cudart_queue_library") != NULL;
}

/// Normal numbers, of i8 evenly drawn ones, as ours: how much power a product takes, and so how fast it is, depends
/// on the digits of its factors. Drawn from a table of them, in any of the dtypes.
static bool fill(const rival *self, void *block, size_t bytes) {
    enum { DRAWN = 1 << 16 };
    const size_t size = nd_dtype_get_size(self->dtype), count = bytes / size;
    nd_auto nd_tensor *normal = NULL;
    char *table = malloc(DRAWN * size), *host = malloc(bytes);
    bool right = table && host && nd_set_default_device((nd_device){ND_CPU, 0}) == ND_OK;
    if (right)
        normal = self->dtype == ND_I8
                     ? nd_randint(nd_key_new(29), -100, 100, ND_SHAPE(DRAWN), ND_I8)
                     : nd_randn(nd_key_new(29), ND_SHAPE(DRAWN), self->dtype);
    right = right && nd_set_default_device((nd_device){ND_CUDA, 0}) == ND_OK &&
            nd_copy_to_host(normal, table, DRAWN * size) == ND_OK;
    uint64_t random = 88172645463325252u + (uintptr_t)block;
    for (size_t i = 0; right && i < count; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        memcpy(host + i * size, table + (random >> 48) * size, size);
    }
    right = right && cudaMemcpyAsync(block, host, bytes, cudaMemcpyHostToDevice, self->stream) ==
                         cudaSuccess;
    right = cudaStreamSynchronize(self->stream) == cudaSuccess && right;
    free(table);
    free(host);
    return right;
}

static bool take(rival *self, nd_dtype dtype, size_t bytes, int count) {
    give_back(self);
    self->dtype = dtype;
    self->bytes = bytes;
    bool right = true;
    for (int i = 0; i < count && right; i++)
        right = cudaMalloc(&self->blocks[i], bytes) == cudaSuccess &&
                fill(self, self->blocks[i], bytes);
    return right;
}

bool rival_take_blocks(rival *self, size_t bytes) {
    return self && self->stream && take(self, ND_F32, bytes, 2);
}

bool rival_take_matrices(rival *self, nd_dtype dtype, int64_t n, bool tf32) {
    const bool plain = dtype == ND_F32 && !tf32;
    if (!self || !self->handle || !(plain ? (void *)self->sgemm : (void *)self->gemm))
        return false;
    self->n = (int)n;
    self->tf32 = tf32;
    // Results of i8 are four times as large.
    const size_t size = dtype == ND_I8 ? sizeof(int32_t) : nd_dtype_get_size(dtype);
    return take(self, dtype, (size_t)(n * n) * size, 3);
}

bool rival_copies(void *data, uint64_t count) {
    const rival *self = data;
    bool right = true;
    for (uint64_t i = 0; i < count && right; i++)
        right = cudaMemcpyAsync(self->blocks[0], self->blocks[1], self->bytes,
                                cudaMemcpyDeviceToDevice, self->stream) == cudaSuccess;
    return cudaStreamSynchronize(self->stream) == cudaSuccess && right;
}

/// n x n of what is no plain f32.
static bool multiply(const rival *self) {
    const float one = 1, zero = 0;
    const int32_t integer_one = 1, integer_zero = 0;
    const int n = self->n;
    const bool bytes = self->dtype == ND_I8;
    const int type = bytes                    ? TYPE_I8
                     : self->dtype == ND_BF16 ? TYPE_BF16
                     : self->dtype == ND_F16  ? TYPE_F16
                                              : TYPE_F32;
    return self->gemm(self->handle, BLAS_PLAIN, BLAS_PLAIN, n, n, n,
                      bytes ? (const void *)&integer_one : &one, self->blocks[0], type, n,
                      self->blocks[1], type, n, bytes ? (const void *)&integer_zero : &zero,
                      self->blocks[2], bytes ? TYPE_I32 : type, n,
                      bytes        ? COMPUTE_I32
                      : self->tf32 ? COMPUTE_TF32
                                   : COMPUTE_F32,
                      ALGORITHM) == 0;
}

bool rival_products(void *data, uint64_t count) {
    const rival *self = data;
    const float one = 1, zero = 0;
    const int n = self->n;
    const long long square = (long long)n * n;
    bool right = true;
    for (uint64_t i = 0; i < count && right; i++)
        right = self->dtype == ND_F32 && !self->tf32
                    ? self->sgemm(self->handle, BLAS_PLAIN, BLAS_PLAIN, n, n, n, &one,
                                  self->blocks[0], n, square, self->blocks[1], n, square, &zero,
                                  self->blocks[2], n, square, 1) == 0
                    : multiply(self);
    return cudaStreamSynchronize(self->stream) == cudaSuccess && right;
}

#else

const char *rival_open(rival **ret_rival) {
    *ret_rival = NULL;
    return "SKIPPED: this build has no CUDA";
}

void rival_close(rival *self) {
    (void)self;
}

bool rival_is_fake(void) {
    return false;
}

bool rival_take_blocks(rival *self, size_t bytes) {
    return self && bytes && false;
}

bool rival_take_matrices(rival *self, nd_dtype dtype, int64_t n, bool tf32) {
    return self && dtype && n && tf32 && false;
}

bool rival_copies(void *data, uint64_t count) {
    return data && count && false;
}

bool rival_products(void *data, uint64_t count) {
    return data && count && false;
}
#endif
