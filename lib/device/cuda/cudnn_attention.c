// See cudnn_attention.h: what a call is to cuDNN, and the plans that are kept for calls like it.
//
// A plan takes some tenths of a second to make, for cuDNN compiles it, and a graph that was captured with it
// may use what it holds. So plans are kept to the end, MOST_PLANS together with the sizes for which
// there is none; ndarc's kernel serves what comes later. It also serves few queries at a
// time, whose keys grow by one with each call where text is generated.
#include "lib/device/cuda/cudnn_attention.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cudnn.h"
#include "lib/device/cuda/cudnn_plan.h"
#include <string.h>

#define MOST_WORKSPACE ((size_t)256 << 20)
/// What a stride or the size of a head is a multiple of, so that 16 bytes are read at once.
#define PIECE 8
#define MOST_BLOCKS 65535 ///< along each axis of a launch but the first

enum { MOST_PLANS = 128, FEWEST_QUERIES = 64, LONGEST_HEAD = 128 };
enum { OUT, LOG_SUMS, QUERY, KEY, VALUE, MASK };

typedef struct dnn_answer {
    int device;
    nd_dnn_attention question;
    nd_dnn_plan plan; ///< none: cuDNN refused
} dnn_answer;

/// The first `count` never change.
static struct {
    pthread_mutex_t lock;
    int count;
    dnn_answer answers[MOST_PLANS];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    bool found;
    nd_dnn_backend backend;
} attending;
static pthread_once_t looked = PTHREAD_ONCE_INIT;

static void look_once(void) {
    size_t (*get_version)(void) = NULL;
    void *library = nd__cudnn_library();
    const nd_library_function functions[] = {
        {"cudnnGetVersion", &get_version},
        {"cudnnBackendCreateDescriptor", &attending.backend.create},
        {"cudnnBackendDestroyDescriptor", &attending.backend.destroy},
        {"cudnnBackendSetAttribute", &attending.backend.set},
        {"cudnnBackendGetAttribute", &attending.backend.get},
        {"cudnnBackendFinalize", &attending.backend.finalize},
        {"cudnnBackendExecute", &attending.backend.execute},
        {0},
    };
    attending.found = library && nd__library_find(library, functions) &&
                      get_version() >= ND__DNN_ATTENTION_VERSION;
}

// ------------------------------------------------------------------------------------------------
// describing a call

/// The axes of batches and heads of a call, and over how many neighbouring heads of queries one head of
/// keys serves.
typedef struct dnn_axes {
    int batch, head; ///< -1: there is none
    int64_t batches, heads, group;
} dnn_axes;

static bool is_shared(const nd_kernel_call *call, int axis) {
    return call->shape[axis] > 1 && call->operand[KEY].strides[axis] == 0 &&
           call->operand[VALUE].strides[axis] == 0;
}

/// Whether two axes of what belongs to queries are one.
static bool are_one(const nd_kernel_call *call, int outer, int inner) {
    static const int which[] = {OUT, LOG_SUMS, QUERY};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        const int64_t *strides = call->operand[which[i]].strides;
        if (strides[outer] != strides[inner] * call->shape[inner])
            return false;
    }
    return true;
}

static bool find_axes(const nd_kernel_call *call, dnn_axes *ret_axes) {
    const int last = call->ndim - 1;
    const bool shared = last >= 0 && is_shared(call, last);
    dnn_axes axes = {-1, last, 1, last >= 0 ? call->shape[last] : 1, 1};
    if (shared)
        axes.group = call->shape[last];
    if (call->ndim == 2) {
        axes.batch = 0;
    } else if (call->ndim == 3) {
        if (!shared || !are_one(call, 1, 2))
            return false;
        axes.batch = 0;
        axes.heads = call->shape[1] * call->shape[2];
    } else if (call->ndim > 3) {
        return false;
    }
    if (axes.batch >= 0)
        axes.batches = call->shape[0];
    *ret_axes = axes;
    return axes.batches <= MOST_BLOCKS && axes.heads <= MOST_BLOCKS;
}

/// Strides of batches, heads and rows, positive ones where an axis has one place; false: cuDNN does not
/// take them.
static bool find_strides(const nd_operand *of, const dnn_axes *axes, int head, int64_t heads,
                         int64_t rows, int64_t row_stride, int64_t columns, int64_t *ret_strides) {
    ret_strides[2] = rows > 1 ? row_stride : columns;
    ret_strides[1] = heads > 1 ? of->strides[head] : rows * ret_strides[2];
    ret_strides[0] = axes->batches > 1 ? of->strides[axes->batch] : heads * ret_strides[1];
    int64_t furthest = columns;
    const int64_t counts[] = {axes->batches, heads, rows};
    for (int i = 0; i < 3; i++) {
        if (ret_strides[i] <= 0 || ret_strides[i] > INT32_MAX || ret_strides[i] % PIECE != 0)
            return false;
        furthest += (counts[i] - 1) * ret_strides[i];
    }
    return furthest <= INT32_MAX && (uintptr_t)of->data % 16 == 0;
}

