// linear, and small products, by cuBLASLt. See cublaslt.h.
//
// It is opened beside cuBLAS: where ND_CUBLAS names a file libcublas…, the one named libcublasLt…
// in the same folder. Its GELU is the approximation by tanh, nd_gelu is exact: so of the
// activations only ReLU is an epilogue, and the others are a pass of their own. A handle holds
// nothing of a stream, and may be used by several threads.
// What its heuristic answers is kept.
#include "lib/device/cuda/cublaslt.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cublas.h"
#include "lib/device/cuda/gemm.h"
#include "lib/device/cuda/memo.h"
#include "lib/device/tf32.h"

/// What it may ask for, as NVIDIA recommends for Hopper.
#define MOST_WORKSPACE ((size_t)32 << 20)

/// Of a plain product that it takes: of larger ones the host's time does not count.
#define MOST_PRODUCTS 0x1p31

typedef int create_function(void **ret_handle);
typedef int destroy_function(void *made);
typedef int create_desc_function(void **ret_desc, int compute_type, int scale_type);
typedef int create_layout_function(void **ret_layout, int type, uint64_t rows, uint64_t columns,
                                   int64_t leading);
typedef int set_function(void *made, int attribute, const void *value, size_t bytes);
typedef int heuristic_function(void *handle, void *desc, void *a, void *b, void *c, void *d,
                               void *preference, int wanted, nd_lt_result *ret_results,
                               int *ret_count);
typedef int matmul_function(void *handle, void *desc, const void *alpha, const void *a,
                            void *a_layout, const void *b, void *b_layout, const void *beta,
                            const void *c, void *c_layout, void *d, void *d_layout,
                            const nd_lt_algorithm *algorithm, void *workspace, size_t bytes,
                            cudaStream_t stream);

static struct {
    create_function *create, *create_preference;
    create_desc_function *create_desc;
    create_layout_function *create_layout;
    set_function *set_desc, *set_preference;
    destroy_function *destroy_desc, *destroy_layout, *destroy_preference;
    heuristic_function *heuristic;
    matmul_function *matmul;
} lt;

static const nd_library_function functions[] = {
    {"cublasLtCreate", &lt.create},
    {"cublasLtMatmulDescCreate", &lt.create_desc},
    {"cublasLtMatmulDescSetAttribute", &lt.set_desc},
    {"cublasLtMatmulDescDestroy", &lt.destroy_desc},
    {"cublasLtMatrixLayoutCreate", &lt.create_layout},
    {"cublasLtMatrixLayoutDestroy", &lt.destroy_layout},
    {"cublasLtMatmulPreferenceCreate", &lt.create_preference},
    {"cublasLtMatmulPreferenceSetAttribute", &lt.set_preference},
    {"cublasLtMatmulPreferenceDestroy", &lt.destroy_preference},
    {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic},
    {"cublasLtMatmul", &lt.matmul},
    {0},
};

