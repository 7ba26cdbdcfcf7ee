// Several indices at once against PyTorch, and against plain loops over every dtype and layout; what
// is out of range, masks, and what is refused.
#include "tests/unit/ops/torch_case.h"
#include <nd/indexing.h>

#define LISTED(...) ((const nd_tensor *[]){__VA_ARGS__})
#define INTEGERS(ndim_and_shape, ...) \
    nd_from_data((const int64_t[]){__VA_ARGS__}, ndim_and_shape, ND_I64)

static nd_tensor *first_of_pairs(void) {
    return INTEGERS(ND_SHAPE(2, 2), 0, -1, 2, 0);
}
static nd_tensor *second_of_pairs(void) {
    return INTEGERS(ND_SHAPE(2), 1, -4);
}

TORCH_FUNCTION(index_pairs) {
    (void)count, (void)data;
    nd_auto nd_tensor *i = first_of_pairs(), *j = second_of_pairs();
    return nd_index(x[0], 2, LISTED(i, j));
}
TORCH_FUNCTION(index_mask) {
    (void)count, (void)data;
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(3, 4), ND_BOOL);
    for (int64_t i = 1; i < 12; i += 5)
        set_element(nd_get_data(mask), ND_BOOL, i, 0);
    return nd_index(x[0], 1, LISTED(mask));
}
TORCH_FUNCTION(index_mask_behind) {
    (void)count, (void)data;
    nd_auto nd_tensor *i = INTEGERS(ND_SHAPE(2), 2, 0);
    nd_auto nd_tensor *wide = INTEGERS(ND_SHAPE(4), 1, 0, 0, 1);
    nd_auto nd_tensor *mask = nd_cast(wide, ND_BOOL);
    return nd_index(x[0], 2, LISTED(i, mask));
}
TORCH_FUNCTION(index_put) {
    (void)count, (void)data;
    nd_auto nd_tensor *i = first_of_pairs(), *j = second_of_pairs();
    return nd_index_put(x[0], 2, LISTED(i, j), x[1], false);
}
TORCH_FUNCTION(index_put_accumulate) {
    (void)count, (void)data;
    nd_auto nd_tensor *i = INTEGERS(ND_SHAPE(3), 1, 1, 2), *j = nd_scalar(0, ND_I64);
    return nd_index_put(x[0], 2, LISTED(i, j), x[1], true);
}
TORCH_FUNCTION(index_add) {
    (void)count, (void)data;
    nd_auto nd_tensor *indices = INTEGERS(ND_SHAPE(4), 2, 0, 2, 1);
    return nd_index_add(x[0], indices, x[1], 1);
}

