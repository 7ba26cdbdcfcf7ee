// Padding, turning, repeating and cutting against PyTorch and against differences; other dtypes,
// nothing, and what is refused.
#include "tests/unit/ops/torch_case.h"
#include <nd/autograd.h>
#include <nd/contraction.h>
#include <nd/manipulation.h>

#define COUNTS(...)     \
    (const int64_t[]) { \
        __VA_ARGS__     \
    }
#define MANIPULATION(name, expression) \
    TORCH_FUNCTION(name) {             \
        (void)count, (void)data;       \
        return expression;             \
    }

MANIPULATION(pad_constant, nd_pad(x[0], 2, COUNTS(2, -1, 1, 2), 1.5, ND_PADDING_CONSTANT))
MANIPULATION(pad_reflect, nd_pad(x[0], 1, COUNTS(3, 1), 0, ND_PADDING_REFLECT))
MANIPULATION(pad_replicate, nd_pad(x[0], 2, COUNTS(0, 3, 2, 1), 0, ND_PADDING_REPLICATE))
MANIPULATION(pad_circular, nd_pad(x[0], 1, COUNTS(3, 2), 0, ND_PADDING_CIRCULAR))
MANIPULATION(flip, nd_flip(x[0], 2, (const int[]){-1, 0}))
MANIPULATION(roll, nd_roll(x[0], -12, 1))
MANIPULATION(tril, nd_tril(x[0], 1))
MANIPULATION(triu, nd_triu(x[0], -1))
MANIPULATION(repeat, nd_repeat(x[0], 3, 1))
MANIPULATION(tile, nd_tile(x[0], 3, COUNTS(2, 1, 3)))
MANIPULATION(moveaxis, nd_moveaxis(x[0], -1, 0))

TORCH_FUNCTION(split) {
    (void)count, (void)data;
    nd_tensor *parts[4] = {0};
    assert_ok(nd_split(x[0], 4, COUNTS(1, 0, 3, 2), -1, parts));
    const nd_tensor *turned[] = {parts[3], parts[2], parts[1], parts[0]};
    nd_tensor *joined = nd_concat(4, turned, 1);
    for (int i = 0; i < 4; i++)
        nd_release(parts[i]);
    return joined;
}

static void test_manipulation_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(pad_constant, 1, {2, {2, 3}}),
        TORCH_CASE(pad_reflect, 1, {3, {1, 3, 4}}),
        TORCH_CASE(pad_replicate, 1, {4, {1, 2, 2, 3}}),
        TORCH_CASE(pad_circular, 1, {3, {1, 2, 3}}),
        TORCH_CASE(flip, 1, {3, {2, 3, 2}}),
        TORCH_CASE(roll, 1, {2, {2, 5}}),
        TORCH_CASE(tril, 1, {3, {2, 3, 4}}),
        TORCH_CASE(triu, 1, {2, {4, 3}}),
        TORCH_CASE(repeat, 1, {3, {2, 3, 2}}),
        TORCH_CASE(tile, 1, {2, {2, 3}}),
        TORCH_CASE(moveaxis, 1, {3, {2, 3, 4}}),
        TORCH_CASE(split, 1, {2, {2, 6}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

static void test_manipulation_of_nothing_and_of_integers(void **state) {
    (void)state;
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(2, 0), ND_I64);
    nd_auto nd_tensor *padded = nd_pad(none, 1, COUNTS(1, 1), INT64_MAX, ND_PADDING_CONSTANT);
    nd_auto nd_tensor *flipped = nd_flip(none, 0, NULL);
    nd_auto nd_tensor *rolled = nd_roll(none, 3, 1);
    nd_auto nd_tensor *lower = nd_tril(none, 5);
    nd_auto nd_tensor *tiled = nd_tile(none, 2, COUNTS(3, 4));
    nd_auto nd_tensor *gone = nd_repeat(padded, 0, 0);
    int64_t number = 0;
    nd_auto nd_tensor *corner = nd_slice(padded, 1, 2, 1, 1);
    nd_auto nd_tensor *first = nd_select(corner, 1, 0);
    assert_ok(nd_get_item_i64(first, &number));
    assert_true(number == INT64_MAX);
    assert_shape(padded, ND_SHAPE(2, 2));
    assert_shape(flipped, ND_SHAPE(2, 0));
    assert_shape(rolled, ND_SHAPE(2, 0));
    assert_shape(lower, ND_SHAPE(2, 0));
    assert_shape(tiled, ND_SHAPE(6, 0));
    assert_shape(gone, ND_SHAPE(0, 2));
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(3, 3), ND_BOOL);
    nd_auto nd_tensor *all = nd_tril(ones, INT64_MAX);
    nd_auto nd_tensor *nothing = nd_tril(ones, INT64_MIN);
    nd_auto nd_tensor *whole = nd_triu(ones, INT64_MIN);
    for (int64_t i = 0; i < 9; i++)
        assert_true(at_flat(all, i) == 1 && at_flat(nothing, i) == 0 && at_flat(whole, i) == 1);
}

