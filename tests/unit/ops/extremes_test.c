// F45: the smallest and the largest integers for every integer that a function takes. What is no
// answer is an error with a sentence; nothing overflows, which UndefinedBehaviorSanitizer sees.
#include "tests/unit/ops/values.h"
#include <limits.h>
#include <nd/fft.h>
#include <nd/interpolation.h>
#include <nd/linalg.h>
#include <nd/manipulation.h>
#include <nd/pooling.h>
#include <nd/sorting.h>

static const int64_t wide[] = {INT64_MIN,     INT64_MIN + 1, INT64_MIN / 2, -1,
                               INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
static const int narrow[] = {INT_MIN, INT_MIN + 1, -1, 9, INT_MAX - 1, INT_MAX};

/// A result, or an error with a sentence.
#define TRY(result)                                                                   \
    do {                                                                              \
        nd_error_clear();                                                             \
        nd_tensor *result_ = (result);                                                \
        if (!result_ && (nd_error_get_status() == ND_OK || !*nd_error_get_message())) \
            fail_msg("line %d: no result and no sentence", __LINE__);                 \
        nd_release(result_);                                                          \
    } while (0)

static void try_wide(int64_t n, const nd_tensor *x, const nd_tensor *pairs) {
    TRY(nd_roll(x, n, 0));
    TRY(nd_tril(x, n));
    TRY(nd_triu(x, n));
    TRY(nd_repeat(x, n, 0));
    TRY(nd_tile(x, 1, &n));
    TRY(nd_sliding_window(x, n, 1, 0));
    TRY(nd_sliding_window(x, 2, n, 0));
    if (n < INT64_MAX / 2) // else the differences of nothing are taken so often
        TRY(nd_diff(x, n, 0));
    TRY(nd_diagonal(x, n, 0, 1));
    TRY(nd_trace(x, n));
    TRY(nd_linspace(0, 1, n, ND_F32));
    TRY(nd_eye(n, ND_F32));
    TRY(nd_randint(nd_key_new(1), n, INT64_MAX, ND_SHAPE(2), ND_I64));
    TRY(nd_randint(nd_key_new(1), INT64_MIN, n, ND_SHAPE(2), ND_I64));
    TRY(nd_randperm(nd_key_new(1), n));
    for (size_t i = 0; i < COUNT_OF(wide); i++) {
        TRY(nd_slice(x, n, wide[i], 1, 0));
        TRY(nd_slice(x, 0, n, wide[i], 0));
        TRY(nd_slice(x, n, 0, wide[i], 1));
        TRY(nd_arange(n, wide[i], INT64_MAX, ND_I64));
        TRY(nd_arange(n, wide[i], INT64_MIN, ND_I64));
        TRY(nd_arange(0, n, wide[i], ND_I64));
        const int64_t both[] = {n, wide[i]};
        TRY(nd_pad(x, 1, both, 0, ND_PADDING_CONSTANT));
        TRY(nd_pad(x, 1, both, 0, ND_PADDING_CIRCULAR));
        TRY(nd_pad(x, 1, both, 0, ND_PADDING_REFLECT));
        TRY(nd_reshape(x, 2, both));
        TRY(nd_expand(x, 2, both));
        TRY(nd_as_strided(x, ND_SHAPE(2, 2), both, 0));
        TRY(nd_as_strided(x, 2, both, both, n));
        TRY(nd_zeros(2, both, ND_U8));
        nd_max_pool2d_options pool = ND_MAX_POOL2D_OPTIONS_INIT;
        pool.kernel[0] = pool.kernel[1] = n;
        pool.stride[0] = pool.dilation[1] = wide[i];
        nd_auto nd_tensor *image = nd_ones(ND_SHAPE(1, 1, 4, 4), ND_F32);
        TRY(nd_max_pool2d(image, &pool));
        pool.kernel[0] = pool.kernel[1] = 2;
        pool.padding[0] = n;
        TRY(nd_max_pool2d(image, &pool));
    }
    TRY(nd_select(x, n, 0));
    nd_auto nd_tensor *indices = nd_zeros(ND_SHAPE(2), ND_I64);
    TRY(nd_one_hot(indices, n, ND_F32));
    nd_tensor *values = NULL, *positions = NULL;
    if (nd_topk(x, n, 0, true, &values, &positions) == ND_OK) {
        nd_release(values);
        nd_release(positions);
    }
    nd_auto nd_tensor *image = nd_ones(ND_SHAPE(4, 4, 4), ND_F32);
    TRY(nd_pixel_shuffle(image, n));
    TRY(nd_pixel_unshuffle(image, n));
    TRY(nd_matrix_power(x, n));
    TRY(nd_fft(pairs, n, 0, ND_FFT_NORM_BACKWARD));
    TRY(nd_rfft(x, n, 0, ND_FFT_NORM_BACKWARD));
    TRY(nd_irfft(pairs, n, 0, ND_FFT_NORM_BACKWARD));
    TRY(nd_hfft(pairs, n, 0, ND_FFT_NORM_BACKWARD));
    TRY(nd_ihfft(x, n, 0, ND_FFT_NORM_BACKWARD));
    TRY(nd_fftfreq(n, 1, ND_F32));
    TRY(nd_rfftfreq(n, 1, ND_F32));
}

/// Numbers of axes, and axes.
static void try_narrow(int n, const nd_tensor *x, const nd_tensor *pairs) {
    static const int64_t sizes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int axes[16] = {0};
    TRY(nd_expand(x, n, sizes));
    TRY(nd_reshape(x, n, sizes));
    TRY(nd_zeros(n, sizes, ND_U8));
    TRY(nd_as_strided(x, n, sizes, sizes, 0));
    TRY(nd_permute(x, n, axes));
    TRY(nd_tile(x, n, sizes));
    TRY(nd_flip(x, n, axes));
    TRY(nd_pad(x, n, sizes, 0, ND_PADDING_CONSTANT));
    TRY(nd_sum(x, n, axes, false));
    TRY(nd_std(x, n, axes, 0, false));
    TRY(nd_fftn(pairs, n, NULL, axes, ND_FFT_NORM_BACKWARD));
    TRY(nd_rand(nd_key_new(1), n, sizes, ND_F32));
    const double half = 0.5;
    TRY(nd_quantile(x, 1, &half, ND_QUANTILE_LINEAR, n, axes, false));
    TRY(nd_transpose(x, n, 0));
    TRY(nd_transpose(x, 0, n));
    TRY(nd_moveaxis(x, n, 0));
    TRY(nd_moveaxis(x, 0, n));
    TRY(nd_unsqueeze(x, n));
    TRY(nd_squeeze(x, n));
    TRY(nd_select(x, 0, n));
    TRY(nd_slice(x, 0, 1, 1, n));
    TRY(nd_diagonal(x, 0, n, 0));
    TRY(nd_roll(x, 1, n));
    TRY(nd_repeat(x, 1, n));
    TRY(nd_softmax(x, n));
    TRY(nd_sort(x, n, false));
    TRY(nd_cumsum(x, n));
    TRY(nd_argmax(x, n, false));
    TRY(nd_fft(pairs, 0, n, ND_FFT_NORM_BACKWARD));
    const nd_tensor *two[] = {x, x};
    TRY(nd_concat(2, two, n));
    TRY(nd_stack(2, two, n));
}

static void test_F45_the_smallest_and_largest_integers(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4, 4), ND_F32);
    nd_auto nd_tensor *pairs = nd_ones(ND_SHAPE(4, 2), ND_F32);
    for (size_t i = 0; i < COUNT_OF(wide); i++)
        try_wide(wide[i], x, pairs);
    for (size_t i = 0; i < COUNT_OF(narrow); i++)
        try_narrow(narrow[i], x, pairs);
    nd_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F45_the_smallest_and_largest_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
