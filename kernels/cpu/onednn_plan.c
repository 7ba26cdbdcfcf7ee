// Plans of convolutions, kept in a small cache.
//
// A plan is everything that depends on sizes alone: the primitive, the layouts it likes, and
// reorders from and to ours. Making one takes far longer than running it. Plans are immutable once
// made, so any number of threads may run one; `users` keeps a plan from being replaced while it
// runs. All of them are made for one thread, and run between nd__onednn_enter() and
// nd__onednn_leave().
#include "kernels/cpu/onednn_plan.h"

#if ND_HAVE_ONEDNN
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PLANS 128

static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    uint64_t clock;
    nd__conv_plan *plans[PLANS];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void destroy_plan(nd__conv_plan *plan) {
    if (!plan)
        return;
    for (int i = 0; i < 3; i++)
        if (plan->reorder[i])
            dnnl_primitive_destroy(plan->reorder[i]);
    if (plan->convolution)
        dnnl_primitive_destroy(plan->convolution);
    free(plan);
}

/// Whether all plans could go: one that another thread is running is left to it.
static bool clear_plans(void) {
    bool used = false;
    for (int i = 0; i < PLANS; i++) {
        if (cache.plans[i] && cache.plans[i]->users > 0) {
            used = true;
            continue;
        }
        destroy_plan(cache.plans[i]);
        cache.plans[i] = NULL;
    }
    return !used;
}

void nd__conv_plan_trim(void) {
    nd__onednn_before before;
    if (!nd__onednn_enter_to_end(&before))
        return; // it ends with the process
    pthread_mutex_lock(&cache.lock);
    clear_plans();
    int kept = 0;
    // oneDNN itself keeps what it has made, too, as many as it was told; without a room of none in
    // between they stay.
    if (cache.engine && dnnl_get_primitive_cache_capacity(&kept) == dnnl_success && kept > 0) {
        dnnl_set_primitive_cache_capacity(0);
        dnnl_set_primitive_cache_capacity(kept);
    }
    pthread_mutex_unlock(&cache.lock);
    nd__onednn_leave(&before);
}

/// At exit.
__attribute__((destructor)) static void clear_cache(void) {
    pthread_mutex_lock(&cache.lock);
    if (clear_plans() && cache.engine) {
        dnnl_engine_destroy(cache.engine);
        cache.engine = NULL;
    }
    pthread_mutex_unlock(&cache.lock);
}

// A child must not inherit the lock, or a use, of a thread that it does not have.
static void lock_cache(void) {
    pthread_mutex_lock(&cache.lock);
}
static void unlock_cache(void) {
    pthread_mutex_unlock(&cache.lock);
}
static void begin_child(void) {
    for (int i = 0; i < PLANS; i++)
        if (cache.plans[i])
            cache.plans[i]->users = 0;
    pthread_mutex_unlock(&cache.lock);
}
// Early, so that this lock is taken last: whoever computes may hold other ones.
__attribute__((constructor(101))) static void watch_forks(void) {
    pthread_atfork(lock_cache, unlock_cache, begin_child);
}

/// What a failure to make something means. oneDNN says of code that it found no room for that it could
/// not run: whether there is room tells that from a primitive that it does not have.
static nd_status status_of(dnnl_status_t made) {
    if (made == dnnl_success)
        return ND_OK;
    if (made == dnnl_out_of_memory || (made == dnnl_runtime_error && !nd__onednn_has_room()))
        return ND_ERROR_OUT_OF_MEMORY;
    return ND_ERROR_UNSUPPORTED;
}

/// Sums over images and ranges of them are rounded by whoever adds them.
static dnnl_data_type_t type_of(const nd__conv_plan *plan, int operand) {
    const bool is_sum = plan->op == ND_OP_conv_grad_weight && operand == 0;
    return plan->part.is_bf16 && !is_sum ? dnnl_bf16 : dnnl_f32;
}

