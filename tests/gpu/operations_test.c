// Every operation of the public API on ND_CUDA beside the same on ND_CPU.
//
// An operation is a function of a set of inputs that exists once on each device. The results must
// agree in dtype, shape and, within rounding, in every value; where the CPU refuses a dtype, so
// must the device.
#include "tests/elementwise.h"
#include "tests/gpu/inputs.h"
#include "tests/training.h"
#include "tests/windows.h"
#include <math.h>
#include <nd/fft.h>
#include <nd/linalg.h>

// ------------------------------------------------------------------------------------------------
// operations

#define TRANSPOSED(x) nd_tmp(nd_transpose(x, 0, 1))
// Of the image [2, 3, 9, 11] and the filter [4, 3, 3, 3]: one axis, and three.
#define SIGNAL(in) nd_tmp(nd_select(in->image, 0, 2))
#define BAND(in) nd_tmp(nd_select(in->filter, 0, 2))
#define VOLUME(in) nd_tmp(nd_reshape(in->image, ND_SHAPE(2, 1, 3, 9, 11)))
#define BLOCK(in) nd_tmp(nd_reshape(in->filter, ND_SHAPE(4, 1, 3, 3, 3)))
#define TURNED(in) nd_tmp(nd_transpose(in->filter, 0, 1))
#define UPWARDS                            \
    (&(const nd_conv_transpose2d_options){ \
        sizeof(nd_conv_transpose2d_options), 1, {2, 1}, {1, 0}, {1, 0}, {1, 2}, 1})
#define PEAKS (&(const nd_max_pool1d_options){sizeof(nd_max_pool1d_options), 1, 3, 2, 1, 2, true})
#define MEANS                        \
    (&(const nd_avg_pool2d_options){ \
        sizeof(nd_avg_pool2d_options), 1, {3, 2}, {2, 2}, {1, 0}, true, true, 0})
#define INTO(mode)                    \
    (&(const nd_interpolate_options){ \
        sizeof(nd_interpolate_options), 1, {5, 17, 0}, {0, 0, 0}, mode, false})
#define ATTENDING(dropout, causal) \
    (&(const nd_attention_options){sizeof(nd_attention_options), 1, 0, dropout, {7, 15}, causal})
// Scores of size 1: what is rounded in larger ones is seen in their powers.
#define MILD(x) nd_tmp(nd_mul_scalar(x, 0.0625))
#define SEEN(in) nd_tmp(nd_slice(in->condition, 0, 37, 1, 1))
#define ONE(x) nd_tmp(nd_slice(x, 0, 1, 1, 0))
#define LINES_SEEN(in, count) \
    nd_tmp(nd_less(LINES(in, count), nd_tmp(nd_zeros_like(LINES(in, count)))))
#define LINES(in, count) nd_tmp(nd_reshape(in->flat, ND_SHAPE(count, 70000 / count)))
#define SQUARES(in) nd_tmp(nd_matmul(MILD(in->a), nd_tmp(nd_transpose(MILD(in->a), 0, 1))))
#define PAIRS(in) nd_tmp(nd_reshape(in->flat, ND_SHAPE(14, 50, 50, 2)))
#define COLUMNS \
    (&(const nd_unfold_options){sizeof(nd_unfold_options), 1, {2, 3}, {1, 2}, {1, 0}, {2, 1}})
#define BROADCAST(x) nd_tmp(nd_expand(x, ND_SHAPE(37, 53)))
#define AXIS(axis)     \
    1, (const int[]) { \
        axis           \
    }

/// For integers of 64 bits a number that no double is; taken away again, it leaves a difference that
/// can be told.
static int64_t odd_number(nd_dtype dtype) {
    return dtype == ND_I64 || dtype == ND_U64 ? ((int64_t)1 << 62) + 1 : 1;
}
#define ODD(x) odd_number(nd_get_dtype(x))

// clang-format off
#define ELEMENTWISE(CASE)                                                            \
    CASE(log_of_negative, nd_log(in->a))                                             \
    CASE(add_odd, nd_add_scalar(nd_tmp(nd_add_scalar(in->a, ODD(in->a))), 1 - ODD(in->a))) \
    CASE(mul_odd, nd_add_scalar(nd_tmp(nd_mul_scalar(nd_tmp(nd_ones_like(in->a)), ODD(in->a))), 1 - ODD(in->a))) \
    CASE(exp_of_transposed, nd_exp(TRANSPOSED(in->a)))                               \
    CASE(square_of_slice, nd_square(nd_tmp(nd_slice(in->a, 3, 50, 2, 1))))           \
    CASE(add_row, nd_add(in->a, in->row))                                            \
    CASE(add_column, nd_add(in->a, in->column))                                      \
    CASE(add_outer, nd_add(in->column, in->row))                                     \
    CASE(add_transposed, nd_add(TRANSPOSED(in->a), TRANSPOSED(in->b)))               \
    CASE(add_long, nd_add(in->flat, in->flat))                                       \
    CASE(where, nd_where(in->condition, in->a, in->row))                             \
    CASE(masked_fill, nd_masked_fill(in->a, in->condition, 4))

