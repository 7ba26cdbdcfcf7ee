// Concat and roll of rows that are long enough to be written together: parts of every size, layout and
// number along every axis are what they were cut from.
#include "tests/testing.h"
#include <nd/nd.h>
#include <nd/out.h>

enum { I = 5, J = 7, K = 40, MOST_PARTS = 12 };

static nd_tensor *counted(void) {
    float values[I * J * K];
    for (int i = 0; i < I * J * K; i++)
        values[i] = (float)i;
    return nd_from_data(values, ND_SHAPE(I, J, K), ND_F32);
}

/// x's elements in row-major order are those of counted(), each axis rolled by so many places.
static void assert_counted(const nd_tensor *x, const int64_t *by) {
    static float values[I * J * K];
    assert_handle(x);
    assert_ok(nd_copy_to_host(x, values, sizeof values));
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < J; j++)
            for (int64_t k = 0; k < K; k++) {
                const int64_t at = ((i + by[0]) % I * J + (j + by[1]) % J) * K + (k + by[2]) % K;
                assert_true(values[at] == (float)((i * J + j) * K + k));
            }
}

/// The same elements of a slice, in memory where the first axis is the innermost.
static nd_tensor *laid_otherwise(nd_tensor *slice) {
    nd_auto nd_tensor *turned = nd_transpose(slice, 0, 2);
    nd_auto nd_tensor *laid = nd_contiguous(turned);
    nd_release(slice);
    return nd_transpose(laid, 0, 2);
}

static void check_parts(const nd_tensor *whole, int axis, size_t count) {
    const int64_t none[3] = {0};
    nd_tensor *parts[MOST_PARTS];
    int64_t size = nd_get_shape(whole)[axis], begin = 0;
    for (size_t k = 0; k < count; k++) {
        // Some parts are empty.
        int64_t end = k + 1 == count ? size : begin + (size - begin) / 3;
        parts[k] = nd_slice(whole, begin, end, 1, axis);
        if (k % 4 == 3)
            parts[k] = laid_otherwise(parts[k]);
        begin = end;
    }
    const nd_tensor *const *inputs = (const nd_tensor *const *)parts;
    nd_auto nd_tensor *joined = nd_concat(count, inputs, axis);
    assert_counted(joined, none);
    // Into every second row of something larger, of which nothing else is written.
    nd_auto nd_tensor *room = nd_zeros(ND_SHAPE(2 * I, J, K + 3), ND_F32);
    nd_auto nd_tensor *rows = nd_slice(room, 1, 2 * I, 2, 0), *out = nd_slice(rows, 2, K + 2, 1, 2);
    assert_ok(nd_concat_out(count, inputs, axis, out));
    assert_counted(out, none);
    nd_auto nd_tensor *nonzero = nd_count_nonzero(room, 0, NULL, false);
    int64_t written = 0;
    assert_ok(nd_copy_to_host(nonzero, &written, sizeof written));
    assert_int_equal(written, I * J * K - 1);
    for (size_t k = 0; k < count; k++)
        nd_release(parts[k]);
}

static void test_parts_are_whole_again(void **state) {
    (void)state;
    nd_auto nd_tensor *whole = counted();
    for (int axis = 0; axis < 3; axis++)
        for (size_t count = 1; count <= MOST_PARTS; count++)
            check_parts(whole, axis, count);
}

/// Parts of one place each, into every second place of something larger.
static void test_parts_with_gaps_between_them(void **state) {
    (void)state;
    const int64_t none[3] = {0};
    nd_auto nd_tensor *whole = counted(), *sparse = nd_zeros(ND_SHAPE(I, 2 * J, K), ND_F32);
    nd_auto nd_tensor *out = nd_slice(sparse, 1, 2 * J, 2, 1),
                      *others = nd_slice(sparse, 0, 2 * J, 2, 1);
    nd_tensor *parts[J];
    for (int j = 0; j < J; j++)
        parts[j] = nd_select(whole, j, 1);
    assert_ok(nd_stack_out(J, (const nd_tensor *const *)parts, 1, out));
    assert_counted(out, none);
    nd_auto nd_tensor *nonzero = nd_count_nonzero(others, 0, NULL, false);
    int64_t written = 1;
    assert_ok(nd_copy_to_host(nonzero, &written, sizeof written));
    assert_int_equal(written, 0);
    for (int j = 0; j < J; j++)
        nd_release(parts[j]);
}

static void test_rolled_rows(void **state) {
    (void)state;
    nd_auto nd_tensor *x = counted();
    const int64_t *shape = nd_get_shape(x);
    for (int axis = 0; axis < 3; axis++)
        for (int64_t shift = -shape[axis]; shift <= shape[axis]; shift++) {
            nd_auto nd_tensor *y = nd_roll(x, shift, axis);
            int64_t by[3] = {0};
            by[axis] = shift + shape[axis];
            assert_counted(y, by);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_parts_are_whole_again),
        ND_TEST(test_parts_with_gaps_between_them),
        ND_TEST(test_rolled_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
