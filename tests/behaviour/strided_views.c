// Every operation on random views beside the same on compact copies of them: values, gradients, and
// what in-place operations leave alone.
//
// A view here has any strides that the library can make: odd ones on axes of size 1, 0 on expanded
// axes, elements shared, steps, axes in any order, no axes, no elements. The elementwise operations
// are those of kernels/ops.inc; calls_listed_test asks for a case of every other one of the
// headers. ND_VIEW_ROUNDS=n runs n rounds.
#include "tests/behaviour/view_operands.h"
#include "tests/elementwise.h"

// -------------------------------------------------------------------------------------- operations

#define LISTED(...) ((const nd_tensor *[]){__VA_ARGS__})
#define GIVEN_AXES given.naxes, given.axes, given.keepdims

/// Of the elements along the axis, if there are two.
static nd_tensor *two_greatest(const nd_tensor *x) {
    nd_tensor *values = NULL;
    return nd_topk(x, 2, given.axis, true, &values, NULL) == ND_OK ? values : NULL;
}

static nd_tensor *distinct(const nd_tensor *x) {
    nd_tensor *values = NULL;
    return nd_unique(x, &values, NULL, NULL, NULL) == ND_OK ? values : NULL;
}

/// The first of two results, the other is released.
static nd_tensor *first_of(nd_status status, nd_tensor **results) {
    if (status != ND_OK)
        return NULL;
    nd_release(results[1]);
    return results[0];
}

static nd_tensor *grid_of(const nd_tensor *x) {
    nd_tensor *results[2];
    return first_of(nd_meshgrid(2, LISTED(x, x), ND_INDEXING_XY, results), results);
}

static nd_tensor *broadcast_of(const nd_tensor *x, const nd_tensor *y) {
    nd_tensor *results[2];
    return first_of(nd_broadcast_arrays(2, LISTED(x, y), results), results);
}

/// Of bytes, the last axis first in memory; `doubled`: each column twice.
static nd_tensor *bytes_of(const nd_tensor *weight, nd_dtype dtype, bool doubled) {
    nd_auto nd_tensor *bytes = nd_cast(weight, dtype);
    nd_auto nd_tensor *even = doubled ? nd_repeat(bytes, 2, 1) : nd_retain(bytes);
    nd_auto nd_tensor *turned = nd_transpose(even, 0, 1);
    nd_auto nd_tensor *laid = nd_clone(turned);
    return nd_transpose(laid, 0, 1);
}

/// The weight itself holds its scales, in its first column.
static nd_tensor *quantized(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *values = bytes_of(weight, ND_I8, false);
    nd_auto nd_tensor *scales = nd_slice(weight, 0, 1, 1, 1);
    return x ? nd_quantized_linear(x, values, scales, NULL, NULL)
             : nd_dequantize(values, scales, NULL, ND_F32);
}

/// From x to itself, by a module on x's device and of x's dtype where that is one of floats. Three
/// products and the weights of one: a sixteenth, so that their roundings stay within the bounds for one.
static nd_tensor *attended(const nd_tensor *x) {
    nd_auto nd_module *module =
        nd_attention_module(nd_key_new(5), nd_get_size(x, -1), 1, given.keepdims, NULL);
    if (!module || nd_module_to(module, nd_get_device(x)) != ND_OK)
        return NULL;
    if (nd_module_cast(module, nd_get_dtype(x)) != ND_OK)
        nd_error_clear();
    nd_auto nd_tensor *y = nd_attention_module_run(module, x, x, x, NULL);
    return y ? nd_mul_scalar(y, 0.0625) : NULL;
}

static nd_tensor *integer_product(const nd_tensor *left, const nd_tensor *right) {
    nd_auto nd_tensor *a = bytes_of(left, ND_U8, false);
    nd_auto nd_tensor *b = nd_cast(right, ND_I8);
    nd_auto nd_tensor *zeros = nd_slice(a, 0, 1, 1, -1);
    return nd_matmul_integer(a, b, zeros, NULL);
}

