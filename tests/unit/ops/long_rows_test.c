// Convolutions of long rows, which oneDNN computes run by run, or lengthened, and their gradients: random
// ones, with integers, whose sums f32 holds, against the library's own loops in f64.
#include "tests/testing.h"

#include <nd/nd.h>

enum { CASES = 120, MOST_LENGTH = 7000 };

typedef struct long_case {
    int64_t n, ci, co, h, w, kh, kw;
    nd_conv2d_options options;
} long_case;

static uint64_t numbers;

static int64_t from_to(int64_t least, int64_t most) {
    numbers = numbers * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return least + (int64_t)((numbers >> 33) % (uint64_t)(most - least + 1));
}

static bool one_in(int64_t n) {
    return from_to(1, n) == 1;
}

static long_case random_case(void) {
    const int64_t groups = one_in(4) ? 2 : 1;
    long_case c = {.n = one_in(4) ? from_to(2, 3) : 1,
                   .ci = groups * from_to(3, 20),
                   .co = groups * from_to(3, 36),
                   .h = one_in(3) ? from_to(2, 4) : 1,
                   .kw = one_in(6) ? from_to(10, 40) : from_to(1, 9)};
    c.kh = c.h > 1 ? from_to(1, c.h) : 1;
    const nd_conv2d_options plain = ND_CONV2D_OPTIONS_INIT;
    c.options = plain;
    c.options.groups = groups;
    c.options.stride[1] = one_in(2) ? 1 : from_to(2, 5);
    c.options.dilation[1] = one_in(3) ? from_to(2, one_in(4) ? 300 : 7) : 1;
    const int64_t window = c.options.dilation[1] * (c.kw - 1) + 1;
    c.w = from_to(window > 2040 ? window : 2040, one_in(3) ? MOST_LENGTH + window : 4200 + window);
    if (one_in(3))
        c.w = from_to(window > 480 ? window : 480, 2100 + window); // lengthened
    c.options.padding[1] = one_in(3) ? from_to(0, 2 * window) : from_to(0, window / 2);
    c.options.padding[0] = c.kh > 1 ? from_to(0, c.kh - 1) : 0;
    if (one_in(12)) { // an image of many rows
        c.n = 1;
        c.h = 17 + c.kh;
        c.w += 8192;
    }
    return c;
}

static nd_tensor *integers(nd_key key, const int64_t *shape) {
    nd_tensor *small = nd_randint(key, -2, 3, 4, shape, ND_I32);
    nd_tensor *out = nd_cast(small, ND_F32);
    nd_release(small);
    assert_non_null(out);
    return out;
}

static void compare(const nd_tensor *found, const nd_tensor *expected, const char *what,
                    int number) {
    nd_tensor *wide = nd_cast(found, ND_F64);
    assert_non_null(wide);
    const double *a = nd_get_data(wide), *b = nd_get_data(expected);
    const int64_t count = nd_get_numel(expected);
    assert_int_equal(nd_get_numel(wide), count);
    for (int64_t i = 0; i < count; i++)
        if (a[i] != b[i])
            fail_msg("case %d, %s, element %lld: %g, not %g", number, what, (long long)i, a[i],
                     b[i]);
    nd_release(wide);
}

static nd_tensor *leaf_of(const nd_tensor *operand, nd_dtype dtype) {
    nd_tensor *same = nd_cast(operand, dtype), *leaf = nd_clone(same);
    nd_release(same);
    assert_int_equal(nd_set_requires_grad(leaf, true), ND_OK);
    return leaf;
}

/// out, and the gradients of x and of the weight.
static void convolve(const long_case *c, nd_dtype dtype, const nd_tensor *const operands[3],
                     nd_tensor *ret_values[3]) {
    nd_tensor *x = leaf_of(operands[0], dtype), *weight = leaf_of(operands[1], dtype);
    nd_tensor *out = nd_conv2d(x, weight, NULL, &c->options);
    nd_tensor *g = nd_cast(operands[2], dtype);
    assert_non_null(out);
    assert_non_null(g);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.grad = g;
    assert_int_equal(nd_backward(out, &options), ND_OK);
    ret_values[0] = nd_detach(out);
    ret_values[1] = nd_retain(nd_get_grad(x));
    ret_values[2] = nd_retain(nd_get_grad(weight));
    nd_release(x);
    nd_release(weight);
    nd_release(out);
    nd_release(g);
}

static void check(const long_case *c, int number) {
    const nd_conv2d_options *o = &c->options;
    const int64_t oh = (c->h + 2 * o->padding[0] - c->kh) + 1;
    const int64_t window = o->dilation[1] * (c->kw - 1) + 1;
    const int64_t ow = (c->w + 2 * o->padding[1] - window) / o->stride[1] + 1;
    const nd_key key = nd_key_new((uint64_t)number);
    const int64_t shapes[3][4] = {
        {c->n, c->ci, c->h, c->w}, {c->co, c->ci / o->groups, c->kh, c->kw}, {c->n, c->co, oh, ow}};
    nd_tensor *operands[3], *found[3], *expected[3];
    for (int i = 0; i < 3; i++)
        operands[i] = integers(nd_key_fold(key, (uint64_t)i), shapes[i]);
    const nd_tensor *const given[3] = {operands[0], operands[1], operands[2]};
    convolve(c, ND_F32, given, found);
    convolve(c, ND_F64, given, expected);
    static const char *const names[3] = {"values", "gradient of x", "gradient of the weight"};
    for (int i = 0; i < 3; i++) {
        compare(found[i], expected[i], names[i], number);
        nd_release(operands[i]);
        nd_release(found[i]);
        nd_release(expected[i]);
    }
}

static void test_long_rows(void **state) {
    (void)state;
    numbers = 7;
    for (int i = 0; i < CASES; i++) {
        const long_case c = random_case();
        assert_int_equal(nd_set_num_threads((int)from_to(1, 3)), ND_OK);
        check(&c, i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_long_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