static void test_indexing_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(index_pairs, 1, {3, {3, 4, 2}}),
        TORCH_CASE(index_mask, 1, {3, {3, 4, 2}}),
        TORCH_CASE(index_mask_behind, 1, {3, {3, 4, 2}}),
        TORCH_CASE(index_put, 2, {3, {3, 4, 2}}, {3, {2, 1, 2}}),
        TORCH_CASE(index_put_accumulate, 2, {3, {3, 4, 2}}, {2, {3, 2}}),
        TORCH_CASE(index_add, 2, {3, {2, 3, 2}}, {3, {2, 4, 2}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

static int64_t resolved(double index, int64_t size) {
    return (int64_t)index + ((int64_t)index < 0 ? size : 0);
}

/// i: [5, 1] and j: [6] into x: [4, 3, 2]; what is written last stays.
static void check_indices(const nd_tensor *x, const nd_tensor *i, const nd_tensor *j,
                          const nd_tensor *values) {
    nd_auto nd_tensor *picked = nd_index(x, 2, LISTED(i, j));
    nd_auto nd_tensor *put = nd_index_put(x, 2, LISTED(i, j), values, false);
    assert_handle(picked);
    assert_handle(put);
    assert_shape(picked, ND_SHAPE(5, 6, 2));
    double expected[4][3][2];
    for (int64_t flat = 0; flat < 24; flat++)
        expected[flat / 6][flat / 2 % 3][flat % 2] = at_flat(x, flat);
    for (int64_t flat = 0; flat < 60; flat++) {
        int64_t row = resolved(at_flat(i, flat / 12), 4),
                column = resolved(at_flat(j, flat / 2 % 6), 3);
        int64_t place[] = {row, column, flat % 2};
        assert_true(at_flat(picked, flat) == at(x, 3, place));
        expected[row][column][flat % 2] = at_flat(values, flat);
    }
    for (int64_t flat = 0; flat < 24; flat++)
        assert_true(at_flat(put, flat) == expected[flat / 6][flat / 2 % 3][flat % 2]);
}

static void test_indices_of_every_dtype_and_layout(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            nd_dtype type = (nd_dtype)dtype, integer = how % 2 ? ND_I32 : ND_I64;
            nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(4, 3, 2), type, -3, 3);
            nd_auto nd_tensor *values = random_tensor((layout)how, ND_SHAPE(5, 6, 2), type, -3, 3);
            nd_auto nd_tensor *i =
                nd_randint((nd_key){1, (uint64_t)how}, -4, 4, ND_SHAPE(5, 1), integer);
            nd_auto nd_tensor *j =
                nd_randint((nd_key){2, (uint64_t)dtype}, -3, 3, ND_SHAPE(6), integer);
            check_indices(x, i, j, values);
        }
}

static void test_indices_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 2), ND_F32);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0), ND_I64);
    nd_auto nd_tensor *never = nd_zeros(ND_SHAPE(3, 2), ND_BOOL);
    nd_auto nd_tensor *number = nd_scalar(7, ND_F32);
    nd_auto nd_tensor *rows = nd_index(x, 1, LISTED(none));
    nd_auto nd_tensor *masked = nd_index(x, 1, LISTED(never));
    nd_auto nd_tensor *put = nd_index_put(x, 1, LISTED(never), number, false);
    assert_shape(rows, ND_SHAPE(0, 2));
    assert_shape(masked, ND_SHAPE(0));
    assert_shape(put, ND_SHAPE(3, 2));
    assert_true(at_flat(put, 5) == 1);
}

