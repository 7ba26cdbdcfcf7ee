// In-place operations: results, version counters, history, and every overlap of what is written
// with what is read.
#include "tests/unit/ops/values.h"

typedef nd_status (*in_place)(nd_tensor *x, const nd_tensor *y);
typedef nd_tensor *(*out_of_place)(const nd_tensor *x, const nd_tensor *y);

static void check_same(const nd_tensor *x, const nd_tensor *expected) {
    assert_handle(x);
    assert_handle(expected);
    for (int64_t i = 0; i < nd_get_numel(expected); i++)
        assert_close("in place", at_flat(x, i), at_flat(expected, i), 1e-6, 0);
}

static void check_binary(in_place write, out_of_place reference, nd_tensor *x, const nd_tensor *y) {
    nd_auto nd_tensor *expected = reference(x, y);
    uint64_t version = nd_get_version(x);
    assert_ok(write(x, y));
    assert_int_equal(nd_get_version(x), version + 1);
    check_same(x, expected);
}

static void test_results(void **state) {
    (void)state;
    for (int dtype = ND_U8; dtype <= ND_F64; dtype++)
        for (int how = DENSE; how < EXPANDED; how++) {
            nd_auto nd_tensor *x =
                random_tensor((layout)how, ND_SHAPE(4, 5), (nd_dtype)dtype, 1, 3);
            nd_auto nd_tensor *y =
                random_tensor((layout)how, ND_SHAPE(4, 5), (nd_dtype)dtype, 1, 3);
            nd_auto nd_tensor *row = random_tensor(DENSE, ND_SHAPE(5), (nd_dtype)dtype, 1, 3);
            check_binary(nd_add_, nd_add, x, y);
            check_binary(nd_sub_, nd_sub, x, row);
            check_binary(nd_mul_, nd_mul, x, y);
            if (dtype >= ND_F32)
                check_binary(nd_div_, nd_div, x, row);
            check_binary(nd_add_, nd_add, x, x);
            nd_auto nd_tensor *scaled = nd_mul_scalar(row, 2.0);
            nd_auto nd_tensor *sum = nd_add(x, scaled);
            assert_ok(nd_add_scaled_(x, row, 2.0));
            check_same(x, sum);
            nd_auto nd_tensor *tripled = nd_mul_scalar(x, 3.0);
            assert_ok(nd_mul_scalar_(x, 3.0));
            check_same(x, tripled);
            nd_auto nd_tensor *mask = random_tensor(DENSE, ND_SHAPE(4, 1), ND_BOOL, 0, 1);
            nd_auto nd_tensor *masked = nd_masked_fill(x, mask, 6.0);
            assert_ok(nd_masked_fill_(x, mask, 6.0));
            check_same(x, masked);
            nd_auto nd_tensor *spread = nd_expand(row, ND_SHAPE(4, 5));
            assert_ok(nd_copy_(x, row));
            check_same(x, spread);
            nd_auto nd_tensor *fives = nd_full(ND_SHAPE(4, 5), 5.0, (nd_dtype)dtype);
            assert_ok(nd_fill_(x, 5.0));
            check_same(x, fives);
        }
}

static void test_copy_converts(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(3), ND_I32);
    const float values[] = {1.9f, -2.9f, 3e20f};
    nd_auto nd_tensor *y = nd_from_data(values, ND_SHAPE(3), ND_F32);
    assert_ok(nd_copy_(x, y));
    assert_true(at_flat(x, 0) == 1 && at_flat(x, 1) == -2 && at_flat(x, 2) == INT32_MAX);
    nd_auto nd_tensor *flags = nd_zeros(ND_SHAPE(3), ND_BOOL);
    assert_ok(nd_copy_(flags, y));
    assert_true(at_flat(flags, 0) == 1 && at_flat(flags, 1) == 1);
    uint64_t version = nd_get_version(x);
    assert_ok(nd_copy_(x, x));
    assert_true(at_flat(x, 1) == -2 && nd_get_version(x) == version);
}

static void test_empty_tensors(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_add_(x, row));
    assert_ok(nd_fill_(x, 1.0));
    assert_ok(nd_copy_(x, row));
    assert_ok(nd_mul_scalar_(x, 1.0));
}

// ---------------------------------------------------------------------------------------- overlaps

/// A window of 1 or 2 axes onto a line of elements.
static nd_tensor *window(const nd_tensor *line, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride, int64_t offset) {
    return nd_as_strided(line, ND_SHAPE(rows, columns), (int64_t[]){row_stride, column_stride},
                         offset);
}

