// Means of windows by cuDNN, where it is found and means the same, beside those of the CPU:
// results, gradients and gradients of gradients; and who made them.
//
// tests/cudart/planted/ holds a bug that this test must notice.
#include "tests/cudart/graphs.h"
#include "tests/cudart/results.h"
#include <nd/pooling.h>

/// One way of pooling. Numbers of axes that are not there are not read.
typedef struct pooling {
    int axes;
    int64_t sizes[3], kernel[3], stride[3], padding[3];
    bool ceil_mode, count_include_pad;
    int64_t divisor;
    bool by_cudnn;
} pooling;

static const pooling poolings[] = {
    {1, {17}, {4}, {3}, {2}, false, true, 0, true},
    {1, {17}, {4}, {3}, {2}, false, false, 0, true},
    {2, {9, 12}, {3, 2}, {2, 2}, {0, 0}, false, true, 0, true},
    {2, {9, 12}, {3, 4}, {2, 1}, {1, 2}, false, true, 0, true},
    {2, {9, 12}, {3, 4}, {2, 1}, {1, 2}, false, false, 0, true},
    {3, {5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {1, 1, 0}, false, true, 0, true},
    {3, {5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {1, 1, 0}, false, false, 0, true},
    {3, {1, 6, 7}, {1, 3, 2}, {1, 2, 2}, {0, 1, 0}, false, false, 0, true},
    // Rounded up: no window more, and one that reaches beyond the padding.
    {2, {9, 12}, {3, 2}, {2, 2}, {0, 0}, true, true, 0, true},
    {2, {10, 12}, {3, 2}, {2, 2}, {1, 0}, true, true, 0, false},
    {2, {10, 12}, {3, 2}, {2, 2}, {1, 0}, true, false, 0, false},
    {2, {9, 12}, {3, 2}, {2, 2}, {0, 0}, false, true, 5, false}, // sums over the program's divisor
};
enum { POOLINGS = sizeof poolings / sizeof *poolings };

static nd_tensor *mean_of(const pooling *p, const nd_tensor *x) {
    nd_avg_pool1d_options one = ND_AVG_POOL1D_OPTIONS_INIT;
    nd_avg_pool2d_options two = ND_AVG_POOL2D_OPTIONS_INIT;
    nd_avg_pool3d_options three = ND_AVG_POOL3D_OPTIONS_INIT;
    one.ceil_mode = two.ceil_mode = three.ceil_mode = p->ceil_mode;
    one.count_include_pad = two.count_include_pad = three.count_include_pad = p->count_include_pad;
    one.divisor = two.divisor = three.divisor = p->divisor;
    one.kernel = p->kernel[0];
    one.stride = p->stride[0];
    one.padding = p->padding[0];
    for (int i = 0; i < 3; i++) {
        three.kernel[i] = p->kernel[i];
        three.stride[i] = p->stride[i];
        three.padding[i] = p->padding[i];
        if (i == 2)
            break;
        two.kernel[i] = p->kernel[i];
        two.stride[i] = p->stride[i];
        two.padding[i] = p->padding[i];
    }
    return p->axes == 1   ? nd_avg_pool1d(x, &one)
           : p->axes == 2 ? nd_avg_pool2d(x, &two)
                          : nd_avg_pool3d(x, &three);
}

/// The mean of x, the gradient of the sum of its cubes, and that of the sum of that one's squares.
static void pool(const pooling *p, const nd_tensor *x, nd_tensor **ret_results) {
    ret_results[0] = mean_of(p, x);
    differentiate_twice(ret_results[0], x, &ret_results[1]);
}

/// Random, on a device, its last two axes written in the other order where `turned`.
static nd_tensor *images(const pooling *p, nd_device device, nd_dtype dtype, bool turned) {
    int64_t shape[5] = {2, 3};
    for (int i = 0; i < p->axes; i++)
        shape[2 + i] = p->sizes[i];
    const int last = p->axes + 1;
    if (turned) {
        const int64_t kept = shape[last];
        shape[last] = shape[last - 1];
        shape[last - 1] = kept;
    }
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(5), p->axes + 2, shape, ND_F64);
    nd_auto nd_tensor *narrow = nd_cast(drawn, dtype);
    nd_auto nd_tensor *there = nd_to(narrow, device);
    nd_tensor *x = turned ? nd_transpose(there, last - 1, last) : nd_retain(there);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

/// Pools on the device and on the CPU; returns how many pieces of work cuDNN did.
static int check_pooling(const pooling *p, nd_dtype dtype, bool turned) {
    const double precision = dtype == ND_F64   ? 1e-14
                             : dtype == ND_F32 ? 2e-6
                             : dtype == ND_F16 ? 4e-3
                                               : 3e-2;
    nd_tensor *there = images(p, cuda(0), dtype, turned), *here = images(p, cpu, dtype, turned);
    nd_tensor *got[RESULTS] = {NULL}, *expected[RESULTS] = {NULL};
    const uint64_t before = statistics().libraries;
    pool(p, there, got);
    const int queued = (int)(statistics().libraries - before);
    pool(p, here, expected);
    char what[32];
    snprintf(what, sizeof what, "pooling %d", (int)(p - poolings));
    for (int i = 0; i < RESULTS; i++)
        assert_alike(what, i, got[i], expected[i], precision);
    release_results(got);
    release_results(expected);
    nd_release(there);
    nd_release(here);
    assert_nothing_left_on_devices();
    return queued;
}

/// The mean; its gradient; of that, to the gradient of the mean and to the mean, and on to x twice.
static void check_all(bool found) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    cudart_set_seed(0);
    for (int which = 0; which < POOLINGS; which++)
        for (int i = 0; i < 4; i++)
            for (int turned = 0; turned < 2; turned++) {
                const int queued = check_pooling(&poolings[which], dtypes[i], turned != 0);
                const int expected = found && poolings[which].by_cudnn ? 4 : 0;
                if (queued != expected)
                    fail_msg("pooling %d, %s: %d pieces of work by cuDNN, not %d", which,
                             nd_dtype_get_name(dtypes[i]), queued, expected);
            }
}

static void test_means_by_cudnn(void **state) {
    (void)state;
    check_all(true);
}

static int pool_without(void) {
    check_all(false);
    return 0;
}

/// Where it is missing, cannot begin or refuses, ndarc's own kernels serve.
static void test_means_without_cudnn(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"ND_CUDNN", "/nonexistent/libcudnn.so"},
        {"ND_CUDNN", "libm.so.6"},
        {"ND_CUDART_CUDNN", "1001"},
        {"ND_CUDART_CUDNN", "103"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_succeeds_with("pool_without", cases[i][0], cases[i][1]);
}

/// Largest elements are never cuDNN's: of equal ones the first is taken, and its place is kept.
static void test_largest_elements_are_not_cudnns(void **state) {
    (void)state;
    nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
    options.kernel[0] = options.kernel[1] = 2;
    const uint64_t before = statistics().libraries;
    nd_auto nd_tensor *here = nd_zeros(ND_SHAPE(1, 1, 4, 4), ND_F32);
    nd_auto nd_tensor *x = nd_to(here, cuda(0)), *gradient = NULL;
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = nd_max_pool2d(x, &options), *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_grad(sum, 1, (const nd_tensor *[]){x}, NULL, &gradient));
    float found[16];
    assert_ok(nd_copy_to_host(gradient, found, sizeof found));
    for (int i = 0; i < 16; i++)
        assert_true(found[i] == (i / 4 % 2 == 0 && i % 2 == 0));
    assert_int_equal(statistics().libraries, before);
}

/// In a graph: cuDNN's bits, which are those of the eager call.
static void test_means_are_captured(void **state) {
    (void)state;
    const pooling *p = &poolings[4];
    nd_tensor *x = images(p, cuda(0), ND_F32, false), *got[RESULTS] = {NULL};
    nd_tensor *eager[RESULTS] = {NULL};
    nd_graph *graph = NULL;
    pool(p, x, eager); // the handle is made outside
    nd_with_capture(cuda(0), &graph) pool(p, x, got);
    assert_handle(graph);
    assert_ok(nd_graph_launch(graph));
    for (int i = 0; i < RESULTS; i++) {
        nd_auto nd_tensor *near = nd_to(eager[i], cpu);
        assert_true(distance(got[i], near) == 0);
    }
    release_results(got);
    release_results(eager);
    nd_release(graph);
    nd_release(x);
    assert_nothing_left_on_devices();
}

int main(int argc, char **argv) {
    static const role roles[] = {{"pool_without", pool_without}, {NULL, NULL}};
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_means_by_cudnn),
        ND_TEST(test_means_without_cudnn),
        ND_TEST(test_largest_elements_are_not_cudnns),
        ND_TEST(test_means_are_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