#define REDUCTIONS(CASE)                                                             \
    CASE(sum, nd_sum(in->a, 0, NULL, false))                                         \
    CASE(sum_long, nd_sum(in->flat, 0, NULL, false))                                 \
    CASE(sum_rows, nd_sum(in->a, AXIS(1), false))                                    \
    CASE(sum_columns, nd_sum(in->a, AXIS(0), true))                                  \
    CASE(sum_outer_axes, nd_sum(in->cube, 2, ((const int[]){0, 2}), false))          \
    CASE(sum_of_transposed, nd_sum(TRANSPOSED(in->a), AXIS(1), false))               \
    CASE(sum_to, nd_sum_to(in->a, ND_SHAPE(53)))                                     \
    CASE(mean, nd_mean(in->a, AXIS(1), false))                                       \
    CASE(mean_long, nd_mean(in->flat, 0, NULL, false))                               \
    CASE(max, nd_max(in->a, AXIS(0), false))                                         \
    CASE(max_long, nd_max(in->flat, 0, NULL, false))                                 \
    CASE(min, nd_min(in->cube, AXIS(1), false))                                      \
    CASE(var, nd_var(in->a, AXIS(1), 1, false))                                      \
    CASE(std, nd_std(in->a, AXIS(0), 1, false))                                      \
    CASE(prod, nd_prod(in->a, AXIS(1), false))                                       \
    CASE(any, nd_any(in->a, AXIS(1), false))                                         \
    CASE(all, nd_all(in->a, AXIS(0), false))                                         \
    CASE(count_nonzero, nd_count_nonzero(in->a, AXIS(1), false))                     \
    CASE(norm, nd_norm(in->a, 2, AXIS(1), false))                                    \
    CASE(norm_half, nd_norm(in->a, 0.5, AXIS(0), false))                             \
    CASE(logsumexp, nd_logsumexp(in->a, AXIS(1), false))                             \
    CASE(cumsum, nd_cumsum(in->a, 1))                                                \
    CASE(cumprod, nd_cumprod(in->a, 0))                                              \
    CASE(cummax, nd_cummax(in->a, 1))                                                \
    CASE(cummin, nd_cummin(in->a, 0))                                                \
    CASE(argmax, nd_argmax(in->a, 1, false))                                         \
    CASE(argmax_columns, nd_argmax(in->a, 0, true))                                  \
    CASE(argmin, nd_argmin(in->cube, 1, false))                                      \
    CASE(softmax, nd_softmax(in->a, 1))                                              \
    CASE(softmax_columns, nd_softmax(in->a, 0))                                      \
    CASE(log_softmax, nd_log_softmax(in->a, 1))                                      \
    CASE(log_softmax_long, nd_log_softmax(in->flat, 0))                              \
    CASE(masked_softmax, nd_masked_softmax(in->a, in->condition, 1))                 \
    CASE(masked_softmax_columns, nd_masked_softmax(in->a, in->condition, 0))         \
    CASE(masked_softmax_row, nd_masked_softmax(in->cube, nd_tmp(nd_select(in->condition, 3, 0)), -1)) \
    CASE(masked_softmax_column, nd_masked_softmax(in->a, nd_tmp(nd_slice(in->condition, 2, 3, 1, 1)), 1)) \
    CASE(masked_softmax_long, nd_masked_softmax(in->flat, nd_tmp(nd_less(in->flat, nd_tmp(nd_zeros_like(in->flat)))), 0)) \
    CASE(cross_entropy, nd_cross_entropy(in->a, in->labels))                         \
    CASE(mse_loss, nd_mse_loss(in->a, in->b))

