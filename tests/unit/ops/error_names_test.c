// The name at the beginning of an error is that of the function which the program called, whichever
// of the operations inside failed: memory ends at each allocation of a call in turn.
#include "lib/base/alloc.h"
#include "tests/unit/ops/values.h"

#define LISTED(...) ((const nd_tensor *[]){__VA_ARGS__})

#define N 16

/// Operands that need a cast, a copy or a step of another kind before they are computed with; most
/// are too large for a tensor's own block, so that their results have data of their own.
typedef struct operands {
    nd_tensor *matrix;   ///< [N, N], f32, transposed
    nd_tensor *whole;    ///< [N, N], i32
    nd_tensor *half;     ///< [N, N], f16
    nd_tensor *line;     ///< [N], f32
    nd_tensor *places;   ///< [N], i32, some from the end
    nd_tensor *labels;   ///< [N], i32, 0 ... 2
    nd_tensor *yes;      ///< [N, N], bool
    nd_tensor *three;    ///< [N, 3], f32
    nd_tensor *image;    ///< [1, N, 4, 4], f32
    nd_tensor *bytes;    ///< [N, N], u8
    nd_tensor *definite; ///< [N, N], f64, the identity
} operands;

static void release_operands(operands *o) {
    nd_release(o->matrix);
    nd_release(o->whole);
    nd_release(o->half);
    nd_release(o->line);
    nd_release(o->places);
    nd_release(o->labels);
    nd_release(o->yes);
    nd_release(o->three);
    nd_release(o->image);
    nd_release(o->bytes);
    nd_release(o->definite);
}

static operands make_operands(void) {
    int32_t places[N], labels[N];
    for (int i = 0; i < N; i++) {
        places[i] = i % 3 - 1;
        labels[i] = i % 3;
    }
    nd_auto nd_tensor *numbers = nd_arange(0, N * N, 1, ND_F32);
    nd_auto nd_tensor *rows = nd_reshape(numbers, ND_SHAPE(N, N));
    return (operands){
        .matrix = nd_transpose(rows, 0, 1),
        .whole = nd_ones(ND_SHAPE(N, N), ND_I32),
        .half = nd_ones(ND_SHAPE(N, N), ND_F16),
        .line = nd_ones(ND_SHAPE(N), ND_F32),
        .places = nd_from_data(places, ND_SHAPE(N), ND_I32),
        .labels = nd_from_data(labels, ND_SHAPE(N), ND_I32),
        .yes = nd_ones(ND_SHAPE(N, N), ND_BOOL),
        .three = nd_ones(ND_SHAPE(N, 3), ND_F32),
        .image = nd_ones(ND_SHAPE(1, N, 4, 4), ND_F32),
        .bytes = nd_ones(ND_SHAPE(N, N), ND_U8),
        .definite = nd_eye(N, ND_F64),
    };
}

/// The first of several results.
static nd_tensor *first_of(size_t count, nd_status status, nd_tensor **results) {
    for (size_t i = 1; i < count && status == ND_OK; i++)
        nd_release(results[i]);
    return status == ND_OK ? results[0] : NULL;
}

static nd_tensor *interpolated(const nd_tensor *x) {
    nd_interpolate_options options = ND_INTERPOLATE_OPTIONS_INIT;
    options.sizes[0] = 3;
    options.sizes[1] = 3;
    return nd_interpolate(x, &options);
}

static nd_tensor *unstacked(const nd_tensor *x) {
    nd_tensor *parts[N];
    return first_of(N, nd_unstack(x, 0, parts), parts);
}

static nd_tensor *grid(const nd_tensor *x) {
    nd_tensor *parts[2];
    return first_of(2, nd_meshgrid(2, LISTED(x, x), ND_INDEXING_XY, parts), parts);
}

static nd_tensor *broadcast(const nd_tensor *x, const nd_tensor *y) {
    nd_tensor *parts[2];
    return first_of(2, nd_broadcast_arrays(2, LISTED(x, y), parts), parts);
}

static nd_tensor *greatest(const nd_tensor *x) {
    nd_tensor *parts[2];
    return first_of(2, nd_topk(x, 2, 0, true, &parts[0], &parts[1]), parts);
}

static nd_tensor *distinct(const nd_tensor *x) {
    nd_tensor *parts[4];
    return first_of(4, nd_unique(x, &parts[0], &parts[1], &parts[2], &parts[3]), parts);
}

static nd_tensor *quantized(const nd_tensor *x) {
    nd_tensor *parts[3];
    return first_of(3, nd_quantize(x, 4, 2, ND_F16, &parts[0], &parts[1], &parts[2]), parts);
}

static nd_tensor *smoothed(const nd_tensor *logits, const nd_tensor *targets,
                           const nd_tensor *weight) {
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = 0.5;
    return nd_cross_entropy_with(logits, targets, weight, &options);
}

static const int one_axis[] = {0};
static const int64_t twice[] = {2, 2}, around[] = {1, 1};
static const double quarters[] = {0.25, 0.6};