static nd_tensor *int4_of(const nd_tensor *weight, bool packed) {
    nd_auto nd_tensor *values = bytes_of(weight, ND_U8, true);
    return packed ? nd_unpack_int4(values) : nd_pack_int4(values);
}

/// Three neighbours in a row each, with their squares.
static nd_tensor *cross_of(const nd_tensor *x) {
    nd_auto nd_tensor *threes = nd_sliding_window(x, 3, 1, 1);
    nd_auto nd_tensor *squares = nd_square(threes);
    return nd_cross(threes, squares, -1);
}

/// The third power of x's first rows and columns.
static nd_tensor *power_of(const nd_tensor *x) {
    int64_t rows = nd_get_shape(x)[0], columns = nd_get_shape(x)[1];
    int64_t side = rows < columns ? rows : columns;
    nd_auto nd_tensor *upper = nd_slice(x, 0, side, 1, 0);
    nd_auto nd_tensor *square = nd_slice(upper, 0, side, 1, 1);
    return nd_matrix_power(square, 3);
}

// clang-format off
#define OPERATIONS(CASE)                                                                     \
    CASE(add_promoted, nd_add(in->other, in->a))                                             \
    CASE(where, nd_where(in->condition, in->a, in->b))                                       \
    CASE(where_of_small, nd_where(in->mask, in->b, in->b))                                   \
    CASE(sum, nd_sum(in->a, GIVEN_AXES))                                                     \
    CASE(mean, nd_mean(in->a, GIVEN_AXES))                                                   \
    CASE(max, nd_max(in->a, GIVEN_AXES))                                                     \
    CASE(min, nd_min(in->a, GIVEN_AXES))                                                     \
    CASE(var, nd_var(in->a, given.naxes, given.axes, 0, given.keepdims))                     \
    CASE(std, nd_std(in->a, given.naxes, given.axes, 1, given.keepdims))                     \
    CASE(prod, nd_prod(in->a, GIVEN_AXES))                                                   \
    CASE(any, nd_any(in->a, GIVEN_AXES))                                                     \
    CASE(all, nd_all(in->a, GIVEN_AXES))                                                     \
    CASE(count_nonzero, nd_count_nonzero(in->a, GIVEN_AXES))                                 \
    CASE(norm, nd_norm(in->a, 2, GIVEN_AXES))                                                \
    CASE(norm_three, nd_norm(in->a, 3, GIVEN_AXES))                                          \
    CASE(logsumexp, nd_logsumexp(in->a, GIVEN_AXES))                                         \
    CASE(cumsum, nd_cumsum(in->a, given.axis))                                               \
    CASE(cumprod, nd_cumprod(in->a, given.axis))                                             \
    CASE(cummax, nd_cummax(in->a, given.axis))                                               \
    CASE(encode_png, nd_encode_png(in->a, NULL))                                             \
    CASE(encode_jpeg, nd_encode_jpeg(in->a, NULL))                                           \
    CASE(cummin, nd_cummin(in->a, given.axis))                                               \
    CASE(cross_entropy_with, nd_cross_entropy_with(in->logits, in->targets, NULL, NULL))     \
    CASE(argmax, nd_argmax(in->a, given.axis, given.keepdims))                               \
    CASE(argmin, nd_argmin(in->a, given.axis, given.keepdims))                               \
    CASE(sum_to, nd_sum_to(in->a, given.reduced_ndim, given.reduced))                        \
    CASE(matmul, nd_matmul(in->left, in->right))                                             \
    CASE(linear, nd_linear(in->x, in->weight, in->bias))                                     \
    CASE(linear_plain, nd_linear(in->x, in->weight, NULL))                                   \
    CASE(linear_activation,                                                                  \
         nd_linear_activation(in->x, in->weight, in->bias, ND_ACTIVATION_TANH))              \
    CASE(quantized_linear, quantized(in->x, in->weight))                                     \
    CASE(matmul_integer, integer_product(in->left, in->right))                               \
    CASE(dequantize, quantized(NULL, in->weight))                                            \
    CASE(pack_int4, int4_of(in->weight, false))                                              \
    CASE(unpack_int4, int4_of(in->weight, true))                                             \
    CASE(solve, nd_solve(in->weight, in->weight))                                            \
    CASE(solve_triangular, nd_solve_triangular(in->weight, in->weight, true, true))          \
    CASE(inv, nd_inv(in->weight))                                                            \
    CASE(lstsq, nd_lstsq(in->weight, in->weight, -1))                                        \
    CASE(pinv, nd_pinv(in->weight, -1))                                                      \
    CASE(cholesky, nd_cholesky(in->weight))                                                  \
    CASE(svdvals, nd_svdvals(in->weight))                                                    \
    CASE(eigvalsh, nd_eigvalsh(in->weight))                                                  \
    CASE(det, nd_det(in->weight))                                                            \
    CASE(matrix_rank, nd_matrix_rank(in->weight, 0.1))                                       \
    CASE(matrix_norm, nd_matrix_norm(in->left, ND_MATRIX_NORM_ROWS, false))                  \
    CASE(rfft, nd_rfft(in->a, 5, given.axis, ND_FFT_NORM_BACKWARD))                          \
    CASE(ihfft, nd_ihfft(in->weight, 0, 0, ND_FFT_NORM_ORTHO))                               \
    CASE(rfftn, nd_rfftn(in->weight, 0, NULL, NULL, ND_FFT_NORM_FORWARD))                    \
    CASE(fft, nd_fft(in->pairs, 0, 0, ND_FFT_NORM_BACKWARD))                                 \
    CASE(ifft, nd_ifft(in->pairs, 6, -1, ND_FFT_NORM_BACKWARD))                              \
    CASE(irfft, nd_irfft(in->pairs, 6, -1, ND_FFT_NORM_BACKWARD))                            \
    CASE(hfft, nd_hfft(in->pairs, 5, 0, ND_FFT_NORM_BACKWARD))                               \
    CASE(fftn, nd_fftn(in->pairs, 0, NULL, NULL, ND_FFT_NORM_ORTHO))                         \
    CASE(ifftn, nd_ifftn(in->pairs, 0, NULL, NULL, ND_FFT_NORM_ORTHO))                       \
    CASE(irfftn, nd_irfftn(in->pairs, 2, given.lengths, given.turned_axes, ND_FFT_NORM_ORTHO))\
    CASE(fftshift, nd_fftshift(in->a, given.naxes, given.axes))                              \
    CASE(ifftshift, nd_ifftshift(in->a, given.naxes, given.axes))                            \
    CASE(softmax, nd_softmax(in->a, given.axis))                                             \
    CASE(log_softmax, nd_log_softmax(in->a, given.axis))                                     \
    CASE(masked_softmax, nd_masked_softmax(in->a, in->condition, given.axis))                \
    CASE(cross_entropy, nd_cross_entropy(in->logits, in->targets))                           \
    CASE(mse_loss, nd_mse_loss(in->a, in->b))                                                \
    CASE(conv2d, nd_conv2d(in->image, in->filter, in->tint, &given.windows))                 \
    CASE(conv2d_plain, nd_conv2d(in->image, in->filter, NULL, &given.windows))               \
    CASE(max_pool2d, nd_max_pool2d(in->image, &given.pooling))                               \
    CASE(conv1d, nd_conv1d(in->signal, in->band, in->tint, &given.signal))                   \
    CASE(conv3d, nd_conv3d(in->volume, in->block, in->tint, NULL))                           \
    CASE(conv_transpose1d, nd_conv_transpose1d(in->signal, in->turned_band, NULL, NULL))     \
    CASE(conv_transpose2d, nd_conv_transpose2d(in->image, in->turned, in->tint, &given.turned))\
    CASE(conv_transpose3d, nd_conv_transpose3d(in->volume, in->turned_block, NULL, NULL))    \
    CASE(max_pool1d, nd_max_pool1d(in->signal, &given.peaks))                                \
    CASE(max_pool3d, nd_max_pool3d(in->volume, &given.volumes))                              \
    CASE(avg_pool1d, nd_avg_pool1d(in->signal, &given.means))                                \
    CASE(avg_pool2d, nd_avg_pool2d(in->image, &given.averages))                              \
    CASE(avg_pool3d, nd_avg_pool3d(in->volume, &given.volume_means))                         \
    CASE(adaptive_avg_pool1d, nd_adaptive_avg_pool1d(in->signal, given.side))                \
    CASE(adaptive_avg_pool2d, nd_adaptive_avg_pool2d(in->image, given.side, 2))              \
    CASE(adaptive_avg_pool3d, nd_adaptive_avg_pool3d(in->volume, 1, -1, given.side))         \
    CASE(adaptive_max_pool1d, nd_adaptive_max_pool1d(in->signal, given.side))                \
    CASE(adaptive_max_pool2d, nd_adaptive_max_pool2d(in->image, 2, given.side))              \
    CASE(adaptive_max_pool3d, nd_adaptive_max_pool3d(in->volume, given.side, 1, -1))         \
    CASE(global_avg_pool, nd_global_avg_pool(in->image))                                     \
    CASE(global_max_pool, nd_global_max_pool(in->volume))                                    \
    CASE(interpolate, nd_interpolate(in->image, &given.sizes))                               \
    CASE(pixel_shuffle, nd_pixel_shuffle(in->shuffled, 2))                                   \
    CASE(pixel_unshuffle, nd_pixel_unshuffle(in->pixels, 2))                                 \
    CASE(unfold, nd_unfold(in->image, &given.columns))                                       \
    CASE(fold, nd_fold(in->matrix, 4, 5, &given.columns_of_four))                            \
    CASE(layer_norm, nd_layer_norm(in->a, in->a, in->a, 0.1, nd_get_ndim(in->a)))            \
    CASE(rms_norm, nd_rms_norm(in->a, NULL, 0.1, 1))                                         \
    CASE(group_norm, nd_group_norm(in->image, NULL, NULL, given.windows.groups, 0.1))        \
    CASE(batch_norm, nd_batch_norm(in->image, NULL, NULL, NULL, NULL, NULL))                 \
    CASE(instance_norm, nd_instance_norm(in->image, NULL, NULL, NULL, NULL, NULL))           \
    CASE(embedding, nd_embedding(in->a, in->rows, ND_NO_PADDING))                            \
    CASE(dropout, nd_dropout(in->a, nd_key_new(3), 0.5, true))                               \
    CASE(l1_loss, nd_l1_loss(in->a, in->b, ND_REDUCTION_MEAN))                               \
    CASE(smooth_l1_loss, nd_smooth_l1_loss(in->a, in->b, 1, ND_REDUCTION_NONE))              \
    CASE(huber_loss, nd_huber_loss(in->b, in->a, 1, ND_REDUCTION_NONE))                      \
    CASE(kl_div, nd_kl_div(in->a, in->b, true, ND_REDUCTION_NONE))                           \
    CASE(bce, nd_bce_with_logits(in->a, in->b, NULL, in->b, ND_REDUCTION_NONE))              \
    CASE(nll_loss, nd_nll_loss(in->logits, in->targets, NULL, 0, ND_REDUCTION_NONE))         \
    CASE(cosine_similarity, nd_cosine_similarity(in->a, in->b, 1, given.axis))               \
    CASE(cosine_embedding_loss, nd_cosine_embedding_loss(in->logits, in->logits, in->targets, \
                                                          0, ND_REDUCTION_SUM))\
    CASE(attention, nd_attention(in->a, in->a, in->a, NULL, NULL))               \
    CASE(attention_module, attended(in->x))                                                  \
    CASE(pad, nd_pad(in->a, 1, ((const int64_t[]){2, 1}), 1, ND_PADDING_CONSTANT))           \
    CASE(pad_reflect, nd_pad(in->a, 1, ((const int64_t[]){1, 1}), 0, ND_PADDING_REFLECT))    \
    CASE(flip, nd_flip(in->a, given.naxes, given.axes))                                      \
    CASE(roll, nd_roll(in->a, 2, given.axis))                                                \
    CASE(tril, nd_tril(in->a, 0))                                                            \
    CASE(triu, nd_triu(in->a, 1))                                                            \
    CASE(repeat, nd_repeat(in->a, 2, given.axis))                                            \
    CASE(tile, nd_tile(in->a, 2, ((const int64_t[]){2, 3})))                                 \
    CASE(moveaxis, nd_moveaxis(in->a, given.axis, given.second_axis))                        \
    CASE(sort, nd_sort(in->a, given.axis, given.keepdims))                                   \
    CASE(argsort, nd_argsort(in->a, given.axis, given.keepdims))                             \
    CASE(topk, two_greatest(in->a))                                                          \
    CASE(searchsorted, nd_searchsorted(in->a, in->a, given.keepdims))                        \
    CASE(nonzero, nd_nonzero(in->a))                                                         \
    CASE(unique, distinct(in->a))                                                            \
    CASE(quantile, nd_quantile(in->a, 2, ((const double[]){0.3, 0.8}), ND_QUANTILE_LINEAR, GIVEN_AXES))\
    CASE(median, nd_median(in->a, GIVEN_AXES))                                               \
    CASE(histogram, nd_histogram(in->a, in->bias, NULL))                                     \
    CASE(bincount, nd_bincount(in->a, NULL, 3))                                              \
    CASE(diagonal, nd_diagonal(in->a, 1, given.axis, given.second_axis))                     \
    CASE(trace, nd_trace(in->a, 0))                                                          \
    CASE(meshgrid, grid_of(in->bias))                                                        \
    CASE(broadcast_arrays, broadcast_of(in->b, in->a))                                       \
    CASE(outer, nd_outer(in->bias, in->bias))                                                \
    CASE(tensordot, nd_tensordot(in->a, in->a, 1, &given.axis, &given.axis))                 \
    CASE(kron, nd_kron(in->bias, in->weight))                                                \
    CASE(einsum, nd_einsum("...i,ji,j->...", 3, LISTED(in->x, in->weight, in->bias)))        \
    CASE(index, nd_index(in->a, 1, LISTED(in->mask)))                                        \
    CASE(index_twice, nd_index(in->weight, 2, LISTED(in->few, in->few)))                     \
    CASE(index_put, nd_index_put(in->a, 1, LISTED(in->mask), in->number, false))             \
    CASE(index_add, nd_index_add(in->weight, in->few, in->weight, 0))                        \
    CASE(take, nd_take(in->a, in->rows, given.axis))                                         \
    CASE(gather, nd_gather(in->a, in->index, given.axis))                                    \
    CASE(scatter_add, nd_scatter_add(in->a, in->index, in->source, given.axis))              \
    CASE(scatter_prod, nd_scatter(in->a, in->index, in->source, given.axis, ND_SCATTER_PROD, given.keepdims)) \
    CASE(scatter_amin, nd_scatter(in->a, in->index, in->source, given.axis, ND_SCATTER_AMIN, given.keepdims)) \
    CASE(scatter_mean, nd_scatter(in->a, in->index, in->source, given.axis, ND_SCATTER_MEAN, given.keepdims)) \
    CASE(one_hot, nd_one_hot(in->classes, 6, nd_get_dtype(in->a)))                           \
    CASE(masked_select, nd_masked_select(in->a, in->mask))                                   \
    CASE(masked_fill, nd_masked_fill(in->a, in->condition, given.number))                    \
    CASE(reshape, nd_reshape(in->a, given.factored_ndim, given.factored))                    \
    CASE(permute, nd_permute(in->a, nd_get_ndim(in->a), given.order))                        \
    CASE(transpose, nd_transpose(in->a, given.axis, given.second_axis))                      \
    CASE(expand, nd_expand(in->a, given.expanded_ndim, given.expanded))                      \
    CASE(slice, nd_slice(in->a, given.start, given.stop, given.step, given.axis))            \
    CASE(slice_backwards, nd_slice(in->a, given.stop, given.start, -given.step, given.axis)) \
    CASE(sliding_window, nd_sliding_window(in->a, given.start, given.step, given.axis))      \
    CASE(diff, nd_diff(in->a, 1, given.axis))                                                \
    CASE(vecdot, nd_vecdot(in->a, in->a, -1))                                                \
    CASE(cross, cross_of(in->weight))                                                        \
    CASE(matrix_power, power_of(in->weight))                                                 \
    CASE(select, nd_select(in->a, given.at, given.axis))                                     \
    CASE(squeeze, nd_squeeze(in->a, given.axis))                                             \
    CASE(unsqueeze, nd_unsqueeze(in->a, given.axis))                                         \
    CASE(flatten, nd_flatten(in->a, given.axis))                                             \
    CASE(detach, nd_detach(in->a))                                                           \
    CASE(contiguous, nd_contiguous(in->a))                                                   \
    CASE(clone, nd_clone(in->a))                                                             \
    CASE(cast_bool, nd_cast(in->a, ND_BOOL))                                                 \
    CASE(cast_i32, nd_cast(in->a, ND_I32))                                                   \
    CASE(cast_f32, nd_cast(in->a, ND_F32))                                                   \
    CASE(cast_f64, nd_cast(in->a, ND_F64))                                                   \
    CASE(to, nd_to(in->a, ((nd_device){ND_CPU, 0})))                                         \
    CASE(concat, nd_concat(3, LISTED(in->a, in->piece, in->a), given.axis))                  \
    CASE(stack, nd_stack(2, LISTED(in->a, in->a), given.axis))                               \
    CASE(zeros_like, nd_zeros_like(in->a))                                                   \
    CASE(full_like, nd_full_like(in->a, 1))                                                  \
    CASE(ones_like, nd_ones_like(in->a))