/// Numbers around views of every dtype, with some of their elements cut, by a plain loop.
static void test_pad_of_every_dtype_and_layout(void **state) {
    (void)state;
    static const int64_t shape[] = {3, 8, 5};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            nd_auto nd_tensor *x = random_tensor((layout)how, 3, shape, (nd_dtype)dtype, 0, 1);
            int64_t padding[6], padded[3];
            int naxes = 1 + rand() % 3;
            for (int i = 0; i < 6; i++)
                padding[i] = i / 2 < 3 - naxes ? 0 : rand() % 6 - 1;
            for (int i = 0; i < 3; i++)
                padded[i] = shape[i] + padding[2 * i] + padding[2 * i + 1];
            nd_auto nd_tensor *y =
                nd_pad(x, naxes, padding + 2 * (3 - naxes), 1, ND_PADDING_CONSTANT);
            assert_shape(y, 3, padded);
            assert_true(nd_is_contiguous(y));
            for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
                int64_t index[3];
                coordinates_of(3, padded, flat, index);
                bool inside = true;
                for (int i = 0; i < 3; i++) {
                    index[i] -= padding[2 * i];
                    inside = inside && index[i] >= 0 && index[i] < shape[i];
                }
                assert_true(at_flat(y, flat) == (inside ? at(x, 3, index) : 1));
            }
        }
}

/// Where a padded axis has its element from.
static int64_t source_of(nd_padding mode, int64_t at, int64_t size) {
    if (mode == ND_PADDING_REPLICATE)
        return at < 0 ? 0 : at >= size ? size - 1 : at;
    if (mode == ND_PADDING_CIRCULAR)
        return (at + size) % size;
    return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
}

/// With a gradient wanted, when it is a composition, and without.
static void test_pad_with_elements_of_every_dtype_and_layout(void **state) {
    (void)state;
    static const nd_padding modes[] = {ND_PADDING_REFLECT, ND_PADDING_REPLICATE,
                                       ND_PADDING_CIRCULAR};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int round = 0; round < 12; round++) {
                const nd_padding mode = modes[round % 3];
                const int naxes = 1 + rand() % 3;
                int64_t shape[3], padding[6], padded[3];
                for (int i = 0; i < 3; i++)
                    shape[i] = 1 + rand() % 6;
                for (int i = 0; i < 6; i++) {
                    const int64_t most = mode == ND_PADDING_REFLECT    ? shape[i / 2] - 1
                                         : mode == ND_PADDING_CIRCULAR ? shape[i / 2]
                                                                       : 7;
                    padding[i] = i / 2 < 3 - naxes ? 0 : rand() % (most + 1);
                }
                nd_auto nd_tensor *x = random_tensor((layout)how, 3, shape, (nd_dtype)dtype, -4, 4);
                if (is_float((nd_dtype)dtype) && how == DENSE && round < 6)
                    assert_ok(nd_set_requires_grad(x, true));
                nd_auto nd_tensor *y = nd_pad(x, naxes, padding + 2 * (3 - naxes), 0, mode);
                for (int i = 0; i < 3; i++)
                    padded[i] = shape[i] + padding[2 * i] + padding[2 * i + 1];
                assert_shape(y, 3, padded);
                assert_true(nd_is_contiguous(y));
                for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
                    int64_t index[ND_MAX_DIMS];
                    coordinates_of(3, padded, flat, index);
                    for (int i = 0; i < 3; i++)
                        index[i] = source_of(mode, index[i] - padding[2 * i], shape[i]);
                    assert_true(at_flat(y, flat) == at(x, 3, index));
                }
            }
    nd_auto nd_tensor *one = nd_zeros(ND_SHAPE(1), ND_U8);
    nd_auto nd_tensor *huge = nd_expand(one, ND_SHAPE(INT64_MAX / 2));
    assert_refused(nd_pad(huge, 1, COUNTS(INT64_MAX / 3, INT64_MAX / 3), 0, ND_PADDING_REFLECT),
                   ND_ERROR_SHAPE, "pad: ");
    assert_refused(nd_pad(huge, 1, COUNTS(INT64_MAX / 3, INT64_MAX / 3), 0, ND_PADDING_CIRCULAR),
                   ND_ERROR_SHAPE, "pad: ");
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    nd_auto nd_tensor *wide = nd_pad(none, 1, COUNTS(2, 1), 0, ND_PADDING_REPLICATE);
    assert_shape(wide, ND_SHAPE(0, 6));
}

