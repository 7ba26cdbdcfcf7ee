// A cuFFT for the fake runtime: libcufft.so with the functions of cuFFT 11 and 12 that lib/device/cuda
// opens at run time. Its numbers are those of the definition, in double, done late.
//
// What the documentation leaves open it uses: transforms to real numbers overwrite what they read, and the
// working memory, which is asked for but for lines of four elements. A destroyed plan waits for what was
// queued with it; what still uses it afterwards ends the program. ND_CUDART_CUFFT in the environment
// says what else it does; from 1000 on a status that creating a plan answers.
#include "tests/cudart/blas.h"
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REFUSES = 100, ///< no size suits it
    HAS_NO_MEMORY, ///< for plans
    WANTS_MUCH,    ///< as working memory, more than there is
    RUNS_NOT,      ///< running fails
    IS_CROWDED,    ///< there is memory for 100 plans at once
};
enum { CROWD = 100 };
enum { NEEDS_NONE = 4 }; ///< elements of a line that is transformed without working memory
enum {
    FFT_INVALID_PLAN = 1,
    FFT_ALLOC_FAILED = 2,
    FFT_INVALID_TYPE = 3,
    FFT_INVALID_VALUE = 4,
    FFT_EXEC_FAILED = 6,
    FFT_SETUP_FAILED = 7,
    FFT_INVALID_SIZE = 8,
    FFT_UNALIGNED_DATA = 9,
    FFT_NO_WORKSPACE = 13,
};
enum { R2C = 0x2a, C2R = 0x2c, C2C = 0x29, D2Z = 0x6a, Z2D = 0x6c, Z2Z = 0x69 };
enum { PLANS = 1 << 16 };

typedef struct plan {
    bool made, laid_out, allocates;
    int type;
    long long n, count;
    size_t bytes;
    cudaStream_t stream;
    void *memory;
} plan;

static plan plans[PLANS]; ///< by handle; one is never made twice
static int made, alive;
static bool destroyed[PLANS]; ///< read by work that was queued

/// Work as it is queued.
typedef struct work {
    int handle, type, sign;
    long long n, count;
    void *in, *out, *memory;
    size_t bytes;
} work;

EXPORT int cufftCreate(int *ret_handle);
EXPORT int cufftSetAutoAllocation(int handle, int allocates);
EXPORT int cufftMakePlanMany64(int handle, int rank, long long *n, long long *in_sizes,
                               long long in_stride, long long in_apart, long long *out_sizes,
                               long long out_stride, long long out_apart, int type, long long count,
                               size_t *ret_bytes);
EXPORT int cufftSetStream(int handle, cudaStream_t stream);
EXPORT int cufftSetWorkArea(int handle, void *memory);
EXPORT int cufftExecC2C(int handle, void *in, void *out, int sign);
EXPORT int cufftExecZ2Z(int handle, void *in, void *out, int sign);
EXPORT int cufftExecR2C(int handle, void *in, void *out);
EXPORT int cufftExecD2Z(int handle, void *in, void *out);
EXPORT int cufftExecC2R(int handle, void *in, void *out);
EXPORT int cufftExecZ2D(int handle, void *in, void *out);
EXPORT int cufftDestroy(int handle);

// ------------------------------------------------------------------------------------------------
// plans

static plan *find(int handle) {
    return handle > 0 && handle < PLANS && plans[handle].made ? &plans[handle] : NULL;
}

int cufftCreate(int *ret_handle) {
    const int asked = blas_asked("ND_CUDART_CUFFT");
    if (asked >= 1000)
        return asked - 1000;
    if (!blas_queue())
        return FFT_SETUP_FAILED;
    if (made + 1 >= PLANS || (asked == IS_CROWDED && alive >= CROWD))
        return FFT_ALLOC_FAILED;
    alive++;
    plans[++made] = (plan){.made = true, .allocates = true};
    *ret_handle = made;
    return SUCCESS;
}