#define PRODUCTS(CASE)                                                               \
    CASE(matmul, nd_matmul(in->a, TRANSPOSED(in->b)))                                \
    CASE(matmul_transposed_first, nd_matmul(TRANSPOSED(in->a), in->b))               \
    CASE(matmul_vector, nd_matmul(in->a, in->row))                                   \
    CASE(matmul_batch, nd_matmul(in->cube, TRANSPOSED(in->b)))                       \
    CASE(matmul_two_batches, nd_matmul(in->cube, nd_tmp(nd_transpose(in->cube, 1, 2))))  \
    CASE(matmul_sliced, nd_matmul(nd_tmp(nd_slice(in->a, 0, 40, 2, 1)),              \
                                  nd_tmp(nd_slice(in->b, 0, 20, 1, 0))))             \
    CASE(matmul_repeated_rows, nd_matmul(BROADCAST(in->row), TRANSPOSED(in->b)))     \
    CASE(linear, nd_linear(in->a, in->b, NULL))                                      \
    CASE(linear_bias, nd_linear(in->a, nd_tmp(nd_slice(in->b, 0, 5, 1, 0)),          \
                                nd_tmp(nd_slice(in->row, 0, 5, 1, 0))))              \
    CASE(linear_activation,                                                          \
         nd_linear_activation(in->a, in->b, NULL, ND_ACTIVATION_GELU))               \
    CASE(quantized_int8, quantized_product(in->a, in->b, 8, false))                  \
    CASE(quantized_int4, quantized_product(nd_tmp(nd_slice(in->a, 1, 53, 1, 1)),     \
                                           nd_tmp(nd_slice(in->b, 0, 52, 1, 1)), 4, true)) \
    CASE(integers, integer_product(in->a, in->b, ND_I8, ND_I8, false))               \
    CASE(integers_words, integer_product(nd_tmp(nd_slice(in->a, 0, 52, 1, 1)),       \
                                         nd_tmp(nd_slice(in->b, 0, 52, 1, 1)), ND_I8, ND_I8, false)) \
    CASE(integers_zeros, integer_product(in->a, in->b, ND_U8, ND_I8, true))          \
    CASE(integers_row, integer_product(nd_tmp(nd_slice(in->a, 0, 1, 1, 0)), in->b, ND_I8, ND_U8, true)) \
    CASE(svdvals, nd_svdvals(in->a))                                                 \
    CASE(lstsq, nd_lstsq(in->cube, in->a, -1))                                       \
    CASE(cholesky, nd_cholesky(SQUARES(in)))                                         \
    CASE(eigvalsh, nd_eigvalsh(SQUARES(in)))                                         \
    CASE(solve_triangular, nd_solve_triangular(nd_tmp(nd_cholesky(SQUARES(in))), MILD(in->a), false, false)) \
    CASE(fft, nd_fft(PAIRS(in), 0, 1, ND_FFT_NORM_ORTHO))                            \
    CASE(ifft_columns, nd_ifft(PAIRS(in), 12, 0, ND_FFT_NORM_BACKWARD))              \
    CASE(rfft, nd_rfft(in->a, 0, 1, ND_FFT_NORM_ORTHO))                              \
    CASE(rfft_of_transposed, nd_rfft(TRANSPOSED(in->a), 64, 0, ND_FFT_NORM_ORTHO))   \
    CASE(irfft, nd_irfft(PAIRS(in), 0, 1, ND_FFT_NORM_ORTHO))                        \
    CASE(layer_norm, nd_layer_norm(in->a, in->row, in->row, 1e-5, 1))                \
    CASE(rms_norm, nd_rms_norm(in->a, NULL, 1e-5, 1))                                \
    CASE(group_norm, nd_group_norm(in->image, NULL, NULL, 3, 1e-5))                  \
    CASE(batch_norm, nd_batch_norm(in->a, in->row, in->row, NULL, NULL, NULL))       \
    CASE(instance_norm, nd_instance_norm(in->image, NULL, NULL, NULL, NULL, NULL))   \
    CASE(embedding, nd_embedding(in->a, in->labels, 3))                              \
    CASE(dropout, nd_dropout(in->a, nd_key_new(4), 0.3, true))                       \
    CASE(l1_loss, nd_l1_loss(in->a, in->b, ND_REDUCTION_MEAN))                       \
    CASE(huber_loss, nd_huber_loss(in->a, in->row, 0.5, ND_REDUCTION_NONE))          \
    CASE(kl_div, nd_kl_div(in->a, in->positive, false, ND_REDUCTION_BATCH_MEAN))     \
    CASE(bce, nd_bce_with_logits(in->a, in->b, in->row, in->row, ND_REDUCTION_NONE)) \
    CASE(nll_loss, nd_nll_loss(in->a, in->labels, in->row, 3, ND_REDUCTION_NONE))    \
    CASE(cosine_similarity, nd_cosine_similarity(in->a, in->b, 1e-8, 1))             \
    CASE(attention, nd_attention(in->cube, in->cube, in->cube, NULL, NULL))          \
    CASE(attention_causal, nd_attention(MILD(in->cube), in->cube, in->cube, NULL, ATTENDING(0, true)))\
    CASE(attention_masked, nd_attention(MILD(in->cube), in->cube, in->cube, SEEN(in), NULL)) \
    CASE(attention_dropped, nd_attention(MILD(in->cube), in->cube, in->cube, SEEN(in), ATTENDING(0.5, true)))\
    CASE(attention_shared, nd_attention(MILD(in->cube), ONE(in->cube), ONE(in->cube), NULL, NULL))\
    CASE(attention_long, nd_attention(MILD(LINES(in, 70)), LINES(in, 70), LINES(in, 70), NULL, NULL))\
    CASE(softmax_lines, nd_softmax(LINES(in, 70), 1))                                \
    CASE(softmax_of_turned, nd_softmax(TRANSPOSED(LINES(in, 70)), 0))                \
    CASE(log_softmax_lines, nd_log_softmax(LINES(in, 7), 1))                         \
    CASE(masked_softmax_lines, nd_masked_softmax(LINES(in, 70), LINES_SEEN(in, 70), 1)) \
    CASE(masked_softmax_odd, nd_masked_softmax(LINES(in, 16), LINES_SEEN(in, 16), 1)) \
    CASE(layer_norm_lines, nd_layer_norm(LINES(in, 70), NULL, NULL, 1e-5, 1))        \
    CASE(rms_norm_lines, nd_rms_norm(LINES(in, 7), NULL, 1e-5, 1))                   \
    CASE(pad, nd_pad(in->a, 2, ((const int64_t[]){2, 1, 0, 3}), 1, ND_PADDING_CONSTANT))\
    CASE(pad_circular, nd_pad(in->a, 1, ((const int64_t[]){5, 3}), 0, ND_PADDING_CIRCULAR))\
    CASE(flip, nd_flip(in->a, 0, NULL))                                              \
    CASE(roll, nd_roll(in->a, 5, 1))                                                 \
    CASE(tril, nd_tril(in->a, 3))                                                    \
    CASE(repeat, nd_repeat(in->a, 2, 0))                                             \
    CASE(tile, nd_tile(in->a, 2, ((const int64_t[]){2, 3})))                         \
    CASE(conv2d, nd_conv2d(in->image, in->filter, NULL, CONV(1, 1)))                 \
    CASE(conv2d_stride, nd_conv2d(in->image, in->filter, in->bias, CONV(2, 0)))      \
    CASE(conv2d_dilation, nd_conv2d(in->image, in->filter, NULL, CONV_WITH(1, 2, 3, 0, 2, 3, 1)))  \
    CASE(conv2d_depthwise, nd_conv2d(in->image, in->depthwise, NULL, CONV_WITH(2, 1, 0, 2, 1, 2, 3))) \
    CASE(max_pool2d, nd_max_pool2d(in->image, POOL(3, 2)))                           \
    CASE(max_pool2d_padded, nd_max_pool2d(in->image, POOL_WITH(3, 2, 0, 1, 1, 1, 2, 3))) \
    CASE(conv1d, nd_conv1d(SIGNAL(in), BAND(in), in->bias, NULL)) \
    CASE(conv3d, nd_conv3d(VOLUME(in), BLOCK(in), NULL, NULL)) \
    CASE(conv_transpose2d, nd_conv_transpose2d(in->image, TURNED(in), NULL, UPWARDS)) \
    CASE(max_pool1d, nd_max_pool1d(SIGNAL(in), PEAKS)) \
    CASE(adaptive_max_pool2d, nd_adaptive_max_pool2d(in->image, 3, 4)) \
    CASE(avg_pool2d, nd_avg_pool2d(in->image, MEANS)) \
    CASE(adaptive_avg_pool2d, nd_adaptive_avg_pool2d(in->image, 3, 4)) \
    CASE(interpolate_nearest, nd_interpolate(in->image, INTO(ND_INTERPOLATION_NEAREST))) \
    CASE(interpolate_linear, nd_interpolate(in->image, INTO(ND_INTERPOLATION_LINEAR))) \
    CASE(interpolate_cubic, nd_interpolate(in->image, INTO(ND_INTERPOLATION_CUBIC))) \
    CASE(unfold, nd_unfold(in->image, COLUMNS)) \
    CASE(fold, nd_fold(nd_tmp(nd_unfold(in->image, COLUMNS)), nd_get_size(in->image, 2), nd_get_size(in->image, 3), COLUMNS))