/// Triangles of views of every dtype, wide and high, by a plain loop.
static void test_triangles_of_every_dtype_and_layout(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{2, 3, 70}, {1, 40, 5}, {3, 1, 1}};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            const int64_t *shape = shapes[rand() % 3];
            nd_auto nd_tensor *x = random_tensor((layout)how, 3, shape, (nd_dtype)dtype, 0, 1);
            int64_t diagonal = rand() % 100 - 50;
            nd_auto nd_tensor *lower = nd_tril(x, diagonal);
            nd_auto nd_tensor *upper = nd_triu(x, diagonal);
            assert_shape(lower, 3, shape);
            assert_shape(upper, 3, shape);
            for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
                int64_t index[3];
                coordinates_of(3, shape, flat, index);
                int64_t to_right = index[2] - index[1];
                assert_true(at_flat(lower, flat) == (to_right <= diagonal ? at_flat(x, flat) : 0));
                assert_true(at_flat(upper, flat) == (to_right >= diagonal ? at_flat(x, flat) : 0));
            }
        }
}

/// Writes a result and looks whether x has stayed; consumes it.
static void assert_new(const nd_tensor *x, nd_tensor *result) {
    assert_handle(result);
    assert_ok(nd_fill_(result, 7));
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_true(at_flat(x, i) == 1);
    nd_release(result);
}

/// Runs of one element that are short, and long enough to be filled at once.
static void test_repeat_fills_runs(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_I64};
    static const int64_t counts[] = {2, 8, 63, 64, 301};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
        for (size_t c = 0; c < COUNT_OF(counts); c++)
            for (int64_t step = -1; step <= 2; step += 3) {
                nd_auto nd_tensor *all = random_dense(ND_SHAPE(150), dtypes[d], -3, 3);
                nd_auto nd_tensor *x =
                    nd_slice(all, step > 0 ? 0 : 149, step > 0 ? 150 : -151, step, 0);
                nd_auto nd_tensor *y = nd_repeat(x, counts[c], 0);
                int64_t n = nd_get_numel(x);
                assert_shape(y, ND_SHAPE(n * counts[c]));
                for (int64_t i = 0; i < nd_get_numel(y); i++)
                    assert_true(at_flat(y, i) == at_flat(x, i / counts[c]));
            }
}