int cufftSetAutoAllocation(int handle, int allocates) {
    plan *of = find(handle);
    if (!of || of->laid_out)
        return FFT_INVALID_PLAN;
    of->allocates = allocates != 0;
    return SUCCESS;
}

int cufftMakePlanMany64(int handle, int rank, long long *n, long long *in_sizes,
                        long long in_stride, long long in_apart, long long *out_sizes,
                        long long out_stride, long long out_apart, int type, long long count,
                        size_t *ret_bytes) {
    (void)in_stride, (void)in_apart, (void)out_stride, (void)out_apart; // not read without sizes
    plan *of = find(handle);
    if (!of || of->laid_out)
        return FFT_INVALID_PLAN;
    if (type != R2C && type != C2R && type != C2C && type != D2Z && type != Z2D && type != Z2Z)
        return FFT_INVALID_TYPE;
    const int asked = blas_asked("ND_CUDART_CUFFT");
    if (rank != 1 || n[0] < 1 || count < 1 || asked == REFUSES)
        return FFT_INVALID_SIZE;
    if (in_sizes || out_sizes || of->allocates) // lines lie behind each other; no memory of its own
        return FFT_INVALID_VALUE;
    if (asked == HAS_NO_MEMORY)
        return FFT_ALLOC_FAILED;
    of->type = type;
    of->n = n[0];
    of->count = count;
    of->bytes = asked == WANTS_MUCH  ? (size_t)1 << 50
                : n[0] == NEEDS_NONE ? 0
                                     : (size_t)(n[0] * count) * 16;
    of->laid_out = true;
    *ret_bytes = of->bytes;
    return SUCCESS;
}

int cufftSetStream(int handle, cudaStream_t stream) {
    plan *of = find(handle);
    if (!of)
        return FFT_INVALID_PLAN;
    of->stream = stream;
    return SUCCESS;
}

int cufftSetWorkArea(int handle, void *memory) {
    plan *of = find(handle);
    if (!of)
        return FFT_INVALID_PLAN;
    if (!memory)
        return FFT_INVALID_VALUE;
    of->memory = memory;
    return SUCCESS;
}

int cufftDestroy(int handle) {
    plan *of = find(handle);
    if (!of)
        return FFT_INVALID_PLAN;
    int (*wait)(void) = NULL;
    *(void **)&wait = dlsym(RTLD_DEFAULT, "cudart_synchronize");
    if (wait)
        (void)wait();
    of->made = false;
    alive--;
    __atomic_store_n(&destroyed[handle], true, __ATOMIC_RELEASE);
    return SUCCESS;
}

// ------------------------------------------------------------------------------------------------
// transforms

static bool is_wide(int type) {
    return type == D2Z || type == Z2D || type == Z2Z;
}

static double number_at(int type, const void *numbers, long long at) {
    return is_wide(type) ? ((const double *)numbers)[at] : (double)((const float *)numbers)[at];
}

static void set_number(int type, void *numbers, long long at, double value) {
    if (is_wide(type))
        ((double *)numbers)[at] = value;
    else
        ((float *)numbers)[at] = (float)value;
}

/// All n pairs of a line that is read.
static void read_line(const work *of, long long line, double *pairs) {
    const long long n = of->n, half = n / 2 + 1;
    for (long long j = 0; j < n; j++) {
        if (of->type == R2C || of->type == D2Z) {
            pairs[2 * j] = number_at(of->type, of->in, line * n + j);
            pairs[2 * j + 1] = 0;
            continue;
        }
        const bool is_half = of->type == C2R || of->type == Z2D;
        const bool is_conjugate = is_half && j >= half;
        const long long at = (is_half ? line * half : line * n) + (is_conjugate ? n - j : j);
        pairs[2 * j] = number_at(of->type, of->in, 2 * at);
        pairs[2 * j + 1] = (is_conjugate ? -1 : 1) * number_at(of->type, of->in, 2 * at + 1);
    }
}