/// An operand of `ndim` dense axes, but for its first, whose stride is given; and the same in any
/// layout.
static bool describe(nd__conv_plan *plan, int operand, int ndim, const int64_t *dims,
                     int64_t stride, int argument, dnnl_memory_desc_t *ret_any) {
    dnnl_dims_t sizes, strides;
    int64_t dense = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        sizes[i] = dims[i];
        strides[i] = i == 0 ? stride : dense;
        dense *= dims[i];
    }
    const dnnl_data_type_t type = type_of(plan, operand);
    plan->argument[operand] = argument;
    return dnnl_memory_desc_init_by_strides(&plan->ours[operand], ndim, sizes, type, strides) ==
               dnnl_success &&
           dnnl_memory_desc_init_by_tag(ret_any, ndim, sizes, type, dnnl_format_tag_any) ==
               dnnl_success;
}

typedef struct conv_descriptors {
    dnnl_memory_desc_t x, weight, y;
    dnnl_dims_t strides, padding, dilation;
} conv_descriptors;

/// The weight: with groups they are an axis of their own. `axes`: how many follow the channels.
static bool describe_weight(nd__conv_plan *plan, int operand, int axes, int argument,
                            dnnl_memory_desc_t *ret_any) {
    const nd__conv_sizes *s = &plan->part.sizes;
    int64_t dims[3 + ND_WINDOW_AXES] = {s->groups, s->co / s->groups, s->ci / s->groups};
    for (int i = 0; i < axes; i++)
        dims[3 + i] = s->kernel[ND_WINDOW_AXES - axes + i];
    int64_t stride = plan->part.weight_stride;
    return s->groups == 1
               ? describe(plan, operand, 2 + axes, dims + 1, stride, argument, ret_any)
               : describe(plan, operand, 3 + axes, dims, stride * dims[1], argument, ret_any);
}

/// x or y.
static bool describe_images(nd__conv_plan *plan, int operand, int axes, bool is_x, int argument,
                            dnnl_memory_desc_t *ret_any) {
    const nd__conv_part *part = &plan->part;
    int64_t dims[2 + ND_WINDOW_AXES] = {part->sizes.n, is_x ? part->sizes.ci : part->sizes.co};
    for (int i = 0; i < axes; i++)
        dims[2 + i] = (is_x ? part->sizes.x : part->sizes.y)[ND_WINDOW_AXES - axes + i];
    return describe(plan, operand, 2 + axes, dims, is_x ? part->x_stride : part->y_stride, argument,
                    ret_any);
}

static bool describe_operands(nd__conv_plan *plan, conv_descriptors *d) {
    const nd__conv_sizes *s = &plan->part.sizes;
    int x = 1, weight = 2, y = 0;
    int x_argument = DNNL_ARG_SRC, weight_argument = DNNL_ARG_WEIGHTS, y_argument = DNNL_ARG_DST;
    if (plan->op == ND_OP_conv_grad_input) {
        x = 0, y = 1;
        x_argument = DNNL_ARG_DIFF_SRC;
        y_argument = DNNL_ARG_DIFF_DST;
    } else if (plan->op == ND_OP_conv_grad_weight) {
        weight = 0, y = 2;
        weight_argument = DNNL_ARG_DIFF_WEIGHTS;
        y_argument = DNNL_ARG_DIFF_DST;
    }
    dnnl_dims_t channels = {s->co};
    plan->argument[3] = DNNL_ARG_BIAS;
    if (plan->part.has_bias && dnnl_memory_desc_init_by_tag(&plan->ours[3], 1, channels, dnnl_bf16,
                                                            dnnl_a) != dnnl_success)
        return false;
    // Without depth there are two axes, for which oneDNN has the most code.
    bool flat = s->x[0] == 1 && s->kernel[0] == 1 && s->padding[0] == 0;
    int axes = flat ? 2 : 3;
    for (int axis = 0; axis < axes; axis++) {
        int from = ND_WINDOW_AXES - axes + axis;
        d->strides[axis] = s->stride[from];
        d->padding[axis] = s->padding[from];
        d->dilation[axis] = s->dilation[from] - 1; // oneDNN counts what is left out
    }
    return describe_images(plan, x, axes, true, x_argument, &d->x) &&
           describe_weight(plan, weight, axes, weight_argument, &d->weight) &&
           describe_images(plan, y, axes, false, y_argument, &d->y);
}

