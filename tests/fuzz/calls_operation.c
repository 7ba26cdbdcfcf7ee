// Calls of operations, each with the oracle of tensors.h.
#include "tests/fuzz/tensors.h"
#include <math.h>
#include <stdlib.h>

enum { OPERANDS_MAX = 3, LARGE = 1500, COMPARED_BELOW = 8 };

bool fuzz_is_large(const nd_tensor *x) {
    return nd_get_numel(x) > LARGE;
}

// ------------------------------------------------------------------------------------------ oracle

/// The elements as f64 in row-major order, to be freed; NULL when they cannot be had.
static double *elements(const nd_tensor *x) {
    nd_auto nd_tensor *cpu = nd_to(x, (nd_device){ND_CPU, 0});
    nd_auto nd_tensor *wide = nd_cast(cpu, ND_F64);
    size_t bytes = (size_t)nd_get_numel(wide) * sizeof(double);
    double *copy = wide ? malloc(bytes ? bytes : 1) : NULL;
    if (copy && nd_copy_to_host(wide, copy, bytes) != ND_OK) {
        free(copy);
        copy = NULL;
    }
    return copy;
}

/// Larger numbers may cancel each other, and then the order of a sum decides.
static bool is_moderate(const nd_tensor *x) {
    double *values = elements(x);
    bool moderate = values;
    for (int64_t i = 0; moderate && i < nd_get_numel(x); i++)
        moderate = isfinite(values[i]) && fabs(values[i]) <= COMPARED_BELOW;
    free(values);
    return moderate;
}

static bool agree(double a, double b) {
    return (!isfinite(a) && !isfinite(b)) || fabs(a - b) <= 1e-2 * (1 + fmax(fabs(a), fabs(b)));
}

static void compare(const fuzz_step *s, const nd_tensor *result, const nd_tensor *again) {
    if (!again)
        fuzz_die("%s fails on copies of its operands: %s", fuzz_call_name(fuzz_step_call(s)),
                 nd_error_get_message());
    if (nd_get_numel(result) != nd_get_numel(again) || nd_get_ndim(result) != nd_get_ndim(again))
        fuzz_die("%s has another shape on copies of its operands",
                 fuzz_call_name(fuzz_step_call(s)));
    double *a = elements(result), *b = elements(again);
    for (int64_t i = 0; a && b && i < nd_get_numel(result); i++)
        if (!agree(a[i], b[i]))
            fuzz_die("%s: element %lld is %g, and %g on copies of the operands",
                     fuzz_call_name(fuzz_step_call(s)), (long long)i, a[i], b[i]);
    free(a);
    free(b);
}

/// Computes again, on contiguous copies.
static void check_layout(fuzz_actor *me, const fuzz_step *s, int count,
                         const nd_tensor *const *operands, fuzz_function function,
                         const nd_tensor *result) {
    nd_tensor *copies[OPERANDS_MAX] = {NULL};
    bool comparable = nd_get_device(result).kind == ND_CPU; // elsewhere a bad index shows later
    fuzz_disarm(me);
    bool quiet = me->quiet;
    me->quiet = true;
    nd_no_grad {
        for (int i = 0; i < count && comparable; i++) {
            nd_auto nd_tensor *plain = nd_detach(operands[i]);
            copies[i] = nd_clone(plain);
            comparable = !operands[i] || (copies[i] && is_moderate(copies[i]));
        }
        // A quota may refuse the copies, or what is computed from them.
        if (comparable && nd_error_get_status() == ND_OK) {
            nd_auto nd_tensor *again = function((const nd_tensor *const *)copies, s);
            nd_status status = nd_error_get_status();
            if (status != ND_ERROR_QUOTA && status != ND_ERROR_OUT_OF_MEMORY)
                compare(s, result, again);
        }
    }
    for (int i = 0; i < count; i++)
        nd_release(copies[i]);
    me->quiet = quiet;
    nd_error_clear();
}

void fuzz_operation(fuzz_actor *me, const fuzz_step *s, int count, fuzz_function function) {
    const uint8_t numbers[OPERANDS_MAX] = {s->b, s->c, s->d};
    const nd_tensor *operands[OPERANDS_MAX] = {NULL};
    for (int i = 0; i < count; i++) {
        operands[i] = fuzz_tensor(me, numbers[i]);
        if (fuzz_is_large(operands[i]))
            return;
    }
    nd_tensor *result = function(operands, s);
    fuzz_expect(me, result);
    if (result && !fuzz_threaded && !me->disturbed && me->depth == 0 && !me->paused &&
        (s->a & 8) == 0)
        check_layout(me, s, count, operands, function, result);
    fuzz_put(me, FUZZ_TENSOR, s->a, result);
}

