// Convolutions of f32 through oneDNN primitives, kept in a small cache.
//
// A plan is everything that depends on sizes alone: the primitive, the layouts it likes, and reorders
// from and to ours. Making one takes far longer than running it. Plans are immutable once made, so any
// number of threads may run one; `users` keeps a plan from being replaced while it runs. Memory for
// reordered operands and scratch is the calling thread's own.
#include "kernels/cpu/onednn.h"

#if ND_HAVE_ONEDNN
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PLANS 64
/// n, ci, h, w, co, kh, kw, stride, padding, oh, ow
#define SIZES 11

typedef struct conv_plan {
    nd_op op;
    int threads; ///< a primitive is made for a number of threads and would start them again
    int64_t sizes[SIZES];
    uint64_t last_use;
    int users;
    bool unusable; ///< oneDNN has no such primitive; remembered, so that it is asked once
    dnnl_primitive_t convolution;
    size_t scratch_bytes;
    // By operand of the call.
    int argument[3];
    dnnl_memory_desc_t ours[3], theirs[3];
    dnnl_primitive_t reorder[3]; ///< NULL where the layouts are one
} conv_plan;

static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    uint64_t clock;
    conv_plan *plans[PLANS];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void destroy_plan(conv_plan *plan) {
    if (!plan)
        return;
    for (int i = 0; i < 3; i++)
        if (plan->reorder[i])
            dnnl_primitive_destroy(plan->reorder[i]);
    if (plan->convolution)
        dnnl_primitive_destroy(plan->convolution);
    free(plan);
}

__attribute__((destructor)) static void clear_cache(void) {
    for (int i = 0; i < PLANS; i++) {
        destroy_plan(cache.plans[i]);
        cache.plans[i] = NULL;
    }
    if (cache.engine)
        dnnl_engine_destroy(cache.engine);
    cache.engine = NULL;
}

// A child must not inherit the lock of a thread that it does not have.
static void lock_cache(void) {
    pthread_mutex_lock(&cache.lock);
}
static void unlock_cache(void) {
    pthread_mutex_unlock(&cache.lock);
}
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(lock_cache, unlock_cache, unlock_cache);
}

/// Contiguous NCHW (or OIHW) and the same in any layout.
static bool describe(conv_plan *plan, int operand, int64_t a, int64_t b, int64_t c, int64_t d,
                     int argument, dnnl_memory_desc_t *ret_any) {
    dnnl_dims_t dims = {a, b, c, d};
    plan->argument[operand] = argument;
    return dnnl_memory_desc_init_by_tag(&plan->ours[operand], 4, dims, dnnl_f32, dnnl_abcd) ==
               dnnl_success &&
           dnnl_memory_desc_init_by_tag(ret_any, 4, dims, dnnl_f32, dnnl_format_tag_any) ==
               dnnl_success;
}

typedef struct conv_descriptors {
    dnnl_memory_desc_t x, weight, y;
    dnnl_dims_t strides, padding;
} conv_descriptors;

static bool describe_operands(conv_plan *plan, conv_descriptors *d) {
    const int64_t *s = plan->sizes;
    int x = 1, weight = 2, y = 0;
    int x_argument = DNNL_ARG_SRC, weight_argument = DNNL_ARG_WEIGHTS, y_argument = DNNL_ARG_DST;
    if (plan->op == ND_OP_conv2d_grad_input) {
        x = 0, y = 1;
        x_argument = DNNL_ARG_DIFF_SRC;
        y_argument = DNNL_ARG_DIFF_DST;
    } else if (plan->op == ND_OP_conv2d_grad_weight) {
        weight = 0, y = 2;
        weight_argument = DNNL_ARG_DIFF_WEIGHTS;
        y_argument = DNNL_ARG_DIFF_DST;
    }
    d->strides[0] = d->strides[1] = s[7];
    d->padding[0] = d->padding[1] = s[8];
    return describe(plan, x, s[0], s[1], s[2], s[3], x_argument, &d->x) &&
           describe(plan, weight, s[4], s[1], s[5], s[6], weight_argument, &d->weight) &&
           describe(plan, y, s[0], s[4], s[9], s[10], y_argument, &d->y);
}