#define MOVES(CASE)                                                                  \
    CASE(take, nd_take(in->a, in->labels, 0))                                        \
    CASE(take_columns, nd_take(in->a, in->labels, 1))                                \
    CASE(sort, nd_sort(in->a, 1, false))                                             \
    CASE(argsort_columns, nd_argsort(in->a, 0, true))                                \
    CASE(searchsorted, nd_searchsorted(nd_tmp(nd_sort(in->row, 0, false)), in->a, true)) \
    CASE(gather, nd_gather(in->a, in->index, 0))                                     \
    CASE(gather_columns, nd_gather(in->a, in->index, 1))                             \
    CASE(scatter_add, nd_scatter_add(in->a, in->index, in->b, 0))                    \
    CASE(scatter_add_columns, nd_scatter_add(in->a, in->index, in->b, 1))            \
    CASE(scatter_add_long, nd_scatter_add(in->row, in->bins, \
                                          nd_tmp(nd_mul_scalar(nd_tmp(nd_slice(in->flat, 0, 5000, 1, 0)), 0.0625)), 0))  \
    CASE(scatter_prod, nd_scatter(in->a, in->index, in->b, 0, ND_SCATTER_PROD, true)) \
    CASE(scatter_amin, nd_scatter(in->a, in->index, in->b, 1, ND_SCATTER_AMIN, false)) \
    CASE(scatter_amax_long, nd_scatter(in->row, in->bins, \
                                       nd_tmp(nd_slice(in->flat, 0, 5000, 1, 0)), 0, ND_SCATTER_AMAX, true)) \
    CASE(scatter_mean, nd_scatter(in->a, in->index, in->b, 0, ND_SCATTER_MEAN, false)) \
    CASE(slice_backwards, nd_slice(in->a, INT64_MAX, INT64_MIN, -2, 1))              \
    CASE(sliding_window, nd_clone(nd_tmp(nd_sliding_window(in->a, 3, 2, 1))))        \
    CASE(masked_select, nd_masked_select(in->a, in->condition))                      \
    CASE(contiguous, nd_contiguous(TRANSPOSED(in->a)))                               \
    CASE(clone_of_slice, nd_clone(nd_tmp(nd_slice(in->cube, 1, 52, 3, 2))))          \
    CASE(reshape_of_transposed, nd_reshape(TRANSPOSED(in->a), ND_SHAPE(-1)))         \
    CASE(permute, nd_clone(nd_tmp(nd_permute(in->cube, 3, ((const int[]){2, 0, 1}))))) \
    CASE(expand, nd_clone(BROADCAST(in->column)))                                    \
    CASE(cast_bool, nd_cast(in->a, ND_BOOL))                                         \
    CASE(cast_u8, nd_cast(in->positive, ND_U8))                                      \
    CASE(cast_i32, nd_cast(in->a, ND_I32))                                           \
    CASE(cast_i64, nd_cast(in->a, ND_I64))                                           \
    CASE(cast_f32, nd_cast(TRANSPOSED(in->a), ND_F32))                               \
    CASE(cast_f64, nd_cast(in->a, ND_F64))                                           \
    CASE(one_hot, nd_one_hot(in->labels, 37, ND_F32))                                \
    CASE(concat, nd_concat(2, (const nd_tensor *[]){in->a, in->b}, 1))               \
    CASE(stack, nd_stack(3, (const nd_tensor *[]){in->a, in->b, in->a}, 0))