static void write_line(const work *of, long long line, long long k, double real, double imaginary) {
    const long long n = of->n, half = n / 2 + 1;
    if (of->type == C2R || of->type == Z2D) {
        set_number(of->type, of->out, line * n + k, real);
        return;
    }
    const bool is_half = of->type == R2C || of->type == D2Z;
    if (is_half && k >= half)
        return;
    const long long at = (is_half ? line * half : line * n) + k;
    set_number(of->type, of->out, 2 * at, real);
    set_number(of->type, of->out, 2 * at + 1, imaginary);
}

static void transform_line(const work *of, long long line, const double *roots,
                           const double *pairs) {
    for (long long k = 0; k < of->n; k++) {
        double real = 0, imaginary = 0;
        for (long long j = 0; j < of->n; j++) {
            const double *root = roots + 2 * (j * k % of->n);
            real += pairs[2 * j] * root[0] - pairs[2 * j + 1] * root[1];
            imaginary += pairs[2 * j] * root[1] + pairs[2 * j + 1] * root[0];
        }
        write_line(of, line, k, real, imaginary);
    }
}

static void transform(void *data) {
    const work *of = data;
    if (__atomic_load_n(&destroyed[of->handle], __ATOMIC_ACQUIRE)) {
        fprintf(stderr, "cufft: work uses plan %d, which was destroyed\n", of->handle);
        abort();
    }
    if (of->bytes > 0)
        memset(of->memory, 0xEE, of->bytes);
    double *roots = malloc((size_t)of->n * 4 * sizeof *roots);
    if (!roots)
        abort();
    double *pairs = roots + 2 * of->n;
    for (long long k = 0; k < of->n; k++) {
        const double angle = 2 * of->sign * acos(-1) * (double)k / (double)of->n;
        roots[2 * k] = cos(angle);
        roots[2 * k + 1] = sin(angle);
    }
    for (long long line = 0; line < of->count; line++) {
        read_line(of, line, pairs);
        transform_line(of, line, roots, pairs);
    }
    if (of->type == C2R || of->type == Z2D)
        memset(of->in, 0xEE,
               (size_t)(of->count * (of->n / 2 + 1)) * (is_wide(of->type) ? 16u : 8u));
    free(roots);
}

static int run(int handle, int type, void *in, void *out, int sign) {
    const plan *of = find(handle);
    if (!of || !of->laid_out || of->type != type)
        return FFT_INVALID_PLAN;
    const uintptr_t pair = is_wide(type) ? 16 : 8;
    if (!in || !out || (sign != 1 && sign != -1))
        return FFT_INVALID_VALUE;
    if ((uintptr_t)in % pair != 0 || (uintptr_t)out % pair != 0)
        return FFT_UNALIGNED_DATA;
    if (!of->memory && of->bytes > 0)
        return FFT_NO_WORKSPACE;
    if (blas_asked("ND_CUDART_CUFFT") == RUNS_NOT)
        return FFT_EXEC_FAILED;
    const work queued = {handle, type, sign, of->n, of->count, in, out, of->memory, of->bytes};
    const cudaError_t error = blas_queue()(of->stream, "cufft", transform, &queued, sizeof queued);
    return error == cudaSuccess ? SUCCESS : FFT_EXEC_FAILED;
}

int cufftExecC2C(int handle, void *in, void *out, int sign) {
    return run(handle, C2C, in, out, sign);
}

int cufftExecZ2Z(int handle, void *in, void *out, int sign) {
    return run(handle, Z2Z, in, out, sign);
}

int cufftExecR2C(int handle, void *in, void *out) {
    return run(handle, R2C, in, out, -1);
}

int cufftExecD2Z(int handle, void *in, void *out) {
    return run(handle, D2Z, in, out, -1);
}

int cufftExecC2R(int handle, void *in, void *out) {
    return run(handle, C2R, in, out, 1);
}

int cufftExecZ2D(int handle, void *in, void *out) {
    return run(handle, Z2D, in, out, 1);
}