/// Primitive descriptor of the plan's convolution, or NULL.
static dnnl_primitive_desc_t describe_convolution(const conv_plan *plan, conv_descriptors *d) {
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t forward = NULL, result = NULL;
    dnnl_primitive_attr_t attr = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    bool is_forward = plan->op == ND_OP_conv2d;
    if (dnnl_convolution_forward_desc_init(
            &description, is_forward ? dnnl_forward_inference : dnnl_forward_training,
            dnnl_convolution_direct, &d->x, &d->weight, NULL, &d->y, d->strides, d->padding,
            d->padding) == dnnl_success)
        dnnl_primitive_desc_create(&forward, &description, attr, cache.engine, NULL);
    dnnl_status_t status = dnnl_success;
    if (forward && !is_forward) {
        status =
            plan->op == ND_OP_conv2d_grad_input
                ? dnnl_convolution_backward_data_desc_init(&description, dnnl_convolution_direct,
                                                           &d->x, &d->weight, &d->y, d->strides,
                                                           d->padding, d->padding)
                : dnnl_convolution_backward_weights_desc_init(&description, dnnl_convolution_direct,
                                                              &d->x, &d->weight, NULL, &d->y,
                                                              d->strides, d->padding, d->padding);
        if (status == dnnl_success)
            dnnl_primitive_desc_create(&result, &description, attr, cache.engine, forward);
        dnnl_primitive_desc_destroy(forward);
    } else {
        result = forward;
    }
    dnnl_primitive_attr_destroy(attr);
    return result;
}

static bool make_reorder(conv_plan *plan, int operand) {
    const dnnl_memory_desc_t *ours = &plan->ours[operand], *theirs = &plan->theirs[operand];
    if (dnnl_memory_desc_equal(ours, theirs))
        return true;
    bool is_output = operand == 0;
    dnnl_primitive_desc_t description;
    if (dnnl_reorder_primitive_desc_create(&description, is_output ? theirs : ours, cache.engine,
                                           is_output ? ours : theirs, cache.engine,
                                           NULL) != dnnl_success)
        return false;
    bool made = dnnl_primitive_create(&plan->reorder[operand], description) == dnnl_success;
    dnnl_primitive_desc_destroy(description);
    return made;
}