#define WRITES(CASE)                                                                         \
    CASE(add_, nd_add_(x, in->b))                                                            \
    CASE(sub_, nd_sub_(x, in->b))                                                            \
    CASE(mul_, nd_mul_(x, in->b))                                                            \
    CASE(div_, nd_div_(x, in->b))                                                            \
    CASE(add_scaled_, nd_add_scaled_(x, in->b, given.number))                                \
    CASE(mul_scalar_, nd_mul_scalar_(x, given.number))                                       \
    CASE(fill_, nd_fill_(x, nd_get_dtype(x) == ND_BOOL ? 1 : given.number))                  \
    CASE(copy_, nd_copy_(x, in->other))                                                      \
    CASE(masked_fill_, nd_masked_fill_(x, in->condition,                                     \
                                       nd_get_dtype(x) == ND_BOOL ? 0 : given.number))
// clang-format on

#define DEFINE_OPERATION(name, expression)                   \
    static nd_tensor *operation_##name(const operands *in) { \
        return expression;                                   \
    }
OPERATIONS(DEFINE_OPERATION)
#define DEFINE_WRITE(name, expression)                                \
    static nd_status write_##name(nd_tensor *x, const operands *in) { \
        (void)in;                                                     \
        return expression;                                            \
    }
WRITES(DEFINE_WRITE)

