// A cuBLASLt for the fake runtime: libcublasLt.so with the functions that lib/device/cuda opens at
// run time.
//
// An algorithm serves the problem that the heuristic was asked about, with as much workspace as it
// said and pointers as aligned as it was told, and no other. Where it may, it adds up parts of sums in
// the results, which are of 16-bit floats rounded each time. ND_CUDART_CUBLASLT in the environment:
// a status that creating a handle answers, 100: the heuristic knows nothing, 101: it has an answer
// that says "not supported", 102: it fails, 103: it ends the program when it is asked twice.
#include "tests/cudart/blas.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_TF32 = 77 };
enum { TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8 };
enum { RELU = 2, BIAS = 4 };
enum { IN_PLACE = 1 };
enum { WORKSPACE = 1, SUMS = 3, ALIGNMENT = 5, ALIGNMENTS = 4 };
enum { KNOWS_NOTHING = 100, SAYS_NO = 101, FAILS = 102, ONCE = 103 };
enum { OF_HANDLE = 0x17, OF_DESC, OF_LAYOUT, OF_PREFERENCE };

typedef struct handle {
    int magic;
    queue_function *queue;
} handle;
typedef struct desc {
    int magic, compute_type, scale_type;
    int32_t transa, transb;
    uint32_t epilogue;
    const void *bias;
} desc;
typedef struct layout {
    int magic, type;
    uint64_t rows, columns;
    int64_t leading;
} layout;
typedef struct preference {
    int magic;
    uint64_t workspace;
    uint32_t sums, alignment[ALIGNMENTS];
} preference;
/// What an opaque algorithm of 64 bytes holds.
typedef struct algorithm {
    uint64_t problem, workspace;
    uint32_t alignment[ALIGNMENTS];
    uint64_t in_place; ///< parts of sums are added up in the results
    uint64_t unused[3];
} algorithm;
typedef struct result {
    algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;
_Static_assert(sizeof(algorithm) == 64, "cublasLtMatmulAlgo_t");

EXPORT int cublasLtCreate(handle **ret_handle);
EXPORT int cublasLtMatmulDescCreate(desc **ret_desc, int compute_type, int scale_type);
EXPORT int cublasLtMatmulDescSetAttribute(desc *to, int attribute, const void *value, size_t bytes);
EXPORT int cublasLtMatmulDescDestroy(desc *made);
EXPORT int cublasLtMatrixLayoutCreate(layout **ret_layout, int type, uint64_t rows,
                                      uint64_t columns, int64_t leading);
EXPORT int cublasLtMatrixLayoutDestroy(layout *made);
EXPORT int cublasLtMatmulPreferenceCreate(preference **ret_preference);
EXPORT int cublasLtMatmulPreferenceSetAttribute(preference *to, int attribute, const void *value,
                                                size_t bytes);
EXPORT int cublasLtMatmulPreferenceDestroy(preference *made);
EXPORT int cublasLtMatmulAlgoGetHeuristic(handle *of, const desc *p, const layout *a,
                                          const layout *b, const layout *c, const layout *d,
                                          const preference *preferred, int wanted,
                                          result *ret_results, int *ret_count);
EXPORT int cublasLtMatmul(handle *of, const desc *p, const void *alpha, const void *a,
                          const layout *a_layout, const void *b, const layout *b_layout,
                          const void *beta, const void *c, const layout *c_layout, void *d,
                          const layout *d_layout, const algorithm *by, void *workspace,
                          size_t bytes, cudaStream_t stream);

int cublasLtCreate(handle **ret_handle) {
    int asked = blas_asked("ND_CUDART_CUBLASLT");
    if (asked != SUCCESS && asked < KNOWS_NOTHING)
        return asked;
    handle *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    *made = (handle){OF_HANDLE, blas_queue()};
    if (!made->queue) {
        free(made);
        return NOT_INITIALIZED;
    }
    *ret_handle = made;
    return SUCCESS;
}

int cublasLtMatmulDescCreate(desc **ret_desc, int compute_type, int scale_type) {
    bool right =
        ((compute_type == COMPUTE_F32 || compute_type == COMPUTE_TF32) && scale_type == F32) ||
        (compute_type == COMPUTE_F64 && scale_type == F64);
    if (!right)
        return INVALID_VALUE;
    desc *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    *made = (desc){OF_DESC, compute_type, scale_type, 0, 0, 1, NULL};
    *ret_desc = made;
    return SUCCESS;
}

/// Takes an attribute that has as many bytes as it must have.
static int take(void *to, size_t bytes, const void *value, size_t given) {
    if (given != bytes)
        return INVALID_VALUE;
    memcpy(to, value, bytes);
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(desc *to, int attribute, const void *value, size_t bytes) {
    if (to->magic != OF_DESC)
        return INVALID_VALUE;
    switch (attribute) {
    case TRANSA:
        return take(&to->transa, sizeof to->transa, value, bytes);
    case TRANSB:
        return take(&to->transb, sizeof to->transb, value, bytes);
    case EPILOGUE:
        return take(&to->epilogue, sizeof to->epilogue, value, bytes);
    case BIAS_POINTER:
        return take(&to->bias, sizeof to->bias, value, bytes);
    default:
        return INVALID_VALUE;
    }
}

int cublasLtMatmulDescDestroy(desc *made) {
    made->magic = 0;
    free(made);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(layout **ret_layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
    if (!blas_knows(type) || leading < (int64_t)rows)
        return INVALID_VALUE;
    layout *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    *made = (layout){OF_LAYOUT, type, rows, columns, leading};
    *ret_layout = made;
    return SUCCESS;
}

int cublasLtMatrixLayoutDestroy(layout *made) {
    made->magic = 0;
    free(made);
    return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(preference **ret_preference) {
    preference *made = calloc(1, sizeof *made);
    if (!made)
        return ALLOC_FAILED;
    *made = (preference){OF_PREFERENCE, 0, 7, {256, 256, 256, 256}};
    *ret_preference = made;
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(preference *to, int attribute, const void *value,
                                         size_t bytes) {
    if (to->magic != OF_PREFERENCE)
        return INVALID_VALUE;
    if (attribute >= ALIGNMENT && attribute < ALIGNMENT + ALIGNMENTS)
        return take(&to->alignment[attribute - ALIGNMENT], sizeof(uint32_t), value, bytes);
    if (attribute == WORKSPACE)
        return take(&to->workspace, sizeof to->workspace, value, bytes);
    return attribute == SUMS ? take(&to->sums, sizeof to->sums, value, bytes) : INVALID_VALUE;
}

int cublasLtMatmulPreferenceDestroy(preference *made) {
    made->magic = 0;
    free(made);
    return SUCCESS;
}

static uint64_t mixed(uint64_t hash, uint64_t with) {
    return (hash ^ with) * UINT64_C(0x9E3779B97F4A7C15) + (hash >> 29);
}

/// A number for the problem; 0: it is none.
static uint64_t problem_of(const desc *p, const layout *const *matrices) {
    const layout *a = matrices[0], *b = matrices[1], *c = matrices[2], *d = matrices[3];
    uint64_t hash = mixed(mixed(1, p->epilogue), (uint64_t)(p->transa + 2 * p->transb));
    hash = mixed(hash, (uint64_t)p->compute_type);
    if (p->magic != OF_DESC)
        return 0;
    for (int i = 0; i < 4; i++) {
        const layout *of = matrices[i];
        if (of->magic != OF_LAYOUT || of->type != a->type)
            return 0;
        hash = mixed(mixed(mixed(hash, of->rows), of->columns), (uint64_t)of->leading);
    }
    uint64_t m = p->transa ? a->columns : a->rows, k = p->transa ? a->rows : a->columns;
    uint64_t b_k = p->transb ? b->columns : b->rows, n = p->transb ? b->rows : b->columns;
    bool fits = b_k == k && c->rows == m && c->columns == n && d->rows == m && d->columns == n;
    bool scaled = (a->type == F64) == (p->scale_type == F64) &&
                  (p->compute_type != COMPUTE_TF32 || a->type == F32);
    bool has_bias = !(p->epilogue & BIAS) || p->bias;
    bool known = p->epilogue == 1 || (p->epilogue & ~(uint32_t)(RELU | BIAS)) == 0;
    return fits && scaled && has_bias && known && p->epilogue ? hash | 1 : 0;
}

/// Whether it was asked this before; as many questions as a test has.
static bool is_asked_again(uint64_t problem, int type, const preference *preferred) {
    static uint64_t asked[256];
    static size_t count;
    uint64_t question = mixed(mixed(problem, (uint64_t)type), preferred->workspace);
    for (int i = 0; i < ALIGNMENTS; i++)
        question = mixed(question, preferred->alignment[i]);
    for (size_t i = 0; i < count; i++)
        if (asked[i] == question)
            return true;
    if (count < sizeof asked / sizeof *asked)
        asked[count++] = question;
    return false;
}

/// Of f64 it has no epilogues.
int cublasLtMatmulAlgoGetHeuristic(handle *of, const desc *p, const layout *a, const layout *b,
                                   const layout *c, const layout *d, const preference *preferred,
                                   int wanted, result *ret_results, int *ret_count) {
    const layout *const matrices[] = {a, b, c, d};
    uint64_t problem = problem_of(p, matrices);
    int asked = blas_asked("ND_CUDART_CUBLASLT");
    *ret_count = 0;
    if (of->magic != OF_HANDLE || preferred->magic != OF_PREFERENCE || !problem || wanted < 1)
        return INVALID_VALUE;
    if (asked == FAILS)
        return NOT_INITIALIZED;
    if (asked == ONCE && is_asked_again(problem, a->type, preferred)) {
        fputs("cublasLtMatmulAlgoGetHeuristic was asked the same twice\n", stderr);
        _exit(3);
    }
    if (asked == KNOWS_NOTHING || (a->type == F64 && p->epilogue != 1) || preferred->sums & 4)
        return asked == KNOWS_NOTHING ? SUCCESS : NOT_SUPPORTED;
    uint64_t workspace = problem % 3 == 0 ? 0 : problem % 5000;
    if (workspace > preferred->workspace)
        workspace = preferred->workspace;
    memset(ret_results, 0, sizeof *ret_results);
    ret_results->algorithm = (algorithm){
        .problem = problem, .workspace = workspace, .in_place = preferred->sums & IN_PLACE};
    memcpy(ret_results->algorithm.alignment, preferred->alignment, sizeof preferred->alignment);
    ret_results->workspace = (size_t)workspace;
    ret_results->state = asked == SAYS_NO ? NOT_SUPPORTED : SUCCESS;
    *ret_count = 1;
    return SUCCESS;
}

static double number(const desc *p, const void *at) {
    return p->scale_type == F64 ? *(const double *)at : (double)*(const float *)at;
}

int cublasLtMatmul(handle *of, const desc *p, const void *alpha, const void *a,
                   const layout *a_layout, const void *b, const layout *b_layout, const void *beta,
                   const void *c, const layout *c_layout, void *d, const layout *d_layout,
                   const algorithm *by, void *workspace, size_t bytes, cudaStream_t stream) {
    const layout *const matrices[] = {a_layout, b_layout, c_layout, d_layout};
    const void *const data[] = {a, b, c, d};
    uint64_t problem = problem_of(p, matrices);
    if (of->magic != OF_HANDLE || !problem || problem != by->problem || bytes < by->workspace ||
        (by->workspace > 0 && !workspace) || c != d)
        return INVALID_VALUE;
    for (int i = 0; i < ALIGNMENTS; i++)
        if ((uintptr_t)data[i] % by->alignment[i] != 0)
            return INVALID_VALUE;
    product of_these = {.type = a_layout->type,
                        .transpose_a = p->transa,
                        .transpose_b = p->transb,
                        .relu = p->epilogue & RELU,
                        .tf32 = p->compute_type == COMPUTE_TF32,
                        .reduced_sums = by->in_place && d_layout->type != F64,
                        .m = (int)d_layout->rows,
                        .n = (int)d_layout->columns,
                        .k = (int)(p->transa ? a_layout->rows : a_layout->columns),
                        .batch = 1,
                        .alpha = number(p, alpha),
                        .beta = number(p, beta),
                        .a = a,
                        .b = b,
                        .bias = p->epilogue & BIAS ? p->bias : NULL,
                        .c = d,
                        .lda = a_layout->leading,
                        .ldb = b_layout->leading,
                        .ldc = d_layout->leading,
                        .workspace = by->workspace ? workspace : NULL,
                        .workspace_bytes = (size_t)by->workspace};
    return blas_multiply(of->queue, stream, "cublasLtMatmul", &of_these);
}