static bool fill_plan(conv_plan *plan) {
    conv_descriptors descriptors;
    if (!describe_operands(plan, &descriptors))
        return false;
    dnnl_primitive_desc_t convolution = describe_convolution(plan, &descriptors);
    if (!convolution)
        return false;
    bool made = true;
    for (int i = 0; i < 3 && made; i++) {
        const dnnl_memory_desc_t *theirs =
            dnnl_primitive_desc_query_md(convolution, dnnl_query_exec_arg_md, plan->argument[i]);
        made = theirs != NULL;
        if (made) {
            plan->theirs[i] = *theirs;
            made = make_reorder(plan, i);
        }
    }
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(convolution, dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
    plan->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    made = made && dnnl_primitive_create(&plan->convolution, convolution) == dnnl_success;
    dnnl_primitive_desc_destroy(convolution);
    return made;
}

/// Slot for a new plan: a free one, else the one unused for longest. -1 when all are running.
static int choose_slot(void) {
    int best = -1;
    for (int i = 0; i < PLANS; i++) {
        conv_plan *plan = cache.plans[i];
        if (!plan)
            return i;
        if (plan->users == 0 && (best < 0 || plan->last_use < cache.plans[best]->last_use))
            best = i;
    }
    return best;
}

/// A plan with one more user, or NULL.
static conv_plan *acquire_plan(const nd_kernel_call *call) {
    conv_plan *found = NULL;
    int threads = nd__cpu_threads();
    pthread_mutex_lock(&cache.lock);
    if (!cache.engine && dnnl_engine_create(&cache.engine, dnnl_cpu, 0) != dnnl_success)
        cache.engine = NULL;
    for (int i = 0; i < PLANS && cache.engine && !found; i++) {
        conv_plan *plan = cache.plans[i];
        if (plan && plan->op == call->op && plan->threads == threads &&
            memcmp(plan->sizes, call->attrs.i, sizeof plan->sizes) == 0)
            found = plan;
    }
    int slot = found || !cache.engine ? -1 : choose_slot();
    if (slot >= 0 && (found = calloc(1, sizeof *found)) != NULL) {
        found->op = call->op;
        found->threads = threads;
        memcpy(found->sizes, call->attrs.i, sizeof found->sizes);
        found->unusable = !fill_plan(found);
        destroy_plan(cache.plans[slot]);
        cache.plans[slot] = found;
    }
    if (found) {
        found->last_use = ++cache.clock;
        found->users++;
    }
    pthread_mutex_unlock(&cache.lock);
    return found;
}

static void release_plan(conv_plan *plan) {
    pthread_mutex_lock(&cache.lock);
    plan->users--;
    pthread_mutex_unlock(&cache.lock);
}

static bool run_reorder(dnnl_primitive_t reorder, dnnl_memory_t from, dnnl_memory_t to,
                        dnnl_stream_t stream) {
    dnnl_exec_arg_t arguments[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_primitive_execute(reorder, stream, 2, arguments) == dnnl_success;
}

static size_t rounded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/// Operand memory in our layout and in theirs (the same where they agree), and the scratchpad.
typedef struct conv_memory {
    dnnl_memory_t ours[3], theirs[3], scratch;
    dnnl_stream_t stream;
} conv_memory;

static bool make_memory(const conv_plan *plan, const nd_kernel_call *call, conv_memory *memory) {
    size_t bytes = rounded(plan->scratch_bytes);
    for (int i = 0; i < 3; i++)
        if (plan->reorder[i])
            bytes += rounded(dnnl_memory_desc_get_size(&plan->theirs[i]));
    char *block = bytes ? (char *)nd__cpu_scratch(bytes) : NULL;
    if (bytes && !block)
        return false;
    bool made = dnnl_stream_create(&memory->stream, cache.engine, dnnl_stream_default_flags) ==
                dnnl_success;
    for (int i = 0; i < 3 && made; i++) {
        made = dnnl_memory_create(&memory->ours[i], &plan->ours[i], cache.engine,
                                  call->operand[i].data) == dnnl_success;
        if (made && plan->reorder[i]) {
            made = dnnl_memory_create(&memory->theirs[i], &plan->theirs[i], cache.engine, block) ==
                   dnnl_success;
            block += rounded(dnnl_memory_desc_get_size(&plan->theirs[i]));
        }
    }
    if (made && plan->scratch_bytes) {
        dnnl_memory_desc_t scratch;
        dnnl_dims_t size = {(dnnl_dim_t)plan->scratch_bytes};
        made = dnnl_memory_desc_init_by_tag(&scratch, 1, size, dnnl_u8, dnnl_a) == dnnl_success &&
               dnnl_memory_create(&memory->scratch, &scratch, cache.engine, block) == dnnl_success;
    }
    return made;
}

static void destroy_memory(conv_memory *memory) {
    for (int i = 0; i < 3; i++) {
        if (memory->ours[i])
            dnnl_memory_destroy(memory->ours[i]);
        if (memory->theirs[i])
            dnnl_memory_destroy(memory->theirs[i]);
    }
    if (memory->scratch)
        dnnl_memory_destroy(memory->scratch);
    if (memory->stream)
        dnnl_stream_destroy(memory->stream);
}

static bool run_plan(const conv_plan *plan, const nd_kernel_call *call) {
    conv_memory memory;
    memset(&memory, 0, sizeof memory);
    bool done = make_memory(plan, call, &memory);
    dnnl_exec_arg_t arguments[4];
    for (int i = 0; i < 3 && done; i++) {
        bool reordered = plan->reorder[i] != NULL;
        arguments[i].arg = plan->argument[i];
        arguments[i].memory = reordered ? memory.theirs[i] : memory.ours[i];
        if (reordered && i > 0)
            done = run_reorder(plan->reorder[i], memory.ours[i], memory.theirs[i], memory.stream);
    }
    arguments[3].arg = DNNL_ARG_SCRATCHPAD;
    arguments[3].memory = memory.scratch;
    done = done && dnnl_primitive_execute(plan->convolution, memory.stream, memory.scratch ? 4 : 3,
                                          arguments) == dnnl_success;
    if (done && plan->reorder[0])
        done = run_reorder(plan->reorder[0], memory.theirs[0], memory.ours[0], memory.stream);
    if (memory.stream)
        dnnl_stream_wait(memory.stream);
    destroy_memory(&memory);
    return done;
}

bool nd__onednn_conv(const nd_kernel_call *call) {
    if (!nd__onednn_is_used())
        return false;
    for (int i = 0; i < SIZES; i++)
        if (call->attrs.i[i] <= 0 && i != 8) // padding may be 0
            return false;
    conv_plan *plan = acquire_plan(call);
    if (!plan)
        return false;
    bool done = !plan->unusable && run_plan(plan, call);
    release_plan(plan);
    return done;
}

#else

bool nd__onednn_conv(const nd_kernel_call *call) {
    (void)call;
    return false;
}
#endif