static bool share_elements(const nd_tensor *x, const nd_tensor *y) {
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        for (int64_t j = 0; j < nd_get_numel(y); j++) {
            int64_t a[2], b[2];
            coordinates_of(2, nd_get_shape(x), i, a);
            coordinates_of(2, nd_get_shape(y), j, b);
            const float *from_x = (const float *)nd_get_data(x) + a[0] * nd_get_strides(x)[0] +
                                  a[1] * nd_get_strides(x)[1];
            const float *from_y = (const float *)nd_get_data(y) + b[0] * nd_get_strides(y)[0] +
                                  b[1] * nd_get_strides(y)[1];
            if (from_x == from_y)
                return true;
        }
    return false;
}

static bool is_same_window(const nd_tensor *x, const nd_tensor *y) {
    bool same = nd_get_data(x) == nd_get_data(y);
    for (int i = 0; i < 2; i++)
        same = same && (nd_get_shape(x)[i] == 1 || nd_get_strides(x)[i] == nd_get_strides(y)[i]);
    return same;
}

/// Random windows onto one storage: refused exactly when they share elements and are not the same.
static void test_F12_partial_overlap_is_refused_and_interleaving_is_not(void **state) {
    (void)state;
    nd_auto nd_tensor *line = nd_ones(ND_SHAPE(200), ND_F32);
    int refused = 0, done = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t rows = 1 + rand() % 4, columns = 1 + rand() % 4;
        int64_t step = 1 + rand() % 3, row_step = columns * step + rand() % 6;
        nd_auto nd_tensor *x = window(line, rows, columns, row_step, step, rand() % 30);
        nd_auto nd_tensor *y = window(line, rows, columns, rand() % 3 ? row_step : rand() % 8,
                                      rand() % 3 ? step : rand() % 3, rand() % 40);
        bool expect_refusal = share_elements(x, y) && !is_same_window(x, y);
        nd_status status = nd_add_(x, y);
        if ((status == ND_ERROR_INVALID_ARGUMENT) != expect_refusal)
            fail_msg("round %d: %s", round, nd_error_get_message());
        *(expect_refusal ? &refused : &done) += 1;
    }
    assert_true(refused > 1000 && done > 1000);
    nd_error_clear();
}

static void test_F12_a_tensor_that_overlaps_itself_is_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *spread = nd_expand(row, ND_SHAPE(4, 3));
    nd_auto nd_tensor *line = nd_ones(ND_SHAPE(10), ND_F32);
    nd_auto nd_tensor *sliding = window(line, 8, 3, 1, 1, 0);
    nd_auto nd_tensor *apart = window(line, 2, 2, 1, 2, 0); // 0 2 1 3: interleaves
    assert_status(nd_add_(spread, row), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_fill_(sliding, 2.0), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_mul_scalar_(spread, 2.0), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_fill_(apart, 2.0));
    for (int64_t i = 0; i < 10; i++)
        assert_true(at_flat(line, i) == (i < 4 ? 2.0 : 1.0));
    assert_true(at_flat(row, 0) == 1.0);
}

/// Rows that begin where the one before them ends: the last element of one is the first of the
/// next.
static void test_F12_rows_that_meet_in_one_element_overlap(void **state) {
    (void)state;
    nd_auto nd_tensor *line = nd_ones(ND_SHAPE(10), ND_F32);
    nd_auto nd_tensor *meeting = window(line, 2, 3, 2, 1, 0); // 0 1 2, 2 3 4
    nd_auto nd_tensor *apart = window(line, 2, 3, 3, 1, 0);
    assert_status(nd_fill_(meeting, 2.0), ND_ERROR_INVALID_ARGUMENT);
    assert_true(at_flat(line, 2) == 1.0);
    assert_ok(nd_fill_(apart, 2.0));
}

/// Even places beside odd ones, in so many ways that the search ends before it has seen all: what
/// is not known to be apart is refused. In fewer ways it is known.
static void test_F12_a_search_that_takes_too_long_counts_as_overlap(void **state) {
    (void)state;
    for (int axes = 3; axes <= ND_MAX_DIMS; axes += ND_MAX_DIMS - 3) {
        int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS], stride = 2;
        for (int i = axes - 1; i >= 0; i--, stride *= 4) {
            shape[i] = 4;
            strides[i] = stride;
        }
        nd_auto nd_tensor *line = nd_ones(ND_SHAPE(stride), ND_F32);
        nd_auto nd_tensor *even = nd_as_strided(line, axes, shape, strides, 0);
        nd_auto nd_tensor *odd = nd_as_strided(line, axes, shape, strides, 1);
        assert_handle(odd);
        assert_ok(nd_fill_(even, 1.0)); // each apart from itself
        assert_status(nd_add_(even, odd), axes == 3 ? ND_OK : ND_ERROR_INVALID_ARGUMENT);
    }
}