// clang-format on

typedef nd_tensor *operation(const inputs *in);

#define DEFINE(name, expression)                           \
    static nd_tensor *operation_##name(const inputs *in) { \
        return expression;                                 \
    }
ELEMENTWISE(DEFINE)
REDUCTIONS(DEFINE)
PRODUCTS(DEFINE)
MOVES(DEFINE)

// In place: a copy of `a` is changed.
static nd_tensor *changed(nd_tensor *x, nd_status status) {
    if (status == ND_OK)
        return x;
    nd_release(x);
    return NULL;
}
#define IN_PLACE(CASE)                              \
    CASE(add_, nd_add_(x, in->row))                 \
    CASE(sub_, nd_sub_(x, in->b))                   \
    CASE(mul_, nd_mul_(x, in->column))              \
    CASE(div_, nd_div_(x, in->positive))            \
    CASE(add_scaled_, nd_add_scaled_(x, in->b, -2)) \
    CASE(mul_scalar_, nd_mul_scalar_(x, 3))         \
    CASE(fill_, nd_fill_(x, 5))                     \
    CASE(copy_, nd_copy_(x, in->row))               \
    CASE(masked_fill_, nd_masked_fill_(x, in->condition, 6))
#define DEFINE_IN_PLACE(name, expression)                  \
    static nd_tensor *operation_##name(const inputs *in) { \
        nd_tensor *x = nd_clone(in->a);                    \
        return changed(x, expression);                     \
    }
IN_PLACE(DEFINE_IN_PLACE)

typedef struct named_operation {
    const char *name;
    operation *run;
    const elementwise_row *row; ///< instead of a function, for a row of the table
} named_operation;
#define NAMED(name, expression) {#name, operation_##name, NULL},
static const named_operation elementwise[] = {ELEMENTWISE(NAMED)};
static const named_operation reductions[] = {REDUCTIONS(NAMED)};
static const named_operation products[] = {PRODUCTS(NAMED)};
static const named_operation moves[] = {MOVES(NAMED)};
static const named_operation in_place[] = {IN_PLACE(NAMED)};
#define COUNT(array) (sizeof(array) / sizeof *(array))