#define OPERATION_ROW(name, expression) {#name, operation_##name},
static const struct {
    const char *name;
    nd_tensor *(*run)(const operands *in);
} operations[] = {OPERATIONS(OPERATION_ROW)};
#define WRITE_ROW(name, expression) {#name, write_##name},
static const struct {
    const char *name;
    nd_status (*run)(nd_tensor *x, const operands *in);
} writes[] = {WRITES(WRITE_ROW)};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

// An operation is a row of `operations` or, behind those, an elementwise one.
enum { ALL_OPERATIONS = COUNT_OF(operations) + ELEMENTWISE_ROWS };

static nd_tensor *result_of(size_t k, const operands *in) {
    if (k < COUNT_OF(operations))
        return operations[k].run(in);
    const elementwise_row *row = &elementwise_rows[k - COUNT_OF(operations)];
    nd_number p = ND_NUMBER(given.number), q = ND_NUMBER(given.number + 1);
    if (row->types == TAKES_BOOL)
        return row->run(in->mask, in->condition, p, q);
    return given.keepdims ? row->run(in->a, in->b, p, q) : row->run(in->b, in->a, p, q);
}

static const char *name_of(size_t k) {
    return k < COUNT_OF(operations) ? operations[k].name
                                    : elementwise_rows[k - COUNT_OF(operations)].name;
}