#define CASES(CASE)                                                                        \
    CASE(outer, nd_outer(o->line, o->places))                                              \
    CASE(vecdot, nd_vecdot(o->matrix, o->whole, -1))                                       \
    CASE(cross, nd_cross(o->three, o->three, -1))                                          \
    CASE(tensordot, nd_tensordot(o->matrix, o->whole, 1, one_axis, one_axis))              \
    CASE(kron, nd_kron(o->matrix, o->whole))                                               \
    CASE(einsum, nd_einsum("ii, ij -> j", 2, LISTED(o->matrix, o->whole)))                 \
    CASE(diagonal, nd_diagonal(o->matrix, 1, 0, 1))                                        \
    CASE(trace, nd_trace(o->matrix, 0))                                                    \
    CASE(diff, nd_diff(o->matrix, 2, 0))                                                   \
    CASE(broadcast_arrays, broadcast(o->matrix, o->line))                                  \
    CASE(meshgrid, grid(o->line))                                                          \
    CASE(dropout, nd_dropout(o->matrix, nd_key_new(1), 0.5, true))                         \
    CASE(embedding, nd_embedding(o->matrix, o->places, ND_NO_PADDING))                     \
    CASE(fftfreq, nd_fftfreq(500, 1, ND_F32))                                              \
    CASE(rfftfreq, nd_rfftfreq(500, 1, ND_F32))                                            \
    CASE(fftshift, nd_fftshift(o->matrix, 0, NULL))                                        \
    CASE(ifftshift, nd_ifftshift(o->matrix, 0, NULL))                                      \
    CASE(histogram, nd_histogram(o->matrix, o->line, NULL))                                \
    CASE(bincount, nd_bincount(o->labels, NULL, 300))                                      \
    CASE(take, nd_take(o->matrix, o->places, 0))                                           \
    CASE(gather, nd_gather(o->line, o->places, 0))                                         \
    CASE(masked_select, nd_masked_select(o->matrix, o->yes))                               \
    CASE(nonzero, nd_nonzero(o->matrix))                                                   \
    CASE(one_hot, nd_one_hot(o->labels, 30, ND_F32))                                       \
    CASE(scatter_add, nd_scatter_add(o->line, o->places, o->line, 0))                      \
    CASE(index, nd_index(o->matrix, 2, LISTED(o->places, o->places)))                      \
    CASE(index_put, nd_index_put(o->matrix, 1, LISTED(o->places), o->line, false))         \
    CASE(index_put, nd_index_put(o->matrix, 1, LISTED(o->places), o->line, true))          \
    CASE(index_add, nd_index_add(o->matrix, o->places, o->matrix, 0))                      \
    CASE(scatter, nd_scatter(o->line, o->places, o->line, 0, ND_SCATTER_MEAN, false))      \
    CASE(interpolate, interpolated(o->image))                                              \
    CASE(pixel_shuffle, nd_pixel_shuffle(o->image, 2))                                     \
    CASE(pixel_unshuffle, nd_pixel_unshuffle(o->image, 2))                                 \
    CASE(l1_loss, nd_l1_loss(o->matrix, o->line, ND_REDUCTION_MEAN))                       \
    CASE(smooth_l1_loss, nd_smooth_l1_loss(o->matrix, o->line, 1, ND_REDUCTION_SUM))       \
    CASE(huber_loss, nd_huber_loss(o->matrix, o->line, 1, ND_REDUCTION_NONE))              \
    CASE(mse_loss, nd_mse_loss(o->matrix, o->line))                                        \
    CASE(kl_div, nd_kl_div(o->matrix, o->line, false, ND_REDUCTION_BATCH_MEAN))            \
    CASE(bce_with_logits,                                                                  \
         nd_bce_with_logits(o->matrix, o->matrix, o->line, o->line, ND_REDUCTION_MEAN))    \
    CASE(cosine_similarity, nd_cosine_similarity(o->matrix, o->line, 1e-6, -1))            \
    CASE(cosine_embedding_loss,                                                            \
         nd_cosine_embedding_loss(o->matrix, o->half, o->labels, 0, ND_REDUCTION_MEAN))    \
    CASE(cross_entropy_with, smoothed(o->matrix, o->labels, o->line))                      \
    CASE(pad, nd_pad(o->matrix, 1, around, 0, ND_PADDING_CONSTANT))                        \
    CASE(pad, nd_pad(o->matrix, 1, around, 0, ND_PADDING_REFLECT))                         \
    CASE(flip, nd_flip(o->matrix, 0, NULL))                                                \
    CASE(roll, nd_roll(o->matrix, 1, 0))                                                   \
    CASE(tril, nd_tril(o->matrix, 0))                                                      \
    CASE(triu, nd_triu(o->matrix, 0))                                                      \
    CASE(repeat, nd_repeat(o->matrix, 2, 0))                                               \
    CASE(tile, nd_tile(o->matrix, 2, twice))                                               \
    CASE(moveaxis, nd_moveaxis(o->matrix, 0, 1))                                           \
    CASE(unstack, unstacked(o->matrix))                                                    \
    CASE(stack, nd_stack(2, LISTED(o->matrix, o->matrix), 0))                              \
    CASE(layer_norm, nd_layer_norm(o->matrix, o->line, o->line, 1e-5, 1))                  \
    CASE(layer_norm, nd_layer_norm(o->half, o->line, o->line, 1e-5, 1))                    \
    CASE(group_norm, nd_group_norm(o->image, o->line, o->line, 2, 1e-5))                   \
    CASE(quantile, nd_quantile(o->matrix, 2, quarters, ND_QUANTILE_LINEAR, 0, NULL, true)) \
    CASE(median, nd_median(o->whole, 1, one_axis, false))                                  \
    CASE(pack_int4, nd_pack_int4(o->bytes))                                                \
    CASE(unpack_int4, nd_unpack_int4(o->bytes))                                            \
    CASE(quantize, quantized(o->matrix))                                                   \
    CASE(norm, nd_norm(o->matrix, INFINITY, 0, NULL, false))                               \
    CASE(norm, nd_norm(o->whole, 0, 0, NULL, false))                                       \
    CASE(sum_to, nd_sum_to(o->matrix, ND_SHAPE(N)))                                        \
    CASE(sort, nd_sort(o->matrix, 0, false))                                               \
    CASE(topk, greatest(o->matrix))                                                        \
    CASE(searchsorted, nd_searchsorted(o->line, o->whole, true))                           \
    CASE(unique, distinct(o->matrix))                                                      \
    CASE(attention, nd_attention(o->image, o->image, o->image, NULL, NULL))                \
    CASE(cholesky, nd_cholesky(o->definite))                                               \
    CASE(det, nd_det(o->definite))                                                         \
    CASE(inv, nd_inv(o->definite))                                                         \
    CASE(pinv, nd_pinv(o->matrix, -1))                                                     \
    CASE(solve, nd_solve(o->definite, o->definite))                                        \
    CASE(lstsq, nd_lstsq(o->matrix, o->three, -1))                                         \
    CASE(svdvals, nd_svdvals(o->matrix))                                                   \
    CASE(eigvalsh, nd_eigvalsh(o->matrix))                                                 \
    CASE(matrix_power, nd_matrix_power(o->whole, 5))                                       \
    CASE(matrix_rank, nd_matrix_rank(o->matrix, -1))                                       \
    CASE(matrix_norm, nd_matrix_norm(o->matrix, ND_MATRIX_NORM_NUCLEAR, false))            \
    CASE(matrix_norm, nd_matrix_norm(o->matrix, ND_MATRIX_NORM_COLUMNS, true))