/// Primitive descriptor of the plan's convolution.
static dnnl_status_t describe_convolution(const nd__conv_plan *plan, conv_descriptors *d,
                                          dnnl_primitive_desc_t *ret_convolution) {
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t forward = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t made = dnnl_primitive_attr_create(&attr);
    if (made != dnnl_success)
        return made;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    bool is_forward = plan->op == ND_OP_conv;
    dnnl_memory_desc_t weight = d->weight;
    weight.data_type = plan->part.is_bf16 ? dnnl_bf16 : dnnl_f32;
    made = dnnl_dilated_convolution_forward_desc_init(
        &description, is_forward ? dnnl_forward_inference : dnnl_forward_training,
        dnnl_convolution_direct, &d->x, &weight, plan->part.has_bias ? &plan->ours[3] : NULL, &d->y,
        d->strides, d->dilation, d->padding, d->padding);
    if (made == dnnl_success)
        made = dnnl_primitive_desc_create(&forward, &description, attr, cache.engine, NULL);
    if (made == dnnl_success && !is_forward) {
        made = plan->op == ND_OP_conv_grad_input
                   ? dnnl_dilated_convolution_backward_data_desc_init(
                         &description, dnnl_convolution_direct, &d->x, &d->weight, &d->y,
                         d->strides, d->dilation, d->padding, d->padding)
                   : dnnl_dilated_convolution_backward_weights_desc_init(
                         &description, dnnl_convolution_direct, &d->x, &d->weight, NULL, &d->y,
                         d->strides, d->dilation, d->padding, d->padding);
        if (made == dnnl_success)
            made = dnnl_primitive_desc_create(ret_convolution, &description, attr, cache.engine,
                                              forward);
        dnnl_primitive_desc_destroy(forward);
    } else {
        *ret_convolution = forward;
    }
    dnnl_primitive_attr_destroy(attr);
    return made;
}

static dnnl_status_t make_reorder(nd__conv_plan *plan, int operand) {
    const dnnl_memory_desc_t *ours = &plan->ours[operand], *theirs = &plan->theirs[operand];
    if (dnnl_memory_desc_equal(ours, theirs))
        return dnnl_success;
    bool is_output = operand == 0;
    dnnl_primitive_desc_t description;
    dnnl_status_t made =
        dnnl_reorder_primitive_desc_create(&description, is_output ? theirs : ours, cache.engine,
                                           is_output ? ours : theirs, cache.engine, NULL);
    if (made != dnnl_success)
        return made;
    made = dnnl_primitive_create(&plan->reorder[operand], description);
    dnnl_primitive_desc_destroy(description);
    return made;
}

/// Whether it is by code for bf16: oneDNN has code for other processors, too, which takes several times as
/// long as f32 does.
static bool is_of_pairs(const_dnnl_primitive_desc_t convolution) {
    const unsigned pairs = dnnl_cpu_isa_avx512_core_bf16;
    const char *name = NULL;
    return ((unsigned)dnnl_get_effective_cpu_isa() & pairs) == pairs &&
           dnnl_primitive_desc_query(convolution, dnnl_query_impl_info_str, 0, &name) ==
               dnnl_success &&
           strncmp(name, "ref", 3) != 0;
}