static bool describe_operands(const nd_kernel_call *call, const dnn_axes *axes,
                              nd_dnn_attention *of) {
    const int64_t *i = call->attrs.i;
    const nd_operand *o = call->operand;
    const int key_head = call->ndim == 3 ? 1 : axes->head;
    const int64_t *log_sums = o[LOG_SUMS].strides;
    if ((axes->heads > 1 && log_sums[axes->head] != of->queries) ||
        (axes->batches > 1 && log_sums[axes->batch] != of->queries * of->heads) ||
        (uintptr_t)o[LOG_SUMS].data % 16 != 0)
        return false;
    return find_strides(&o[QUERY], axes, axes->head, of->heads, of->queries, i[4], of->length,
                        of->query) &&
           find_strides(&o[KEY], axes, key_head, of->key_heads, of->keys, i[5], of->length,
                        of->key) &&
           find_strides(&o[VALUE], axes, key_head, of->key_heads, of->keys, i[6], of->value_length,
                        of->value) &&
           find_strides(&o[OUT], axes, axes->head, of->heads, of->queries, i[7], of->value_length,
                        of->out);
}

static bool is_possible_length(int64_t length) {
    return length <= LONGEST_HEAD && length % PIECE == 0;
}

/// False: it is none of cuDNN's.
static bool describe(const nd_kernel_call *call, nd_dnn_attention *ret_question) {
    const nd_dtype dtype = call->operand[OUT].dtype;
    const int64_t *i = call->attrs.i;
    dnn_axes axes;
    if ((dtype != ND_F16 && dtype != ND_BF16) || call->operand[MASK].data ||
        i[0] < FEWEST_QUERIES || i[0] > INT32_MAX || i[1] > INT32_MAX ||
        !is_possible_length(i[2]) || !is_possible_length(i[3]) || !find_axes(call, &axes))
        return false;
    *ret_question = (nd_dnn_attention){
        .type = dtype == ND_F16 ? ND__DNN_F16 : ND__DNN_BF16,
        .causal = i[10] != 0,
        .batches = axes.batches,
        .heads = axes.heads,
        .key_heads = axes.heads / axes.group,
        .queries = i[0],
        .keys = i[1],
        .length = i[2],
        .value_length = i[3],
    };
    return describe_operands(call, &axes, ret_question);
}

// ------------------------------------------------------------------------------------------------
// computing

static const dnn_answer *recall(const nd_cuda_device *device, const nd_dnn_attention *question) {
    for (int i = 0; i < kept.count; i++)
        if (kept.answers[i].device == device->index &&
            memcmp(&kept.answers[i].question, question, sizeof *question) == 0)
            return &kept.answers[i];
    return NULL;
}

/// Asks cuDNN, whose answer is kept. NULL: there is no room for one.
static const dnn_answer *ask(const nd_cuda_device *device, const nd_dnn_attention *question) {
    if (kept.count == MOST_PLANS)
        return NULL;
    dnn_answer *answer = &kept.answers[kept.count];
    const int status = nd__cudnn_plan_make(&attending.backend, device->dnn, NULL, question,
                                           MOST_WORKSPACE, &answer->plan);
    if (nd__cudnn_status(status) == ND_ERROR_OUT_OF_MEMORY)
        return NULL; // there may be some later
    answer->device = device->index;
    answer->question = *question;
    kept.count++;
    return answer;
}

/// The plan for such calls, made now where there is room and nobody captures; NULL: none. Caller holds
/// blas_lock, and uses it while it does.
static const nd_dnn_plan *plan_for(const nd_cuda_device *device, const nd_dnn_attention *question) {
    pthread_mutex_lock(&kept.lock);
    const dnn_answer *answer = recall(device, question);
    if (!answer && !nd__capture_running())
        answer = ask(device, question);
    pthread_mutex_unlock(&kept.lock);
    return answer && answer->plan.plan ? &answer->plan : NULL;
}

static nd_status run_by(nd_cuda_device *device, const nd_cuda_queue *queue,
                        const nd_kernel_call *call, const nd_dnn_plan *plan) {
    nd_dnn_memory memory = {
        .query = call->operand[QUERY].data,
        .key = call->operand[KEY].data,
        .value = call->operand[VALUE].data,
        .out = call->operand[OUT].data,
        .log_sums = call->operand[LOG_SUMS].data,
        .scale = (float)call->attrs.f[0],
    };
    if (plan->workspace > 0 &&
        queue->allocate(queue->context, plan->workspace, &memory.workspace) != ND_OK)
        return ND_ERROR_UNSUPPORTED; // ndarc's own kernel needs none
    nd_status status =
        nd__cudnn_status(nd__cudnn_plan_run(&attending.backend, device->dnn, plan, &memory));
    if (memory.workspace)
        queue->release(queue->context, memory.workspace);
    return status == ND_ERROR_OUT_OF_MEMORY ? ND_ERROR_UNSUPPORTED : status;
}

nd_status nd__cudnn_attend(nd_cuda_device *device, const nd_cuda_queue *queue,
                           const nd_kernel_call *call) {
    nd_dnn_attention question;
    if (!describe(call, &question))
        return ND_ERROR_UNSUPPORTED;
    if (!nd__cudnn_library())
        return ND_ERROR_UNSUPPORTED; // or not yet, and then the next call looks
    pthread_once(&looked, look_once);
    if (!attending.found)
        return ND_ERROR_UNSUPPORTED;
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = nd__cudnn_handle(device, queue);
    const nd_dnn_plan *plan = status == ND_OK ? plan_for(device, &question) : NULL;
    if (status == ND_OK)
        status = plan ? run_by(device, queue, call, plan) : ND_ERROR_UNSUPPORTED;
    pthread_mutex_unlock(&device->blas_lock);
    return status == ND_ERROR_OUT_OF_MEMORY ? ND_ERROR_UNSUPPORTED : status;
}