// ------------------------------------------------------------------------------------------------
// comparing

/// Results of 16 bits are rounded once, perhaps on either side of a tie.
static double tolerance_of(nd_dtype dtype) {
    return dtype == ND_F32    ? 2e-5
           : dtype == ND_F64  ? 1e-12
           : dtype == ND_F16  ? 0x1p-10
           : dtype == ND_BF16 ? 0x1p-7
                              : 0;
}

/// Asserts that a CUDA tensor equals a CPU tensor.
static void assert_same(const char *name, const nd_tensor *cpu, const nd_tensor *cuda) {
    assert_int_equal(nd_get_device(cuda).kind, ND_CUDA);
    assert_int_equal(nd_get_dtype(cpu), nd_get_dtype(cuda));
    assert_int_equal(nd_get_ndim(cpu), nd_get_ndim(cuda));
    for (int axis = 0; axis < nd_get_ndim(cpu); axis++)
        assert_int_equal(nd_get_shape(cpu)[axis], nd_get_shape(cuda)[axis]);
    size_t count = (size_t)nd_get_numel(cpu);
    // Every value of every dtype the operations return is exact in f64, or nearly so for big i64.
    nd_tensor *expected = nd_cast(cpu, ND_F64);
    double *a = malloc((count + 1) * sizeof *a), *b = malloc((count + 1) * sizeof *b);
    nd_tensor *back = nd_to(cuda, (nd_device){ND_CPU, 0});
    nd_tensor *found = nd_cast(back, ND_F64);
    assert_handle(expected);
    assert_handle(found);
    assert_ok(nd_copy_to_host(expected, a, count * sizeof *a));
    assert_ok(nd_copy_to_host(found, b, count * sizeof *b));
    double tolerance = tolerance_of(nd_get_dtype(cpu));
    // Behind a library a product of 16-bit floats is rounded before its activation as well as after.
    if (strcmp(name, "linear_activation") == 0)
        tolerance *= 2;
    for (size_t i = 0; i < count; i++) {
        bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) ||
                    fabs(a[i] - b[i]) <= tolerance * fmax(1, fabs(a[i]));
        if (!same)
            fail_msg("%s, %s: element %zu is %.17g on the CPU, %.17g on CUDA", name,
                     nd_dtype_get_name(nd_get_dtype(cpu)), i, a[i], b[i]);
    }
    free(a);
    free(b);
    nd_release(expected);
    nd_release(back);
    nd_release(found);
}

static nd_tensor *run_operation(const named_operation *operation, const inputs *in) {
    const elementwise_row *row = operation->row;
    if (!row)
        return operation->run(in);
    nd_number p = ND_NUMBER(2), q = ND_NUMBER(5);
    if (row->types == TAKES_BOOL)
        return row->run(in->condition, nd_tmp(nd_less(in->column, in->row)), p, q);
    return row->run(in->a, in->b, p, q);
}

/// Returns how many operations took the dtype.
static size_t run_operations(const named_operation *operations, size_t count, nd_dtype dtype) {
    size_t compared = 0;
    inputs cpu = inputs_on_cpu(dtype);
    inputs cuda = inputs_on_cuda(&cpu);
    for (size_t i = 0; i < count; i++)
        ND_SCOPE {
            nd_tensor *expected = run_operation(&operations[i], &cpu);
            nd_status refused = nd_error_get_status();
            nd_error_clear();
            nd_tensor *found = run_operation(&operations[i], &cuda);
            if (expected && !found)
                fail_msg("%s, %s: %s", operations[i].name, nd_dtype_get_name(dtype),
                         nd_error_get_message());
            if (!expected) {
                if (found || nd_error_get_status() != refused)
                    fail_msg("%s, %s: the CPU refuses it, CUDA does not", operations[i].name,
                             nd_dtype_get_name(dtype));
                nd_error_clear();
            } else {
                assert_same(operations[i].name, expected, found);
                compared++;
            }
            nd_release(expected);
            nd_release(found);
        }
    release_inputs(&cpu);
    release_inputs(&cuda);
    return compared;
}

/// In every dtype of numbers: those are what inputs_on_cpu() makes.
static void run_dtypes(const named_operation *operations, size_t count) {
    assert_int_equal(run_operations(operations, count, ND_F32), count);
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++)
        run_operations(operations, count, (nd_dtype)dtype);
}

// ------------------------------------------------------------------------------------------------
// tests

static void test_elementwise(void **state) {
    (void)state;
    run_dtypes(elementwise, COUNT(elementwise));
}