// ------------------------------------------------------------------------------------------- tests

/// Both sides of an operation, held against each other; NULL when both were refused alike.
static void assert_alike(const char *name, int64_t round, nd_tensor *got, nd_status got_status,
                         nd_tensor *expected, nd_status expected_status) {
    if (!got != !expected || (!got && got_status != expected_status))
        fail_msg("%s, round %lld: %s on the views and %s on the copies", name, (long long)round,
                 nd_status_get_name(got ? ND_OK : got_status),
                 nd_status_get_name(expected ? ND_OK : expected_status));
    if (got)
        views_assert_same(name, round, got, expected);
}

/// The result on the CPU; NULL and the status where it is refused, by a device perhaps only later.
static nd_tensor *run_operation(size_t k, const operands *in, nd_status *ret_status) {
    nd_error_clear();
    nd_auto nd_tensor *y = result_of(k, in);
    *ret_status = y ? nd_synchronize(nd_get_device(y)) : nd_error_get_status();
    return *ret_status == ND_OK ? nd_to(y, (nd_device){ND_CPU, 0}) : NULL;
}

static void check_operations(int64_t round, const operands *views, const operands *copies) {
    for (size_t k = 0; k < ALL_OPERATIONS; k++) {
        nd_status status;
        nd_auto nd_tensor *got = run_operation(k, views, &status);
        nd_error_clear();
        nd_auto nd_tensor *expected = result_of(k, copies);
        assert_alike(name_of(k), round, got, status, expected, nd_error_get_status());
    }
    nd_error_clear();
}