// -------------------------------------------------------------------------------------- operations

#define ALL_TWO(X) X(matmul) X(cross_entropy) X(mse_loss) X(masked_select)
#define ALL_THREE(X) X(where) X(linear)

ALL_TWO(TWO)
ALL_THREE(THREE)

static nd_tensor *reduce(const nd_tensor *x, const fuzz_step *s,
                         nd_tensor *(*function)(const nd_tensor *, int, const int *, bool)) {
    const int axes[] = {fuzz_axis(s->c), fuzz_axis(s->c / 10)};
    return function(x, s->d % 3, axes, s->d / 3 % 2);
}

/// Numbers that fit often, some that never do, and rarely very large ones.
static int64_t window_number(uint8_t number) {
    return number == 255 ? INT64_MAX : number % 8 < 6 ? number % 3 : number % 4 - 1;
}

static nd_tensor *convolve(const nd_tensor *x, const nd_tensor *weight, const fuzz_step *s) {
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.stride[0] = s->d % 4;
    options.stride[1] = s->d % 4 ? 1 + s->d / 32 : 1;
    options.padding[0] = s->d / 4 % 3;
    options.padding[1] = window_number(s->d);
    options.dilation[0] = 1 + s->d / 8 % 2;
    options.dilation[1] = s->d == 254 ? INT64_MAX : 1 + s->d / 16 % 2;
    options.groups = s->d % 32 == 31 ? window_number(s->d / 32) : 1 + s->d / 64 % 2;
    return nd_conv2d(x, weight, NULL, s->d == 1 ? NULL : &options);
}

static nd_tensor *pool(const nd_tensor *x, const fuzz_step *s) {
    nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
    options.kernel[0] = s->c % 4;
    options.kernel[1] = 1 + s->d % 3;
    options.stride[0] = s->c / 4 % 4;
    options.stride[1] = window_number(s->d);
    options.padding[0] = s->c / 16 % 3;
    options.padding[1] = s->d / 8 % 2;
    options.dilation[0] = s->c == 255 ? INT64_MAX : 1 + s->d / 16 % 2;
    options.dilation[1] = s->d / 32 % 3;
    return nd_max_pool2d(x, &options);
}

static nd_tensor *convolve_back(const nd_tensor *x, const nd_tensor *weight, const fuzz_step *s) {
    nd_conv_transpose2d_options options = ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
    options.stride[0] = s->d % 4;
    options.stride[1] = 1 + s->d / 32 % 4;
    options.padding[0] = s->d / 4 % 3;
    options.padding[1] = window_number(s->d);
    options.output_padding[0] = s->d / 64;
    options.dilation[1] = s->d == 254 ? INT64_MAX : 1 + s->d / 16 % 2;
    options.groups = s->d % 32 == 31 ? window_number(s->d / 32) : 1 + s->d / 64 % 2;
    return nd_conv_transpose2d(x, weight, NULL, s->d == 1 ? NULL : &options);
}

static nd_tensor *average(const nd_tensor *x, const fuzz_step *s) {
    nd_avg_pool2d_options options = ND_AVG_POOL2D_OPTIONS_INIT;
    options.kernel[0] = s->c % 4;
    options.kernel[1] = 1 + s->d % 3;
    options.stride[0] = s->c / 4 % 4;
    options.stride[1] = window_number(s->d);
    options.padding[0] = s->c / 16 % 3;
    options.ceil_mode = s->d / 8 % 2;
    options.count_include_pad = s->d / 16 % 2;
    options.divisor = s->c == 255 ? INT64_MAX : s->d / 32 % 3 - (s->c == 254);
    return nd_avg_pool2d(x, &options);
}