/// Whatever the numbers, also where nothing has to be moved, a result is no window onto x.
static void test_results_are_new(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4), ND_F32);
    nd_auto nd_tensor *number = nd_scalar(1, ND_F32);
    const nd_tensor *one[] = {x};
    assert_new(x, nd_roll(x, 0, 1));
    assert_new(x, nd_roll(x, 1, 0));
    assert_new(x, nd_diff(x, 0, 1));
    assert_new(x, nd_repeat(x, 1, 1));
    assert_new(x, nd_repeat(x, 3, 0));
    assert_new(x, nd_tile(x, 2, COUNTS(1, 1)));
    assert_new(x, nd_tile(x, 3, COUNTS(3, 1, 1)));
    assert_new(x, nd_pad(x, 1, COUNTS(0, 0), 0, ND_PADDING_CONSTANT));
    assert_new(x, nd_pad(x, 1, COUNTS(-1, -1), 0, ND_PADDING_CONSTANT));
    assert_new(number, nd_flip(number, 0, NULL));
    assert_new(x, nd_einsum("ij->ij", 1, one));
    assert_new(x, nd_einsum("ij->ji", 1, one));
}

static void test_manipulation_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_U8);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(3), ND_F32);
    nd_tensor *parts[2] = {0};
    assert_refused(nd_pad(x, 1, COUNTS(3, 0), 0, ND_PADDING_REFLECT), ND_ERROR_INVALID_ARGUMENT,
                   "pad: padding[0] is 3, and an axis of 3 elements has room for 0 ... 2");
    assert_refused(nd_pad(x, 1, COUNTS(0, -1), 0, ND_PADDING_CIRCULAR), ND_ERROR_INVALID_ARGUMENT,
                   "pad: padding[1] is -1");
    assert_refused(nd_pad(x, 1, COUNTS(0, 1), 300, ND_PADDING_CONSTANT), ND_ERROR_INVALID_ARGUMENT,
                   "pad: uint8 cannot hold the number 300");
    assert_refused(nd_pad(x, 1, COUNTS(-2, -2), 0, ND_PADDING_CONSTANT), ND_ERROR_SHAPE,
                   "pad: -2 and -2 elements cannot be taken from an axis of 3");
    assert_refused(nd_pad(x, 3, COUNTS(0), 0, ND_PADDING_CONSTANT), ND_ERROR_INVALID_ARGUMENT,
                   "pad: 3 axes");
    assert_refused(nd_pad(x, 0, NULL, 0, (nd_padding)9), ND_ERROR_INVALID_ARGUMENT,
                   "pad: there is no padding 9");
    assert_refused(nd_flip(x, 2, (const int[]){0, -2}), ND_ERROR_INVALID_ARGUMENT,
                   "flip: axis -2 is named twice");
    assert_refused(nd_roll(x, 1, 2), ND_ERROR_INVALID_ARGUMENT, "roll: axis 2");
    assert_refused(nd_tril(row, 0), ND_ERROR_SHAPE, "tril: x has shape [3]");
    assert_refused(nd_repeat(x, -1, 0), ND_ERROR_INVALID_ARGUMENT, "repeat: a count of -1");
    assert_refused(nd_repeat(x, INT64_MAX, 1), ND_ERROR_SHAPE, "repeat: ");
    assert_refused(nd_tile(x, 9, NULL), ND_ERROR_INVALID_ARGUMENT, "tile: 9 counts at NULL");
    assert_refused(nd_moveaxis(x, 0, 2), ND_ERROR_INVALID_ARGUMENT, "moveaxis: axis 2");
    assert_status(nd_split(x, 2, COUNTS(1, 1), 1, parts), ND_ERROR_SHAPE);
    assert_status(nd_split(x, 2, COUNTS(4, -1), 1, parts), ND_ERROR_SHAPE);
    assert_status(nd_split(x, 2, NULL, 1, parts), ND_ERROR_INVALID_ARGUMENT);
    assert_null(parts[0]);
}