static void test_F41_every_operation_on_random_views(void **state) {
    (void)state;
    for (int64_t round = 0; round < views_rounds(300); round++) {
        views_begin(round);
        operands views = random_operands((nd_dtype)views_below(ND_DTYPE_COUNT));
        operands copies = compact_operands(&views);
        check_operations(round, &views, &copies);
        release_operands(&views);
        release_operands(&copies);
    }
}

// The fake runtime's GPU is one thread that looks at everything.
#ifdef ON_FAKE_RUNTIME
enum { DEVICE_ROUNDS = 40 };
#else
enum { DEVICE_ROUNDS = 150 };
#endif

static void test_F41_every_operation_on_random_views_of_a_device(void **state) {
    (void)state;
    if (nd_get_device_count(ND_CUDA) == 0)
        return;
    for (int64_t round = 0; round < views_rounds(DEVICE_ROUNDS); round++) {
        views_begin(round);
        operands views = random_operands((nd_dtype)views_below(ND_DTYPE_COUNT));
        operands copies = compact_operands(&views), there = operands_on_device(&views);
        check_operations(round, &there, &copies);
        release_operands(&views);
        release_operands(&copies);
        release_operands(&there);
    }
}

/// Leaves of the same windows that want gradients, for the floats; consumes `in`.
static operands as_leaves(operands in) {
    for (int i = 0; i < OPERANDS; i++)
        if (is_float(nd_get_dtype(slots(&in)[i])))
            assert_ok(nd_set_requires_grad(slots(&in)[i], true));
    return in;
}