static void test_what_x_cannot_hold_is_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_I32);
    nd_auto nd_tensor *y = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(4, 2, 3), ND_I32);
    nd_auto nd_tensor *flags = nd_ones(ND_SHAPE(2, 3), ND_BOOL);
    assert_status(nd_add_(x, y), ND_ERROR_DTYPE);
    assert_status(nd_div_(x, x), ND_ERROR_DTYPE);
    assert_status(nd_add_(x, wide), ND_ERROR_SHAPE);
    assert_status(nd_add_(flags, flags), ND_ERROR_DTYPE);
    assert_status(nd_mul_scalar_(x, 0.5), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_fill_(x, 1e10), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_add_scaled_(x, x, 0.5), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_masked_fill_(x, x, 1), ND_ERROR_DTYPE);
    assert_status(nd_mul_scalar_(flags, 1.0), ND_ERROR_DTYPE);
    assert_status(nd_add_(NULL, x), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_add_(x, NULL), ND_ERROR_INVALID_ARGUMENT);
    for (int64_t i = 0; i < 6; i++)
        assert_true(at_flat(x, i) == 1.0);
    assert_int_equal(nd_get_version(x), 0);
}

static void test_leaves_that_require_a_gradient_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(leaf, true));
    assert_status(nd_add_(leaf, leaf), ND_ERROR_STATE);
    assert_status(nd_fill_(leaf, 0.0), ND_ERROR_STATE);
    nd_no_grad {
        assert_ok(nd_mul_scalar_(leaf, 2.0));
    }
    assert_true(at_flat(leaf, 0) == 2.0);
    nd_auto nd_tensor *plain = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_mul_(plain, leaf));
    assert_true(nd_requires_grad(plain));
    assert_string_equal(nd_node_get_name(nd_get_node(plain)), "mul");
    assert_ok(nd_fill_(plain, 1.0));
    assert_false(nd_requires_grad(plain));
}

/// The bytes stay what they are, and the history comes along.
static void test_a_copy_of_another_handle_onto_the_same_memory_is_a_write(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_auto nd_tensor *y = nd_mul_scalar(leaf, 3.0);
    nd_auto nd_tensor *x = nd_detach(y);
    assert_ok(nd_copy_(x, y));
    assert_int_equal(nd_get_version(x), 1);
    assert_true(nd_requires_grad(x));
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < 3; i++)
        assert_true(at_flat(x, i) == 3.0 && at_flat(nd_get_grad(leaf), i) == 3.0);
    // The other way the history goes: what is copied has none.
    nd_auto nd_tensor *plain = nd_detach(x);
    assert_ok(nd_copy_(x, plain));
    assert_int_equal(nd_get_version(x), 2);
    assert_false(nd_requires_grad(x));
    assert_ok(nd_copy_(x, x));
    assert_int_equal(nd_get_version(x), 2);
}

/// A view and its base: both have the base's history before and after.
static void test_a_copy_of_a_view_of_all_of_a_tensor(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_auto nd_tensor *x = nd_mul_scalar(leaf, 3.0);
    nd_auto nd_tensor *view = nd_slice(x, 0, 3, 1, 0);
    assert_ok(nd_copy_(x, view));
    assert_ok(nd_copy_(view, x));
    assert_int_equal(nd_get_version(x), 2);
    nd_auto nd_tensor *both = nd_add(x, view);
    nd_auto nd_tensor *sum = nd_sum(both, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < 3; i++)
        assert_true(at_flat(x, i) == 3.0 && at_flat(nd_get_grad(leaf), i) == 6.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_results),
        ND_TEST(test_copy_converts),
        ND_TEST(test_empty_tensors),
        ND_TEST(test_F12_partial_overlap_is_refused_and_interleaving_is_not),
        ND_TEST(test_F12_a_tensor_that_overlaps_itself_is_refused),
        ND_TEST(test_F12_rows_that_meet_in_one_element_overlap),
        ND_TEST(test_F12_a_search_that_takes_too_long_counts_as_overlap),
        ND_TEST(test_what_x_cannot_hold_is_refused),
        ND_TEST(test_leaves_that_require_a_gradient_are_refused),
        ND_TEST(test_a_copy_of_another_handle_onto_the_same_memory_is_a_write),
        ND_TEST(test_a_copy_of_a_view_of_all_of_a_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
