// Concat, stack, and the inverse of slicing.
#include "lib/tensor/join.h"
#include "lib/tensor/tensor.h"
#include "tests/unit/tensor/values.h"

#define INPUTS(...)                                                                                \
    sizeof((const nd_tensor *[]){__VA_ARGS__}) / sizeof(nd_tensor *), (const nd_tensor *const[]) { \
        __VA_ARGS__                                                                                \
    }

static void test_concat_along_each_axis(void **state) {
    (void)state;
    nd_device devices[] = {on_cpu, on_fake};
    for (int i = 0; i < 2; i++) {
        nd_tensor *a = counted(devices[i], ND_I32, ND_SHAPE(1, 2));
        nd_tensor *b = counted(devices[i], ND_I32, ND_SHAPE(2, 2)), *t = nd_transpose(b, 0, 1);
        nd_tensor *rows = nd_concat(INPUTS(a, t, a), 0), *columns = nd_concat(INPUTS(b, t), -1);
        assert_shape(rows, 4, 2);
        assert_values(rows, 0, 1, 0, 2, 1, 3, 0, 1);
        assert_values(columns, 0, 1, 0, 2, 2, 3, 1, 3);
        nd_tensor *none = nd_slice(a, 0, 0, 1, 0), *joined = nd_concat(INPUTS(none, a, none), 0);
        assert_values(joined, 0, 1);
        nd_tensor *empty = nd_concat(INPUTS(none), 0);
        assert_shape(empty, 0, 2);
        nd_tensor *all[] = {a, b, t, rows, columns, none, joined, empty};
        for (int k = 0; k < 8; k++)
            nd_release(all[k]);
    }
}

static void test_stack_adds_an_axis(void **state) {
    (void)state;
    nd_tensor *a = counted(on_cpu, ND_F32, ND_SHAPE(2)), *b = nd_ones(ND_SHAPE(2), ND_F32);
    nd_tensor *rows = nd_stack(INPUTS(a, b, a), 0), *columns = nd_stack(INPUTS(a, b), -1);
    assert_shape(rows, 3, 2);
    assert_values(rows, 0, 1, 1, 1, 0, 1);
    assert_values(columns, 0, 1, 1, 1);
    nd_tensor *one = nd_scalar(4, ND_F32), *pair = nd_stack(INPUTS(one, one), 0);
    assert_shape(pair, 2);
    assert_values(pair, 4, 4);
    nd_tensor *all[] = {a, b, rows, columns, one, pair};
    for (int k = 0; k < 6; k++)
        nd_release(all[k]);
}

static void test_joining_refuses(void **state) {
    (void)state;
    nd_tensor *a = nd_zeros(ND_SHAPE(2, 3), ND_F32), *b = nd_zeros(ND_SHAPE(2, 4), ND_F32);
    nd_tensor *c = nd_zeros(ND_SHAPE(2, 3), ND_F64), *d = nd_to(a, on_fake);
    nd_tensor *scalar = nd_scalar(0, ND_F32), *flat = nd_zeros(ND_SHAPE(3), ND_F32);
    assert_refused(nd_concat(INPUTS(a, b), 0), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(),
                        "concat: shapes [2, 3] and [2, 4] do not join along axis 0");
    assert_refused(nd_concat(INPUTS(a, flat), 0), ND_ERROR_SHAPE);
    assert_refused(nd_concat(INPUTS(a, c), 0), ND_ERROR_DTYPE);
    assert_string_equal(nd_error_get_message(), "concat: inputs of float32 and float64");
    assert_refused(nd_concat(INPUTS(a, d), 0), ND_ERROR_DEVICE);
    assert_string_equal(nd_error_get_message(), "concat: inputs on cpu:0 and fake:1");
    assert_refused(nd_concat(INPUTS(a, a), 2), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_concat(INPUTS(scalar), 0), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_concat(INPUTS(a, NULL), 0), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_concat(INPUTS(a), 0 - 3), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_concat(2, NULL, 0), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_concat(0, (const nd_tensor *const[]){a}, 0), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_stack(INPUTS(a, b), 1), ND_ERROR_SHAPE);
    assert_refused(nd_stack(INPUTS(a, a), 3), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_stack(1, NULL, 0), ND_ERROR_INVALID_ARGUMENT);
    nd_tensor *wide = nd_expand(scalar, ND_SHAPE((int64_t)1 << 60));
    assert_refused(nd_concat(INPUTS(wide, wide, wide, wide, wide, wide, wide, wide), 0),
                   ND_ERROR_SHAPE);
    assert_ok(nd_close(c));
    assert_refused(nd_concat(INPUTS(c), 0), ND_ERROR_CLOSED);
    nd_tensor *all[] = {a, b, c, d, scalar, flat, wide};
    for (int k = 0; k < 7; k++)
        nd_release(all[k]);
}

static void test_unslice_puts_back(void **state) {
    (void)state;
    nd_device devices[] = {on_cpu, on_fake};
    for (int i = 0; i < 2; i++) {
        nd_tensor *x = counted(devices[i], ND_F32, ND_SHAPE(2, 5));
        nd_tensor *part = nd_slice(x, 1, 5, 2, 1);
        nd_tensor *back = nd__join_unslice(part, ND_SHAPE(2, 5), 1, 1, 2);
        assert_values(back, 0, 1, 0, 3, 0, 0, 6, 0, 8, 0);
        nd_tensor *none = nd_slice(x, 2, 2, 1, 0),
                  *zero = nd__join_unslice(none, ND_SHAPE(2, 5), 0, 2, 1);
        assert_values(zero, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        nd_tensor *all[] = {x, part, back, none, zero};
        for (int k = 0; k < 5; k++)
            nd_release(all[k]);
    }
}

static void test_B19_concat_a_thousand_times_keeps_the_last(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_with_manager(manager) {
        nd_tensor *piece = nd_ones(ND_SHAPE(3), ND_F32), *x = nd_ones(ND_SHAPE(3), ND_F32);
        for (int i = 0; i < 1000; i++) {
            nd_tensor *longer = nd_concat(INPUTS(x, piece), 0);
            assert_handle(longer);
            nd_release(x);
            x = longer;
        }
        assert_int_equal(nd_get_numel(x), 3003);
        assert_int_equal(nd_manager_get_total_bytes(manager), 4 * 3003 + 12);
        nd_release(x);
        nd_release(piece);
        assert_int_equal(nd_manager_get_total_objects(manager), 0);
    }
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_concat_along_each_axis),
        ND_TEST(test_stack_adds_an_axis),
        ND_TEST(test_joining_refuses),
        ND_TEST(test_unslice_puts_back),
        ND_TEST(test_B19_concat_a_thousand_times_keeps_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