/// Every set of axes that are turned, with axes of one element and of none, and its gradient, which is
/// turned back.
static void test_flips_of_every_set_of_axes(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {{2, 3, 4, 5}, {2, 1, 3, 1}, {1, 1, 1, 1}, {3, 0, 2, 1}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int how = 0; how < LAYOUTS; how++)
            for (unsigned set = 1; set < 16; set++) {
                const nd_dtype dtype = (nd_dtype)(set % ND_DTYPE_COUNT);
                int axes[4], naxes = 0;
                for (int axis = 3; axis >= 0; axis--)
                    if (set >> axis & 1)
                        axes[naxes++] = axis;
                nd_auto nd_tensor *x = random_tensor((layout)how, 4, shapes[s], dtype, -1, 1);
                if (is_float(dtype))
                    assert_int_equal(nd_set_requires_grad(x, true), ND_OK);
                nd_auto nd_tensor *y = nd_flip(x, naxes, axes);
                assert_shape(y, 4, shapes[s]);
                assert_true(nd_get_numel(x) == 0 || nd_get_data(x) != nd_get_data(y));
                nd_auto nd_tensor *gradient = NULL;
                nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
                nd_auto nd_tensor *seed = random_tensor(DENSE, 4, shapes[s], dtype, -1, 1);
                options.grad = seed;
                if (is_float(dtype))
                    assert_int_equal(nd_grad(y, 1, (const nd_tensor *[]){x}, &options, &gradient),
                                     ND_OK);
                for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
                    int64_t index[4];
                    coordinates_of(4, shapes[s], flat, index);
                    for (int i = 0; i < naxes; i++)
                        index[axes[i]] = shapes[s][axes[i]] - 1 - index[axes[i]];
                    assert_true(at_flat(y, flat) == at(x, 4, index));
                    assert_true(!gradient || at(gradient, 4, index) == at_flat(seed, flat));
                }
            }
}

/// Many short rows of every width of element, dense and in wider rows, on one thread and on three.
static void test_flips_repeats_and_frames_of_many_short_rows(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_F64};
    const int64_t rows = 7001;
    int threads = nd_get_num_threads();
    for (int64_t n = 1; n <= 17; n++)
        for (size_t d = 0; d < 2 * COUNT_OF(dtypes); d++) {
            assert_int_equal(nd_set_num_threads(d % 2 ? 3 : 1), ND_OK);
            nd_auto nd_tensor *wide = random_dense(ND_SHAPE(rows, n + 2), dtypes[d / 2], 0, 100);
            nd_auto nd_tensor *part = nd_slice(wide, 1, n + 1, 1, 1);
            nd_auto nd_tensor *x = d % 2 ? nd_contiguous(part) : nd_retain(part);
            nd_auto nd_tensor *y = nd_flip(x, 1, (const int[]){1});
            nd_auto nd_tensor *first = nd_slice(x, 0, 1, 1, 1);
            nd_auto nd_tensor *repeated = nd_expand(first, ND_SHAPE(rows, n));
            nd_auto nd_tensor *z = nd_contiguous(repeated);
            nd_auto nd_tensor *framed =
                nd_pad(x, 1, (const int64_t[]){n, 2}, 7, ND_PADDING_CONSTANT);
            for (int64_t row = 0; row < rows; row++)
                for (int64_t i = 0; i < n; i++) {
                    const double number = at_flat(wide, row * (n + 2) + 1 + i);
                    assert_true(at_flat(y, row * n + n - 1 - i) == number);
                    assert_true(at_flat(z, row * n + i) == at_flat(wide, row * (n + 2) + 1));
                    assert_true(at_flat(framed, row * (2 * n + 2) + n + i) == number);
                    assert_true(at_flat(framed, row * (2 * n + 2) + i) == 7);
                    assert_true(at_flat(framed, row * (2 * n + 2) + 2 * n + i % 2) == 7);
                }
        }
    assert_int_equal(nd_set_num_threads(threads), ND_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_flips_of_every_set_of_axes),
        ND_TEST(test_flips_repeats_and_frames_of_many_short_rows),
        ND_TEST(test_manipulation_as_in_pytorch),
        ND_TEST(test_manipulation_of_nothing_and_of_integers),
        ND_TEST(test_repeat_fills_runs),
        ND_TEST(test_pad_of_every_dtype_and_layout),
        ND_TEST(test_pad_with_elements_of_every_dtype_and_layout),
        ND_TEST(test_triangles_of_every_dtype_and_layout),
        ND_TEST(test_results_are_new),
        ND_TEST(test_manipulation_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