static void test_indexing_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 4), ND_F32);
    nd_auto nd_tensor *number = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *whole = nd_scalar(1, ND_I32);
    nd_auto nd_tensor *zero = nd_scalar(0, ND_I64);
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(4), ND_BOOL);
    // Inside of all rows, outside of its own axis.
    for (int64_t bad = -5; bad <= 4; bad += 9) {
        nd_auto nd_tensor *index = nd_scalar(bad, ND_I64);
        const bool tells = nd_test_device().kind == ND_CPU;
        char said[80] = "an index is outside its axis of x", of_index[100], of_put[100];
        if (tells)
            snprintf(said, sizeof said, "index 1 holds %lld, outside -4 ... 3 (axis 1 of x)",
                     (long long)bad);
        snprintf(of_index, sizeof of_index, "index: %s", said);
        snprintf(of_put, sizeof of_put, "index_put: %s", said);
        assert_refused(nd_index(x, 2, LISTED(zero, index)), ND_ERROR_INVALID_ARGUMENT, of_index);
        assert_refused(nd_index_put(x, 2, LISTED(zero, index), number, false),
                       ND_ERROR_INVALID_ARGUMENT, of_put);
        assert_refused(nd_index_put(x, 2, LISTED(zero, index), number, true),
                       ND_ERROR_INVALID_ARGUMENT, of_put);
    }
    // Of slices without elements, and where nothing is added.
    nd_auto nd_tensor *narrow = nd_zeros(ND_SHAPE(3, 0), ND_F32);
    nd_auto nd_tensor *nothing = nd_zeros(ND_SHAPE(1, 0), ND_F32);
    nd_auto nd_tensor *five = nd_full(ND_SHAPE(1), 5, ND_I64);
    nd_auto nd_tensor *two = nd_full(ND_SHAPE(1), 2, ND_I64);
    assert_refused(nd_index(narrow, 1, LISTED(five)), ND_ERROR_INVALID_ARGUMENT, "index: ");
    assert_refused(nd_index_put(narrow, 1, LISTED(five), nothing, false), ND_ERROR_INVALID_ARGUMENT,
                   "index_put: ");
    assert_refused(nd_index_add(narrow, five, nothing, 0), ND_ERROR_INVALID_ARGUMENT,
                   "index_add: an index is outside -3 ... 2");
    nd_auto nd_tensor *written = nd_index_put(narrow, 1, LISTED(two), nothing, false);
    nd_auto nd_tensor *added = nd_index_add(narrow, two, nothing, 0);
    assert_shape(written, ND_SHAPE(3, 0));
    assert_shape(added, ND_SHAPE(3, 0));
    nd_auto nd_tensor *no_places = nd_zeros(ND_SHAPE(0), ND_I64);
    nd_auto nd_tensor *yes = nd_ones(ND_SHAPE(4), ND_BOOL);
    nd_auto nd_tensor *no_values = nd_zeros(ND_SHAPE(0), ND_BOOL);
    assert_refused(nd_index_put(yes, 1, LISTED(no_places), no_values, true), ND_ERROR_DTYPE,
                   "index_put: x is bool, and only numbers");
    assert_refused(nd_index_put(yes, 1, LISTED(two), yes, true), ND_ERROR_DTYPE, "index_put: x is");
    assert_refused(nd_index(x, 0, NULL), ND_ERROR_INVALID_ARGUMENT, "index: 0 indices at NULL");
    assert_refused(nd_index(x, 3, LISTED(zero, zero, zero)), ND_ERROR_SHAPE, "index: more indices");
    assert_refused(nd_index(x, 1, LISTED(number)), ND_ERROR_DTYPE, "index: index 0 is float32");
    assert_refused(nd_index(x, 1, LISTED(mask)), ND_ERROR_SHAPE, "index: a mask of shape [4]");
    assert_refused(nd_index(x, 2, LISTED(mask, NULL)), ND_ERROR_SHAPE, "index: a mask");
    assert_refused(nd_index_put(x, 1, LISTED(zero), whole, false), ND_ERROR_DTYPE,
                   "index_put: x is float32 and the values int32");
    assert_refused(nd_index_put(x, 1, LISTED(zero), x, false), ND_ERROR_SHAPE,
                   "index_put: shape [3, 4]");
    assert_refused(nd_index_add(x, zero, x, 0), ND_ERROR_SHAPE, "index_add: source");
    assert_refused(nd_index_add(x, zero, x, 2), ND_ERROR_INVALID_ARGUMENT, "index_add: axis 2");
}