static void test_every_elementwise_row(void **state) {
    (void)state;
    named_operation rows[ELEMENTWISE_ROWS];
    for (int i = 0; i < ELEMENTWISE_ROWS; i++)
        rows[i] = (named_operation){elementwise_rows[i].name, NULL, &elementwise_rows[i]};
    size_t compared = 0;
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++)
        compared += run_operations(rows, COUNT(rows), (nd_dtype)dtype);
    assert_true(compared > 2 * COUNT(rows));
}

static void test_reductions(void **state) {
    (void)state;
    run_dtypes(reductions, COUNT(reductions));
}

static void test_products(void **state) {
    (void)state;
    run_dtypes(products, COUNT(products));
}

static void test_moves(void **state) {
    (void)state;
    run_dtypes(moves, COUNT(moves));
}

static void test_in_place(void **state) {
    (void)state;
    run_dtypes(in_place, COUNT(in_place));
}

typedef nd_tensor *creation(nd_dtype dtype);
/// The same as ODD, for what is made: x - (first - 1).
static nd_tensor *taken_back(nd_tensor *x, int64_t first) {
    nd_tensor *back = nd_add_scalar(x, 1 - first);
    nd_release(x);
    return back;
}
static nd_tensor *full_odd(nd_dtype dtype) {
    int64_t first = odd_number(dtype);
    return taken_back(nd_full(ND_SHAPE(3, 3), first, dtype), first);
}
static nd_tensor *arange_odd(nd_dtype dtype) {
    int64_t first = odd_number(dtype);
    return taken_back(nd_arange(first, first + 200, 3, dtype), first);
}
#define CREATIONS(CASE)                                         \
    CASE(zeros, nd_zeros(ND_SHAPE(5, 7), dtype))                \
    CASE(ones, nd_ones(ND_SHAPE(1000), dtype))                  \
    CASE(full, nd_full(ND_SHAPE(3, 3), 2, dtype))               \
    CASE(scalar, nd_scalar(3, dtype))                           \
    CASE(full_odd, full_odd(dtype))                             \
    CASE(arange_odd, arange_odd(dtype))                         \
    CASE(arange, nd_arange(0, 200, 3, dtype))                   \
    CASE(linspace, nd_linspace(0, 1, 11, dtype))                \
    CASE(eye, nd_eye(9, dtype))                                 \
    CASE(rand, nd_rand(nd_key_new(3), ND_SHAPE(1001), dtype))   \
    CASE(randn, nd_randn(nd_key_new(3), ND_SHAPE(1001), dtype)) \
    CASE(randint, nd_randint(nd_key_new(3), 0, 100, ND_SHAPE(1001), dtype))
#define DEFINE_CREATION(name, expression)               \
    static nd_tensor *creation_##name(nd_dtype dtype) { \
        return expression;                              \
    }
CREATIONS(DEFINE_CREATION)

static void test_creation(void **state) {
    (void)state;
#define CREATION(name, expression) {#name, creation_##name},
    static const struct {
        const char *name;
        creation *run;
    } creations[] = {CREATIONS(CREATION)};
    for (size_t i = 0; i < COUNT(creations); i++)
        for (int dtype = ND_BOOL; dtype < ND_DTYPE_COUNT; dtype++) {
            nd_tensor *expected = creations[i].run((nd_dtype)dtype);
            nd_error_clear();
            assert_ok(nd_set_default_device(CUDA_DEVICE));
            nd_tensor *found = creations[i].run((nd_dtype)dtype);
            assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
            if (expected) {
                assert_handle(found);
                assert_same(creations[i].name, expected, found);
            } else {
                assert_null(found);
                nd_error_clear();
            }
            nd_release(expected);
            nd_release(found);
        }
}

static void test_item_and_transfer(void **state) {
    (void)state;
    const float numbers[] = {1, 2, 3, 4, 5, 6};
    ND_SCOPE {
        const nd_tensor *x = nd_tmp(nd_from_data(numbers, ND_SHAPE(2, 3), ND_F32));
        const nd_tensor *there = nd_tmp(nd_to(nd_tmp(nd_transpose(x, 0, 1)), CUDA_DEVICE));
        float back[6];
        assert_ok(nd_copy_to_host(there, back, sizeof back));
        const float transposed[] = {1, 4, 2, 5, 3, 6};
        assert_memory_equal(back, transposed, sizeof back);
        assert_true(nd_get_item(nd_tmp(nd_sum(there, 0, NULL, false))) == 21);
        assert_null(nd_get_data(there));
        assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
        nd_error_clear();
        // Devices do not mix.
        assert_null(nd_add(x, nd_tmp(nd_transpose(there, 0, 1))));
        assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
        nd_error_clear();
    }
}