/// Gradients of an operation's result for all operands, weighted with `grad`.
static nd_status gradients(const nd_tensor *y, const operands *in, const nd_tensor *grad,
                           operands *ret_grads) {
    const nd_tensor *inputs[OPERANDS];
    int count = 0, at[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        slots(ret_grads)[i] = NULL;
        const nd_tensor *x = ((nd_tensor *const *)in)[i];
        if (nd_requires_grad(x)) {
            at[count] = i;
            inputs[count++] = x;
        }
    }
    nd_tensor *found[OPERANDS] = {NULL};
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.allow_unused = true;
    options.grad = grad;
    nd_status status = nd_grad(y, (size_t)count, inputs, &options, found);
    for (int k = 0; k < count && status == ND_OK; k++)
        slots(ret_grads)[at[k]] = found[k];
    return status;
}

static void check_gradients(size_t k, int64_t round, const operands *views,
                            const operands *copies) {
    nd_error_clear();
    nd_auto nd_tensor *y = result_of(k, views);
    nd_auto nd_tensor *expected = result_of(k, copies);
    nd_error_clear();
    if (!y || !nd_requires_grad(y))
        return;
    nd_auto nd_tensor *grad = view_like(y, nd_get_dtype(y));
    nd_auto nd_tensor *grad_copy = views_compact(grad);
    operands got, wanted;
    nd_status status = gradients(y, views, grad, &got);
    assert_int_equal(gradients(expected, copies, grad_copy, &wanted), status);
    for (int i = 0; i < OPERANDS && status == ND_OK; i++)
        assert_alike(name_of(k), round, slots(&got)[i], ND_OK, slots(&wanted)[i], ND_OK);
    release_operands(&got);
    release_operands(&wanted);
    nd_error_clear();
}