static nd_status fill_plan(nd__conv_plan *plan) {
    conv_descriptors descriptors;
    if (!describe_operands(plan, &descriptors))
        return ND_ERROR_UNSUPPORTED;
    dnnl_primitive_desc_t convolution = NULL;
    dnnl_status_t made = describe_convolution(plan, &descriptors, &convolution);
    if (made != dnnl_success)
        return status_of(made);
    if (plan->part.is_bf16 && !is_of_pairs(convolution))
        made = dnnl_unimplemented;
    for (int i = 0; i < 3 && made == dnnl_success; i++) {
        const dnnl_memory_desc_t *theirs =
            dnnl_primitive_desc_query_md(convolution, dnnl_query_exec_arg_md, plan->argument[i]);
        made = theirs ? dnnl_success : dnnl_unimplemented;
        if (theirs) {
            plan->theirs[i] = *theirs;
            made = make_reorder(plan, i);
        }
    }
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(convolution, dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
    plan->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (made == dnnl_success)
        made = dnnl_primitive_create(&plan->convolution, convolution);
    dnnl_primitive_desc_destroy(convolution);
    return status_of(made);
}

/// A new plan; one that oneDNN has no primitive for is a plan, too. ND_ERROR_OUT_OF_MEMORY: none.
static nd_status make_plan(nd_op op, const nd__conv_part *part, nd__conv_plan **ret_plan) {
    if (!nd__onednn_begin_code()) // where there is room for this thread alone nothing is to be freed
        return nd__onednn_has_room() ? ND_ERROR_UNSUPPORTED : ND_ERROR_OUT_OF_MEMORY;
    nd__conv_plan *plan = calloc(1, sizeof *plan);
    nd_status status = ND_ERROR_OUT_OF_MEMORY;
    if (plan) {
        plan->op = op;
        plan->part = *part;
        status = fill_plan(plan);
        plan->unusable = status == ND_ERROR_UNSUPPORTED;
    }
    nd__onednn_end_code();
    if (status == ND_ERROR_OUT_OF_MEMORY) {
        destroy_plan(plan);
        return status;
    }
    *ret_plan = plan;
    return ND_OK;
}

/// Slot for a new plan: a free one, else the one unused for longest. -1 when all are running.
static int choose_slot(void) {
    int best = -1;
    for (int i = 0; i < PLANS; i++) {
        nd__conv_plan *plan = cache.plans[i];
        if (!plan)
            return i;
        if (plan->users == 0 && (best < 0 || plan->last_use < cache.plans[best]->last_use))
            best = i;
    }
    return best;
}

nd_status nd__conv_plan_acquire(nd_op op, const nd__conv_part *part, nd__conv_plan **ret_plan) {
    nd__conv_plan *found = NULL;
    nd_status status = ND_ERROR_UNSUPPORTED;
    pthread_mutex_lock(&cache.lock);
    if (!cache.engine && dnnl_engine_create(&cache.engine, dnnl_cpu, 0) != dnnl_success)
        cache.engine = NULL;
    for (int i = 0; i < PLANS && cache.engine && !found; i++) {
        nd__conv_plan *plan = cache.plans[i];
        if (plan && plan->op == op && memcmp(&plan->part, part, sizeof *part) == 0)
            found = plan;
    }
    int slot = found || !cache.engine ? -1 : choose_slot();
    if (slot >= 0) {
        status = make_plan(op, part, &found);
        if (status == ND_OK) {
            destroy_plan(cache.plans[slot]);
            cache.plans[slot] = found;
        }
    }
    if (found) {
        found->last_use = ++cache.clock;
        status = found->unusable ? ND_ERROR_UNSUPPORTED : ND_OK;
    }
    if (status == ND_OK) {
        found->engine = cache.engine;
        found->users++;
        *ret_plan = found;
    }
    pthread_mutex_unlock(&cache.lock);
    return status;
}

void nd__conv_plan_release(nd__conv_plan *plan) {
    pthread_mutex_lock(&cache.lock);
    plan->users--;
    pthread_mutex_unlock(&cache.lock);
}
#endif