static nd_library library = {
    .variable = "ND_CUBLAS",
    .given = "libcublas",
    .stem = "libcublasLt",
    .versions = {13, 12},
    .folders = {"cublas", "cu1[23]"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};

/// The device's handle, at the first product.
static nd_status handle_ready(nd_cuda_device *device) {
    nd_status status = ND_OK;
    pthread_mutex_lock(&device->blas_lock);
    if (!device->blas_lt && !device->blas_lt_tried && !nd__capture_running()) {
        status = nd__cublas_status(lt.create(&device->blas_lt));
        if (status != ND_OK)
            device->blas_lt = NULL;
        device->blas_lt_tried = status != ND_ERROR_OUT_OF_MEMORY; // there may be room later
    }
    if (status == ND_OK && !device->blas_lt)
        status = ND_ERROR_UNSUPPORTED;
    pthread_mutex_unlock(&device->blas_lock);
    return status == ND_ERROR_DEVICE ? ND_ERROR_UNSUPPORTED : status;
}

void nd__cublaslt_prepare(nd_cuda_device *device) {
    if (nd__library_open(&library))
        (void)handle_ready(device);
}

/// All that decides what the heuristic answers.
typedef struct lt_question {
    int64_t m, n, k, lda, ldb, ldc;
    uint32_t epilogue, alignment[3]; ///< of a, b and c
    int device, dtype, compute_type;
    uint32_t transposed; ///< 1: a, 2: b
} lt_question;
_Static_assert(sizeof(lt_question) == 6 * 8 + 8 * 4, "no padding");

typedef struct lt_answer {
    bool serves; ///< there is an algorithm
    nd_lt_result chosen;
} lt_answer;

ND__MEMO(answers, 512, lt_question, lt_answer);

typedef struct lt_call {
    nd_cuda_device *device;
    const nd_cuda_queue *queue;
    const void *bias;
    uint32_t epilogue;
    int compute_type;
    // Owned; NULL: not made.
    void *desc, *a, *b, *c, *preference;
} lt_call;

static void release_call(lt_call *of) {
    if (of->desc)
        lt.destroy_desc(of->desc);
    if (of->a)
        lt.destroy_layout(of->a);
    if (of->b)
        lt.destroy_layout(of->b);
    if (of->c)
        lt.destroy_layout(of->c);
    if (of->preference)
        lt.destroy_preference(of->preference);
}

/// The largest power of two, up to 256, that an address is a multiple of.
static uint32_t alignment_of(const void *pointer) {
    uint32_t alignment = 256;
    while ((uintptr_t)pointer % alignment != 0)
        alignment /= 2;
    return alignment;
}

static int describe_product(lt_call *of, const nd_gemm *gemm) {
    const bool wide = gemm->dtype == ND_F64;
    of->compute_type = wide                                          ? ND__BLAS_COMPUTE_F64
                       : gemm->dtype == ND_F32 && nd__tf32_allowed() ? ND__BLAS_COMPUTE_TF32
                                                                     : ND__BLAS_COMPUTE_F32;
    const int32_t transa = gemm->transpose_a ? ND__BLAS_TRANSPOSED : ND__BLAS_PLAIN;
    const int32_t transb = gemm->transpose_b ? ND__BLAS_TRANSPOSED : ND__BLAS_PLAIN;
    int status = lt.create_desc(&of->desc, of->compute_type, wide ? ND__BLAS_F64 : ND__BLAS_F32);
    if (status == ND__BLAS_SUCCESS)
        status = lt.set_desc(of->desc, ND__LT_DESC_TRANSA, &transa, sizeof transa);
    if (status == ND__BLAS_SUCCESS)
        status = lt.set_desc(of->desc, ND__LT_DESC_TRANSB, &transb, sizeof transb);
    if (status == ND__BLAS_SUCCESS)
        status = lt.set_desc(of->desc, ND__LT_DESC_EPILOGUE, &of->epilogue, sizeof of->epilogue);
    if (status == ND__BLAS_SUCCESS && of->bias)
        status = lt.set_desc(of->desc, ND__LT_DESC_BIAS_POINTER, &of->bias, sizeof of->bias);
    return status;
}

static int describe_matrices(lt_call *of, const nd_gemm *gemm) {
    const int type = nd__cublas_dtype(gemm->dtype);
    const uint64_t m = (uint64_t)gemm->m, n = (uint64_t)gemm->n, k = (uint64_t)gemm->k;
    int status = lt.create_layout(&of->a, type, gemm->transpose_a ? k : m,
                                  gemm->transpose_a ? m : k, gemm->lda);
    if (status == ND__BLAS_SUCCESS)
        status = lt.create_layout(&of->b, type, gemm->transpose_b ? n : k,
                                  gemm->transpose_b ? k : n, gemm->ldb);
    if (status == ND__BLAS_SUCCESS)
        status = lt.create_layout(&of->c, type, m, n, gemm->ldc);
    return status;
}

static lt_question question_of(const lt_call *of, const nd_gemm *gemm) {
    return (lt_question){
        .m = gemm->m,
        .n = gemm->n,
        .k = gemm->k,
        .lda = gemm->lda,
        .ldb = gemm->ldb,
        .ldc = gemm->ldc,
        .epilogue = of->epilogue,
        .alignment = {alignment_of(gemm->a), alignment_of(gemm->b), alignment_of(gemm->c)},
        .device = of->device->index,
        .dtype = (int)gemm->dtype,
        .compute_type = of->compute_type,
        .transposed = (gemm->transpose_a ? 1 : 0) | (gemm->transpose_b ? 2 : 0),
    };
}

static int describe_preference(lt_call *of, const lt_question *question) {
    const uint64_t workspace = MOST_WORKSPACE;
    // In place is in the results' dtype.
    const bool narrow = question->dtype == ND_F16 || question->dtype == ND_BF16;
    const uint32_t sums = ND__LT_SUMS_IN_COMPUTE_TYPE | (narrow ? 0 : ND__LT_SUMS_IN_PLACE);
    const uint32_t *given = question->alignment;
    const uint32_t alignments[] = {given[0], given[1], given[2], given[2]};
    int status = lt.create_preference(&of->preference);
    if (status == ND__BLAS_SUCCESS)
        status = lt.set_preference(of->preference, ND__LT_PREFERENCE_WORKSPACE, &workspace,
                                   sizeof workspace);
    if (status == ND__BLAS_SUCCESS)
        status = lt.set_preference(of->preference, ND__LT_PREFERENCE_SUMS, &sums, sizeof sums);
    for (int i = 0; i < 4 && status == ND__BLAS_SUCCESS; i++)
        status = lt.set_preference(of->preference, ND__LT_PREFERENCE_ALIGNMENT_A + i,
                                   &alignments[i], sizeof alignments[i]);
    return status;
}

static nd_status multiply(const lt_call *of, const nd_gemm *gemm, const nd_lt_result *chosen) {
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool wide = gemm->dtype == ND_F64;
    void *workspace = NULL;
    nd_status status = ND_OK;
    if (chosen->workspace > 0)
        status = of->queue->allocate(of->queue->context, chosen->workspace, &workspace);
    if (status != ND_OK)
        return status;
    status = nd__cublas_status(lt.matmul(
        of->device->blas_lt, of->desc, wide ? (const void *)&wide_one : &one, gemm->a, of->a,
        gemm->b, of->b, wide ? (const void *)&wide_zero : &zero, gemm->c, of->c, gemm->c, of->c,
        &chosen->algorithm, workspace, chosen->workspace, (cudaStream_t)of->queue->stream));
    if (workspace)
        of->queue->release(of->queue->context, workspace);
    return status;
}

/// The answer to the call's question, from before or now. An error of the library's is not kept, but
/// that it does not support the product.
static int ask(lt_call *of, const nd_gemm *gemm, lt_answer *ret_answer) {
    const lt_question question = question_of(of, gemm);
    if (nd__memo_recall(&answers, &question, ret_answer))
        return ND__BLAS_SUCCESS;
    *ret_answer = (lt_answer){0};
    int found = 0;
    int status = describe_preference(of, &question);
    if (status == ND__BLAS_SUCCESS)
        status = lt.heuristic(of->device->blas_lt, of->desc, of->a, of->b, of->c, of->c,
                              of->preference, 1, &ret_answer->chosen, &found);
    if (status != ND__BLAS_SUCCESS && status != ND__BLAS_NOT_SUPPORTED)
        return status;
    ret_answer->serves =
        status == ND__BLAS_SUCCESS && found > 0 && ret_answer->chosen.state == ND__BLAS_SUCCESS;
    nd__memo_remember(&answers, &question, ret_answer);
    return ND__BLAS_SUCCESS;
}

static nd_status run_gemm(void *context, const nd_gemm *gemm) {
    lt_call *of = context;
    lt_answer answer;
    int status = describe_product(of, gemm);
    if (status == ND__BLAS_SUCCESS)
        status = describe_matrices(of, gemm);
    if (status == ND__BLAS_SUCCESS)
        status = ask(of, gemm, &answer);
    // Whatever it has against the product: cuBLAS, or ndarc's own kernel, has nothing.
    if (status == ND__BLAS_ALLOC_FAILED)
        return ND_ERROR_OUT_OF_MEMORY;
    if (status != ND__BLAS_SUCCESS || !answer.serves)
        return ND_ERROR_UNSUPPORTED;
    return multiply(of, gemm, &answer.chosen);
}

/// With the library open. `of` has what is behind the product.
static nd_status run(nd_cuda_device *device, const nd_kernel_call *call, lt_call *of) {
    nd_status status = handle_ready(device);
    if (status == ND_OK)
        status = nd__gemm_matmul(call, run_gemm, of);
    release_call(of);
    return status;
}

nd_status nd__cublaslt_linear(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call, bool *ret_activated) {
    const bool has_bias = call->noperands > 3;
    const bool is_relu = call->attrs.i[9] == 1 + (int64_t)ND_OP_relu;
    if (!has_bias && !is_relu)
        return ND_ERROR_UNSUPPORTED;
    if (has_bias && call->attrs.i[10] != 1 && call->attrs.i[1] != 1)
        return ND_ERROR_UNSUPPORTED;
    if (!nd__library_open(&library))
        return ND_ERROR_UNSUPPORTED;
    lt_call of = {.device = device, .queue = queue};
    of.bias = has_bias ? call->operand[3].data : NULL;
    of.epilogue = (is_relu ? ND__LT_EPILOGUE_RELU : 0) | (has_bias ? ND__LT_EPILOGUE_BIAS : 0);
    nd_status status = run(device, call, &of);
    *ret_activated = status == ND_OK && is_relu;
    return status;
}

nd_status nd__cublaslt_matmul(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    const nd_dtype dtype = call->operand[0].dtype;
    const bool is_served = dtype == ND_F32 || dtype == ND_F16 || dtype == ND_BF16;
    if (!is_served || call->ndim > 0 || call->attrs.f[0] != 0 ||
        (double)i[0] * (double)i[1] * (double)i[2] > MOST_PRODUCTS)
        return ND_ERROR_UNSUPPORTED;
    if (!nd__library_open(&library))
        return ND_ERROR_UNSUPPORTED;
    lt_call of = {.device = device, .queue = queue, .epilogue = ND__LT_EPILOGUE_NONE};
    return run(device, call, &of);
}