/// The index that is refused, its value and where it stands, however the indices lie in memory.
static void test_a_bad_index_is_named(void **state) {
    (void)state;
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 2, 3), ND_F32);
    const bool some[] = {true, false, true, false};
    const int64_t numbers[] = {0, 1, 2, 7};
    nd_auto nd_tensor *mask = nd_from_data(some, ND_SHAPE(2, 2), ND_BOOL);
    nd_auto nd_tensor *square = nd_from_data(numbers, ND_SHAPE(2, 2), ND_I64);
    nd_auto nd_tensor *turned = nd_transpose(square, 0, 1);
    nd_auto nd_tensor *column = nd_slice(turned, 1, 2, 1, 1); // 2, 7
    nd_auto nd_tensor *line = nd_reshape(column, ND_SHAPE(2));
    nd_auto nd_tensor *narrow = nd_cast(line, ND_I32);
    assert_refused(nd_index(x, 2, LISTED(mask, narrow)), ND_ERROR_INVALID_ARGUMENT,
                   "index: index 1 holds 7 at [1], outside -3 ... 2 (axis 2 of x)");
    assert_refused(nd_index(x, 1, LISTED(turned)), ND_ERROR_INVALID_ARGUMENT,
                   "index: index 0 holds 2 at [0, 1], outside -2 ... 1 (axis 0 of x)");
    assert_refused(nd_index(x, 2, LISTED(square, narrow)), ND_ERROR_INVALID_ARGUMENT,
                   "index: index 0 holds 2 at [1, 0]");
    nd_auto nd_tensor *three = nd_zeros(ND_SHAPE(3), ND_I64);
    assert_refused(nd_index(x, 2, LISTED(narrow, three)), ND_ERROR_SHAPE,
                   "index: shapes [2] and [3] do not broadcast");
    nd_auto nd_tensor *empty = nd_ones(ND_SHAPE(2, 0), ND_F32);
    nd_auto nd_tensor *first = nd_scalar(0, ND_I64);
    assert_refused(nd_index(empty, 2, LISTED(first, first)), ND_ERROR_INVALID_ARGUMENT,
                   "index: index 1 holds 0, and axis 1 of x has no elements");
    nd_auto nd_tensor *source = nd_ones(ND_SHAPE(2, 2, 3), ND_F32);
    assert_refused(nd_index_add(x, line, source, 1), ND_ERROR_INVALID_ARGUMENT,
                   "index_add: an index is outside -2 ... 1: 2 at [0]");
    nd_auto nd_tensor *numbered = nd_reshape(square, ND_SHAPE(4));
    assert_refused(nd_take(x, turned, -1), ND_ERROR_INVALID_ARGUMENT,
                   "take: an index is outside -3 ... 2: 7 at [1, 1]");
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(4), ND_F32);
    assert_refused(nd_gather(row, numbered, 0), ND_ERROR_INVALID_ARGUMENT,
                   "gather: an index is outside -4 ... 3: 7 at [3]");
    assert_refused(nd_scatter_add(row, numbered, row, 0), ND_ERROR_INVALID_ARGUMENT,
                   "scatter_add: an index is outside -4 ... 3: 7 at [3]");
    assert_refused(nd_scatter(row, numbered, row, 0, ND_SCATTER_MEAN, true),
                   ND_ERROR_INVALID_ARGUMENT, "scatter: an index is outside -4 ... 3: 7 at [3]");
    assert_refused(nd_one_hot(numbered, 3, ND_F32), ND_ERROR_INVALID_ARGUMENT,
                   "one_hot: an index is outside 0 ... 2: 7 at [3]");
}

/// What is written nowhere has a gradient of zeros, not none.
static void test_index_put_of_nothing_keeps_its_history(void **state) {
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F32), *v = nd_ones(ND_SHAPE(1), ND_F32);
        nd_auto nd_tensor *mask = nd_zeros(ND_SHAPE(4), ND_BOOL);
        assert_ok(nd_set_requires_grad(x, true));
        assert_ok(nd_set_requires_grad(v, true));
        const nd_tensor *indices[] = {mask};
        nd_auto nd_tensor *y = nd_index_put(x, 1, indices, v, accumulate);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        assert_ok(nd_backward(loss, NULL));
        assert_true(((const float *)nd_get_data(nd_get_grad(x)))[3] == 1);
        assert_true(((const float *)nd_get_data(nd_get_grad(v)))[0] == 0);
        nd_auto nd_tensor *i = nd_ones(ND_SHAPE(4), ND_I32), *w = nd_ones(ND_SHAPE(1), ND_I32);
        nd_auto nd_tensor *same = nd_index_put(i, 1, indices, w, accumulate);
        assert_handle(same);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_indexing_as_in_pytorch), ND_TEST(test_indices_of_every_dtype_and_layout),
        ND_TEST(test_indices_of_nothing),     ND_TEST(test_indexing_refuses),
        ND_TEST(test_a_bad_index_is_named),   ND_TEST(test_index_put_of_nothing_keeps_its_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