static nd_tensor *run(size_t which, const operands *o) {
    size_t at = 0;
#define RUN(name, call) \
    if (at++ == which)  \
        return call;
    CASES(RUN)
    return NULL;
}

static int64_t allocations, fail_from;

static bool fails(size_t bytes) {
    (void)bytes;
    return ++allocations >= fail_from;
}

/// Whether the call succeeds when memory ends at its n-th allocation.
static bool succeeds(size_t which, const operands *o, int64_t n) {
    nd_error_clear();
    allocations = 0;
    fail_from = n;
    nd__alloc_should_fail = fails;
    nd_tensor *result = run(which, o);
    nd__alloc_should_fail = NULL;
    nd_release(result);
    return result != NULL;
}

static void test_an_error_names_the_function_that_was_called(void **state) {
    (void)state;
#define NAME(name, call) #name,
    static const char *const names[] = {CASES(NAME)};
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    __attribute__((cleanup(release_operands))) operands o = make_operands();
    for (size_t which = 0; which < COUNT_OF(names); which++) {
        int64_t n = 1;
        for (; n < 1000 && !succeeds(which, &o, n); n++) {
            const size_t length = strlen(names[which]);
            const char *message = nd_error_get_message();
            // What objects themselves are in belongs to no operation.
            if (strncmp(message, "new ", 4) != 0 &&
                (strncmp(message, names[which], length) != 0 || message[length] != ':'))
                fail_msg("%s without allocation %lld: %s", names[which], (long long)n, message);
        }
        assert_in_range(n, 2, 999);
        nd_error_clear();
    }
}

/// An operand that is NULL since something failed before keeps that error.
static void test_an_earlier_error_keeps_its_name(void **state) {
    (void)state;
    nd_auto nd_tensor *two = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *three = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *sum = nd_add(two, three);
    nd_auto nd_tensor *product = nd_kron(sum, two);
    assert_null(product);
    assert_string_equal(nd_error_get_message(), "add: shapes [2] and [3] do not broadcast");
    nd_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_an_error_names_the_function_that_was_called),
        ND_TEST(test_an_earlier_error_keeps_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
