// Opens libraries, and chooses the one for a call. See library.h.
#include "lib/device/cuda/library.h"
#include "lib/base/optional.h"
#include "lib/device/cuda/cublas.h"
#include "lib/device/cuda/cublaslt.h"
#include "lib/device/cuda/cudnn.h"
#include "lib/device/cuda/cudnn_attention.h"
#include "lib/device/cuda/cufft.h"
#include "lib/device/cuda/cusolver.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------------------
// opening

/// The file that the environment gives, or the one beside it that is named alike.
static void *open_given(const nd_library *library, const char *given, bool *ret_short) {
    char path[PATH_MAX];
    const char *slash = strrchr(given, '/');
    const char *name = slash ? slash + 1 : given;
    const char *at = library->given ? strstr(name, library->given) : NULL;
    if (!library->given)
        return nd__optional_open_file(given, ret_short);
    if (!at)
        return NULL;
    int length = snprintf(path, sizeof path, "%.*s%s%s", (int)(at - given), given, library->stem,
                          at + strlen(library->given));
    return length > 0 && (size_t)length < sizeof path ? nd__optional_open_file(path, ret_short)
                                                      : NULL;
}

/// In one folder ("": by the loader's rules), the preferred version first.
static void *open_in(const nd_library *library, const char *folder, bool *ret_short) {
    char path[PATH_MAX];
    for (int i = 0; i < 2 && library->versions[i]; i++) {
        int length = snprintf(path, sizeof path, "%s%s%s.so.%d", folder, *folder ? "/" : "",
                              library->stem, library->versions[i]);
        void *opened = length > 0 && (size_t)length < sizeof path
                           ? nd__optional_open_file(path, ret_short)
                           : NULL;
        if (opened)
            return opened;
    }
    return NULL;
}

/// In nvidia/*/lib of a folder that packages are installed in; `packages` is a pattern.
static void *open_in_packages(const nd_library *library, const char *packages, bool *ret_short) {
    void *opened = NULL;
    for (int i = 0; i < 2 && library->folders[i] && !opened; i++) {
        char pattern[PATH_MAX];
        glob_t found;
        int length =
            snprintf(pattern, sizeof pattern, "%s/nvidia/%s/lib", packages, library->folders[i]);
        if (length <= 0 || (size_t)length >= sizeof pattern)
            continue;
        int answer = glob(pattern, 0, NULL, &found);
        if (answer == GLOB_NOSPACE)
            *ret_short = true;
        if (answer != 0)
            continue;
        for (size_t at = 0; at < found.gl_pathc && !opened; at++)
            opened = open_in(library, found.gl_pathv[at], ret_short);
        globfree(&found);
    }
    return opened;
}

/// In the Python environment that this code is a file of, one to three folders above it.
static void *open_beside_this(const nd_library *library, bool *ret_short) {
    Dl_info info;
    char folder[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)nd__library_open, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, folder))
        return NULL;
    void *opened = NULL;
    for (int i = 0; i < 4 && !opened; i++) {
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder)
            break;
        *slash = '\0';
        opened = strpbrk(folder, "*?[\\") ? NULL : open_in_packages(library, folder, ret_short);
    }
    return opened;
}

static void *open_in_environment(const nd_library *library, bool *ret_short) {
    const char *environment = secure_getenv("VIRTUAL_ENV");
    char packages[PATH_MAX];
    if (!environment || !*environment || strpbrk(environment, "*?[\\"))
        return NULL;
    int length = snprintf(packages, sizeof packages, "%s/lib/python3*/site-packages", environment);
    return length > 0 && (size_t)length < sizeof packages
               ? open_in_packages(library, packages, ret_short)
               : NULL;
}

/// Where the library is looked for, from the first place to the last.
static void *open_anywhere(const nd_library *library, bool *ret_short) {
    const char *given = secure_getenv(library->variable);
    if (given && *given)
        return open_given(library, given, ret_short);
    void *opened = open_in(library, "", ret_short);
    if (!opened)
        opened = open_beside_this(library, ret_short);
    if (!opened)
        opened = open_in_environment(library, ret_short);
    return opened ? opened : open_in(library, "/usr/local/cuda/lib64", ret_short);
}

bool nd__library_find(void *opened, const nd_library_function *functions) {
    bool found = true;
    for (const nd_library_function *f = functions; f->name; f++) {
        void *function = dlsym(opened, f->name);
        *(void **)f->ret_function = function;
        found = found && function;
    }
    return found;
}

void *nd__library_open(nd_library *library) {
    if (atomic_load_explicit(&library->settled, memory_order_acquire))
        return library->opened;
    pthread_mutex_lock(&library->lock);
    if (!atomic_load_explicit(&library->settled, memory_order_relaxed)) {
        bool is_short = false;
        void *opened = open_anywhere(library, &is_short);
        if (opened && nd__library_find(opened, library->functions))
            library->opened = opened;
        else if (opened)
            dlclose(opened);
        atomic_store_explicit(&library->settled, opened || !is_short, memory_order_release);
    }
    void *opened = library->opened;
    pthread_mutex_unlock(&library->lock);
    return opened;
}

// ------------------------------------------------------------------------------------------------
// products