static void test_index_out_of_range_is_reported_when_waiting(void **state) {
    (void)state;
    const int64_t wrong[] = {0, 99};
    ND_SCOPE {
        const nd_tensor *index =
            nd_tmp(nd_to(nd_tmp(nd_from_data(wrong, ND_SHAPE(2), ND_I64)), CUDA_DEVICE));
        const nd_tensor *x = nd_tmp(nd_to(nd_tmp(nd_ones(ND_SHAPE(5, 3), ND_F32)), CUDA_DEVICE));
        nd_tensor *taken = nd_take(x, index, 0);
        // It may be refused at once, or when the device is next waited for; never later.
        nd_status status = taken ? nd_synchronize(CUDA_DEVICE) : nd_error_get_status();
        assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
        assert_true(!taken || strstr(nd_error_get_message(), "an index was out of range"));
        nd_release(taken);
        nd_error_clear();
        // The device goes on.
        assert_ok(nd_synchronize(CUDA_DEVICE));
        assert_true(nd_get_item(nd_tmp(nd_sum(x, 0, NULL, false))) == 15);
    }
}

/// Gradients of a small network, of both devices, and a step of an optimizer.
static void test_training_step(void **state) {
    (void)state;
    nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(32, 20), ND_F32);
    nd_tensor *labels = nd_randint(nd_key_new(2), 0, 10, ND_SHAPE(32), ND_I64);
    nd_module *modules[2];
    for (int which = 0; which < 2; which++) {
        modules[which] =
            ND_SEQUENTIAL(nd_linear_module(nd_key_new(3), 20, 16, true), nd_relu_module(),
                          nd_linear_module(nd_key_new(4), 16, 10, true));
        assert_handle(modules[which]);
    }
    assert_ok(nd_module_to(modules[1], CUDA_DEVICE));
    for (int which = 0; which < 2; which++) {
        nd_device device = which ? CUDA_DEVICE : (nd_device){ND_CPU, 0};
        nd_optimizer *optimizer = sgd_of(modules[which], 0.1, 0.9, 0.0001);
        assert_handle(optimizer);
        for (int step = 0; step < 5; step++)
            ND_SCOPE {
                const nd_tensor *y =
                    nd_tmp(nd_module_forward(modules[which], nd_tmp(nd_to(x, device))));
                const nd_tensor *loss = nd_tmp(nd_cross_entropy(y, nd_tmp(nd_to(labels, device))));
                assert_handle(loss);
                assert_ok(nd_optimizer_zero_grad(optimizer));
                assert_ok(nd_backward(loss, NULL));
                assert_ok(nd_optimizer_step(optimizer));
            }
        nd_release(optimizer);
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(modules[0]); i++) {
        const char *name;
        const nd_tensor *cpu = nd_module_get_parameter_at(modules[0], i, &name);
        assert_same(name, cpu, nd_module_get_parameter_at(modules[1], i, NULL));
    }
    nd_release(modules[0]);
    nd_release(modules[1]);
    nd_release(x);
    nd_release(labels);
}

/// Long lines that many threads add to: on a GPU in the order in which they come, unless asked not
/// to.
static void test_deterministic_additions_have_the_same_bits(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(70000), ND_F32);
    nd_auto nd_tensor *index = nd_randint(nd_key_new(2), 0, 5, ND_SHAPE(70000), ND_I64);
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(5), ND_F32);
    nd_auto nd_tensor *source = nd_to(x, CUDA_DEVICE);
    nd_auto nd_tensor *bins = nd_to(index, CUDA_DEVICE);
    nd_auto nd_tensor *from = nd_to(zeros, CUDA_DEVICE);
    nd_auto nd_tensor *on_cpu = nd_scatter_add(zeros, index, x, 0);
    nd_set_deterministic(true);
    for (int run = 0; run < 5; run++) {
        nd_auto nd_tensor *sums = nd_scatter_add(from, bins, source, 0);
        float expected[5], found[5];
        assert_ok(nd_copy_to_host(on_cpu, expected, sizeof expected));
        assert_ok(nd_copy_to_host(sums, found, sizeof found));
        assert_memory_equal(found, expected, sizeof found); // the CPU adds in the same order
    }
    nd_set_deterministic(false);
}

int main(void) {
    int skipped;
    if (!gpu_present(&skipped))
        return skipped;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_elementwise),
        ND_TEST(test_every_elementwise_row),
        ND_TEST(test_reductions),
        ND_TEST(test_products),
        ND_TEST(test_moves),
        ND_TEST(test_in_place),
        ND_TEST(test_creation),
        ND_TEST(test_item_and_transfer),
        ND_TEST(test_index_out_of_range_is_reported_when_waiting),
        ND_TEST(test_training_step),
        ND_TEST(test_deterministic_additions_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