static void test_F41_every_gradient_on_random_views(void **state) {
    (void)state;
    static const nd_dtype floats[] = {ND_F32, ND_F32, ND_F32, ND_F64, ND_F16, ND_BF16};
    for (int64_t round = 0; round < views_rounds(60); round++) {
        views_begin(round);
        operands views = as_leaves(random_operands(floats[views_below(6)]));
        operands copies = as_leaves(compact_operands(&views));
        for (size_t k = 0; k < ALL_OPERATIONS; k++)
            check_gradients(k, round, &views, &copies);
        release_operands(&views);
        release_operands(&copies);
    }
}

/// Everything of the storage but what x shows is still `before`.
static void assert_rest_untouched(const char *name, int64_t round, const nd_tensor *x,
                                  const nd_tensor *storage, const nd_tensor *before) {
    nd_auto nd_tensor *shown = nd_zeros_like(storage);
    int64_t first = ((const char *)nd_get_data(x) - (const char *)nd_get_data(storage)) /
                    (int64_t)nd_dtype_get_size(nd_get_dtype(x));
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        set_element(nd_get_data(shown), nd_get_dtype(x), first + views_offset(x, i), 1);
    for (int64_t i = 0; i < nd_get_numel(storage); i++)
        if (views_at(shown, i) == 0 &&
            !views_close(nd_get_dtype(x), views_at(storage, i), views_at(before, i)))
            fail_msg("%s, round %lld: element %lld of the storage was written", name,
                     (long long)round, (long long)i);
}

static void test_F41_every_write_through_a_random_view(void **state) {
    (void)state;
    for (int64_t round = 0; round < views_rounds(200); round++) {
        views_begin(round);
        nd_dtype dtype = (nd_dtype)views_below(ND_DTYPE_COUNT);
        operands views = random_operands(dtype), copies = compact_operands(&views);
        for (size_t k = 0; k < COUNT_OF(writes); k++) {
            nd_auto nd_tensor *storage = NULL;
            nd_auto nd_tensor *x = views_random(VIEWS_DISTINCT, nd_get_ndim(views.a),
                                                nd_get_shape(views.a), dtype, &storage);
            nd_auto nd_tensor *copy = views_compact(x);
            nd_auto nd_tensor *before = views_compact(storage);
            nd_status status = writes[k].run(x, &views);
            assert_int_equal(writes[k].run(copy, &copies), status);
            nd_error_clear();
            views_assert_same(writes[k].name, round, x, copy);
            assert_rest_untouched(writes[k].name, round, x, storage, before);
        }
        release_operands(&views);
        release_operands(&copies);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F41_every_operation_on_random_views),
        ND_TEST(test_F41_every_operation_on_random_views_of_a_device),
        ND_TEST(test_F41_every_gradient_on_random_views),
        ND_TEST(test_F41_every_write_through_a_random_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