/// The bias in every row of the result, for the product to be added to.
static nd_status write_bias(const nd_cuda_queue *queue, const nd_kernel_call *of) {
    const int64_t *i = of->attrs.i;
    nd_kernel_call call = {.op = ND_OP_clone,
                           .noperands = 2,
                           .ndim = 2,
                           .shape = {i[0], i[1]},
                           .operand = {of->operand[0], of->operand[3]}};
    call.operand[0].strides[0] = i[7];
    call.operand[0].strides[1] = i[8];
    call.operand[1].strides[0] = 0;
    call.operand[1].strides[1] = i[10];
    return nd__cuda_launch(queue, &call);
}

/// Has the result go through the activation.
static nd_status activate(const nd_cuda_queue *queue, const nd_kernel_call *of) {
    const int64_t *i = of->attrs.i;
    nd_kernel_call call = {.op = (nd_op)(i[9] - 1),
                           .noperands = 2,
                           .ndim = 2,
                           .shape = {i[0], i[1]},
                           .operand = {of->operand[0], of->operand[0]}};
    for (int operand = 0; operand < 2; operand++) {
        call.operand[operand].strides[0] = i[7];
        call.operand[operand].strides[1] = i[8];
    }
    return nd__cuda_launch(queue, &call);
}

/// linear by cuBLAS without epilogues: the bias is written first, the activation comes last.
static nd_status in_three_steps(nd_cuda_device *device, const nd_cuda_queue *queue,
                                const nd_kernel_call *call) {
    if (!nd__cublas_takes(device, queue, call))
        return ND_ERROR_UNSUPPORTED;
    nd_kernel_call product = *call;
    nd_status status = ND_OK;
    if (call->noperands > 3) {
        status = write_bias(queue, call);
        product.noperands = 3;
        product.attrs.f[0] = 1;
    }
    if (status == ND_OK)
        status = nd__cublas_matmul(device, queue, &product);
    if (status == ND_OK && call->attrs.i[9] != 0)
        status = activate(queue, call);
    return status;
}

/// Whether each row of a [rows, columns] operand, or each column, begins at a multiple of 16 bytes.
static bool is_aligned(const nd_operand *operand, int64_t row_stride, int64_t column_stride) {
    const int64_t apart = row_stride == 1 ? column_stride : row_stride;
    return (uintptr_t)operand->data % 16 == 0 && apart % 8 == 0;
}

/// For 16-bit floats whose rows are not aligned the libraries have kernels that round the product before
/// they add the bias (seen with cuBLAS 13.1 on an H200); ndarc's own rounds once.
static bool rounds_twice(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    const nd_dtype dtype = call->operand[0].dtype;
    return (dtype == ND_F16 || dtype == ND_BF16) && !(is_aligned(&call->operand[0], i[7], i[8]) &&
                                                      is_aligned(&call->operand[1], i[3], i[4]) &&
                                                      is_aligned(&call->operand[2], i[5], i[6]));
}

static nd_status multiply(nd_cuda_device *device, const nd_cuda_queue *queue,
                          const nd_kernel_call *call) {
    if (call->op == ND_OP_matmul) {
        const nd_status status = nd__cublaslt_matmul(device, queue, call);
        return status == ND_ERROR_UNSUPPORTED ? nd__cublas_matmul(device, queue, call) : status;
    }
    if (call->noperands > 3 && rounds_twice(call))
        return ND_ERROR_UNSUPPORTED;
    // A sum that is already there would be lost when a second library begins anew.
    if (call->attrs.f[0] != 0)
        return call->attrs.i[9] == 0 && call->noperands < 4 ? nd__cublas_matmul(device, queue, call)
                                                            : ND_ERROR_UNSUPPORTED;
    bool activated = false;
    nd_status status = nd__cublaslt_linear(device, queue, call, &activated);
    if (status == ND_ERROR_UNSUPPORTED)
        return in_three_steps(device, queue, call);
    if (status == ND_OK && !activated && call->attrs.i[9] != 0)
        status = activate(queue, call);
    return status;
}

void nd__library_prepare(nd_cuda_device *device) {
    nd__cublas_prepare(device);
    nd__cublaslt_prepare(device);
    nd__cudnn_prepare(device);
}

nd_status nd__library_launch(nd_cuda_device *device, const nd_cuda_queue *queue,
                             const nd_kernel_call *call) {
    switch (call->op) {
    case ND_OP_matmul_integer:
        return nd__cublas_matmul(device, queue, call);
    case ND_OP_matmul:
    case ND_OP_linear:
        return multiply(device, queue, call);
    case ND_OP_conv:
    case ND_OP_conv_grad_input:
    case ND_OP_conv_grad_weight:
        return nd__cudnn_convolve(device, queue, call);
    case ND_OP_resample:
    case ND_OP_resample_adjoint:
        return nd__cudnn_pool(device, queue, call);
    case ND_OP_attention:
        return nd__cudnn_attend(device, queue, call);
    case ND_OP_solve:
    case ND_OP_solve_triangular:
    case ND_OP_cholesky:
    case ND_OP_qr:
    case ND_OP_svd:
    case ND_OP_eigh:
    case ND_OP_slogdet:
        return nd__cusolver_compute(device, queue, call);
    case ND_OP_fft:
    case ND_OP_rfft:
    case ND_OP_irfft:
        return nd__cufft_transform(device, queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
