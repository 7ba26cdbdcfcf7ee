// Elementwise operations of operands that lie along another axis than the last, which large calls
// bring together in tiles: the same bits as those of contiguous copies, for sizes beside those of
// tiles, in every dtype and on one thread and several.
#include "tests/testing.h"
#include <nd/nd.h>

static const int64_t shapes[][3] = {{1, 64, 64}, {1, 130, 257}, {3, 17, 129},
                                    {2, 8, 300}, {5, 100, 11},  {1, 16, 1024},
                                    {70, 9, 8},  {2, 3, 1000},  {1, 300, 130}};
static const int orders[][3] = {{0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}};

/// Of a shape, whose axes lie in memory in another order.
static nd_tensor *permuted(uint64_t seed, const int64_t *shape, const int *order, nd_dtype dtype) {
    int64_t before[3];
    for (int i = 0; i < 3; i++)
        before[order[i]] = shape[i];
    nd_auto nd_tensor *x = nd_randint(nd_key_new(seed), dtype == ND_BOOL ? 0 : 1,
                                      dtype == ND_BOOL ? 2 : 100, 3, before, dtype);
    return nd_permute(x, 3, order);
}

static void assert_same(const nd_tensor *result, const nd_tensor *expected) {
    assert_handle(result);
    assert_handle(expected);
    nd_auto nd_tensor *y = nd_contiguous(result); // a cast to the dtype itself is its operand
    assert_int_equal(nd_get_numel(y), nd_get_numel(expected));
    size_t bytes = (size_t)nd_get_numel(y) * nd_dtype_get_size(nd_get_dtype(y));
    assert_memory_equal(nd_get_data(y), nd_get_data(expected), bytes);
}

static void check(nd_dtype dtype, const int64_t *shape, const int *order_a, const int *order_b) {
    nd_auto nd_tensor *a = permuted(1, shape, order_a, dtype);
    nd_auto nd_tensor *b = permuted(2, shape, order_b, dtype);
    nd_auto nd_tensor *row = permuted(3, (int64_t[]){1, 1, shape[2]}, orders[0], dtype);
    nd_auto nd_tensor *column = permuted(4, (int64_t[]){shape[0], shape[1], 1}, orders[2], dtype);
    nd_auto nd_tensor *mask = permuted(5, shape, order_b, ND_BOOL);
    nd_auto nd_tensor *a_flat = nd_contiguous(a), *b_flat = nd_contiguous(b);
    nd_auto nd_tensor *mask_flat = nd_contiguous(mask);
    nd_auto nd_tensor *less = nd_less(a, b), *less_flat = nd_less(a_flat, b_flat);
    assert_same(less, less_flat);
    nd_auto nd_tensor *chosen = nd_where(mask, a, b);
    nd_auto nd_tensor *chosen_flat = nd_where(mask_flat, a_flat, b_flat);
    assert_same(chosen, chosen_flat);
    nd_auto nd_tensor *wide = nd_cast(a, ND_F64), *wide_flat = nd_cast(a_flat, ND_F64);
    assert_same(wide, wide_flat);
    nd_auto nd_tensor *narrow = nd_cast(a, ND_F16), *narrow_flat = nd_cast(a_flat, ND_F16);
    assert_same(narrow, narrow_flat);
    if (dtype == ND_BOOL)
        return;
    nd_auto nd_tensor *sum = nd_add(a, b), *sum_flat = nd_add(a_flat, b_flat);
    assert_same(sum, sum_flat);
    nd_auto nd_tensor *left = nd_floor_divide(a, row), *left_flat = nd_floor_divide(a_flat, row);
    assert_same(left, left_flat);
    nd_auto nd_tensor *product = nd_mul(column, b), *product_flat = nd_mul(column, b_flat);
    assert_same(product, product_flat);
    nd_auto nd_tensor *channel = permuted(6, (int64_t[]){1, shape[1], 1}, orders[0], dtype);
    nd_auto nd_tensor *scaled = nd_mul(a, channel), *scaled_flat = nd_mul(a_flat, channel);
    assert_same(scaled, scaled_flat);
    nd_auto nd_tensor *log = nd_log(a), *log_flat = nd_log(a_flat);
    assert_same(log, log_flat);
    // In place, of what lies as the result does and of what does not.
    nd_auto nd_tensor *target = nd_clone(b_flat);
    assert_int_equal(nd_add_(target, a), ND_OK);
    assert_same(target, sum_flat);
    assert_int_equal(nd_add_(b, a), ND_OK);
    nd_auto nd_tensor *b_sum = nd_contiguous(b);
    assert_same(b_sum, sum_flat);
}

static void test_operands_that_lie_down_give_the_bits_of_contiguous_ones(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_BOOL, ND_U8,   ND_I16, ND_I32, ND_I64,
                                      ND_F16,  ND_BF16, ND_F32, ND_F64};
    for (int threads = 1; threads <= 3; threads += 2) {
        assert_int_equal(nd_set_num_threads(threads), ND_OK);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
                    check(dtypes[d], shapes[s], orders[o], orders[(o + s) % 4]);
                    if (s % 4 != 0) // both as one another
                        check(dtypes[d], shapes[s], orders[o], orders[o]);
                }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_operands_that_lie_down_give_the_bits_of_contiguous_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