/// Sizes up to 15, some that are refused, and scales that give anything.
static nd_tensor *resize(const nd_tensor *x, const fuzz_step *s) {
    nd_interpolate_options options = ND_INTERPOLATE_OPTIONS_INIT;
    options.mode = (nd_interpolation)(s->c % 5);
    options.align_corners = s->c / 5 % 2;
    for (int axis = 0; axis < 3; axis++)
        if (s->d >> axis & 1)
            options.sizes[axis] = s->d == 255 ? INT64_MAX : s->d / 8 % 16;
        else
            options.scales[axis] = s->c == 254 ? 1e300 : (double)(s->c / 10) / 8;
    return nd_interpolate(x, &options);
}

static nd_tensor *unfold(const nd_tensor *x, const fuzz_step *s) {
    nd_unfold_options options = ND_UNFOLD_OPTIONS_INIT;
    options.kernel[0] = s->c % 4;
    options.kernel[1] = 1 + s->d % 3;
    options.stride[1] = window_number(s->d);
    options.padding[0] = s->c / 16 % 3;
    options.dilation[1] = s->c == 255 ? INT64_MAX : 1 + s->d / 16 % 2;
    if (s->c / 4 % 2)
        return nd_fold(x, 1 + s->d / 4 % 5, s->c / 64, &options);
    return nd_unfold(x, &options);
}

WITH(sum, 1, reduce(in[0], s, nd_sum))
WITH(mean, 1, reduce(in[0], s, nd_mean))
WITH(max, 1, reduce(in[0], s, nd_max))
WITH(min, 1, reduce(in[0], s, nd_min))
WITH(var, 1, nd_var(in[0], s->d % 2, &(const int){fuzz_axis(s->c)}, s->d / 2 % 2, s->d / 4 % 2))
WITH(argmax, 1, nd_argmax(in[0], fuzz_axis(s->c), s->d % 2))
WITH(argmin, 1, nd_argmin(in[0], fuzz_axis(s->c), s->d % 2))
WITH(softmax, 1, nd_softmax(in[0], fuzz_axis(s->c)))
WITH(log_softmax, 1, nd_log_softmax(in[0], fuzz_axis(s->c)))
WITH(masked_softmax, 2, nd_masked_softmax(in[0], in[1], fuzz_axis(s->c)))
WITH(conv2d, 2, convolve(in[0], in[1], s))
WITH(max_pool2d, 1, pool(in[0], s))
WITH(conv_transpose2d, 2, convolve_back(in[0], in[1], s))
WITH(avg_pool2d, 1, average(in[0], s))
WITH(adaptive_max_pool2d, 1, nd_adaptive_max_pool2d(in[0], s->c % 6, s->d % 6 - 1))
WITH(adaptive_avg_pool3d, 1, nd_adaptive_avg_pool3d(in[0], s->c % 6, s->d % 6 - 1, 2))
WITH(interpolate, 1, resize(in[0], s))
WITH(pixel_shuffle, 1, nd_pixel_shuffle(in[0], s->c % 4))
WITH(pixel_unshuffle, 1, nd_pixel_unshuffle(in[0], s->c % 4))
WITH(unfold, 1, unfold(in[0], s))
WITH(take, 2, nd_take(in[0], in[1], fuzz_axis(s->d)))
WITH(gather, 2, nd_gather(in[0], in[1], fuzz_axis(s->d)))
WITH(scatter_add, 3, nd_scatter_add(in[0], in[1], in[2], s->a / 16 % 4 - 1))
WITH(one_hot, 1, nd_one_hot(in[0], s->c % 6, fuzz_dtype(s->d)))
WITH(masked_fill, 2, nd_masked_fill(in[0], in[1], fuzz_value(s->d)))

const fuzz_call fuzz_operation_calls[] = {
    // clang-format off
    ALL_TWO(WAITING) ALL_THREE(ENTRY)
    ENTRY(sum) ENTRY(mean) ENTRY(max) ENTRY(min) ENTRY(var)
    ENTRY(argmax) ENTRY(argmin) ENTRY(softmax) ENTRY(log_softmax) ENTRY(conv2d) ENTRY(max_pool2d) ENTRY(take) ENTRY(gather)
    ENTRY(scatter_add) ENTRY(one_hot) ENTRY(masked_fill) ENTRY(conv_transpose2d) ENTRY(avg_pool2d) ENTRY(adaptive_max_pool2d)
    ENTRY(adaptive_avg_pool3d) ENTRY(interpolate) ENTRY(pixel_shuffle) ENTRY(pixel_unshuffle) ENTRY(unfold)
    ENTRY(masked_softmax)
    // clang-format on
    {0},
};
