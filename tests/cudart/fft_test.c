// Fourier transforms by cuFFT, where it is found, beside those of the CPU: results, gradients and
// gradients of gradients; who made them, in graphs, on several streams, and when it fails.
//
// tests/cudart/planted/ holds bugs that this test must notice.
#include "tests/cudart/graphs.h"
#include "tests/cudart/results.h"
#include <nd/fft.h>
#include <nd/graph.h>
#include <nd/stream.h>

typedef nd_tensor *transform_function(const nd_tensor *, int64_t, int, nd_fft_norm);

typedef struct kind {
    const char *name;
    transform_function *f;
    bool of_pairs;
} kind;

static const kind kinds[] = {
    {"fft", nd_fft, true},     {"ifft", nd_ifft, true}, {"rfft", nd_rfft, false},
    {"irfft", nd_irfft, true}, {"hfft", nd_hfft, true}, {"ihfft", nd_ihfft, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/// How x lies in memory.
typedef enum layout { DENSE, TURNED, BEHIND_ONE, LAYOUTS } layout;

/// Random, on a device: [3, 6, 5], or that many pairs.
static nd_tensor *signal_on(nd_device device, nd_dtype dtype, bool of_pairs, layout how) {
    const int64_t sizes[] = {how == TURNED ? 6 : 3, how == TURNED ? 3 : 6, 5, 2};
    int64_t count = 1;
    for (int i = 0; i < 3 + of_pairs; i++)
        count *= sizes[i];
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(7), ND_SHAPE(count + 1), ND_F64);
    nd_auto nd_tensor *narrow = nd_cast(drawn, dtype), *all = nd_to(narrow, device);
    // One element behind the beginning of the block pairs do not lie as cuFFT wants them.
    const int64_t first = how == BEHIND_ONE;
    nd_auto nd_tensor *cut = nd_slice(all, first, first + count, 1, 0);
    nd_auto nd_tensor *shaped = nd_reshape(cut, 3 + of_pairs, sizes);
    nd_tensor *x = how == TURNED ? nd_transpose(shaped, 0, 1) : nd_retain(shaped);
    assert_handle(x);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

/// The transform of x, the gradient of the sum of its cubes, and that of the sum of that one's squares.
static void transform(const kind *of, const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm,
                      nd_tensor **ret_results) {
    ret_results[0] = of->f(x, n, axis, norm);
    differentiate_twice(ret_results[0], x, &ret_results[1]);
}

static void assert_all_alike(const char *what, nd_tensor *const *got, nd_tensor *const *expected) {
    for (int i = 0; i < RESULTS; i++)
        assert_alike(what, i, got[i], expected[i],
                     nd_get_dtype(expected[i]) == ND_F64 ? 1e-12 : 1e-5);
}

/// On the device and on the CPU; returns how many pieces of work cuFFT did.
static int check(const kind *of, nd_dtype dtype, layout how, int64_t n, int axis,
                 nd_fft_norm norm) {
    nd_tensor *there = signal_on(cuda(0), dtype, of->of_pairs, how);
    nd_tensor *here = signal_on(cpu, dtype, of->of_pairs, how);
    nd_tensor *got[RESULTS] = {NULL}, *expected[RESULTS] = {NULL};
    const uint64_t before = statistics().libraries;
    transform(of, there, n, axis, norm, got);
    const int queued = (int)(statistics().libraries - before);
    transform(of, here, n, axis, norm, expected);
    char what[128];
    snprintf(what, sizeof what, "%s of layout %d, n %d, axis %d, norm %d", of->name, (int)how,
             (int)n, axis, (int)norm);
    assert_all_alike(what, got, expected);
    assert_true(distance(there, here) == 0); // it was read alone
    release_results(got);
    release_results(expected);
    nd_release(there);
    nd_release(here);
    assert_nothing_left_on_devices();
    return queued;
}

/// The transform, its adjoint, and both once more.
static void check_all(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64};
    static const int64_t lengths[] = {0, 2, 4, 9, 16};
    for (int which = 0; which < KINDS; which++)
        for (int i = 0; i < 2; i++)
            for (layout how = 0; how < LAYOUTS; how++)
                for (int l = 0; l < 5; l++)
                    for (int axis = 0; axis < 3; axis++) {
                        const nd_fft_norm norm = (nd_fft_norm)((which + l + axis) % 3);
                        const int queued =
                            check(&kinds[which], dtypes[i], how, lengths[l], axis, norm);
                        if (queued != 4)
                            fail_msg("%s: %d pieces of work by cuFFT", kinds[which].name, queued);
                    }
}

static void test_transforms_by_cufft(void **state) {
    (void)state;
    cudart_set_seed(0);
    check_all();
}

static void test_several_axes(void **state) {
    (void)state;
    nd_auto nd_tensor *there = signal_on(cuda(0), ND_F64, false, DENSE);
    nd_auto nd_tensor *here = signal_on(cpu, ND_F64, false, DENSE);
    nd_auto nd_tensor *got = nd_rfftn(there, 0, NULL, NULL, ND_FFT_NORM_ORTHO);
    nd_auto nd_tensor *expected = nd_rfftn(here, 0, NULL, NULL, ND_FFT_NORM_ORTHO);
    assert_true(distance(got, expected) < 1e-13);
    const int64_t sizes[] = {3, 6, 5};
    const int axes[] = {0, 1, 2};
    nd_auto nd_tensor *back = nd_irfftn(got, 3, sizes, axes, ND_FFT_NORM_ORTHO);
    assert_true(distance(back, here) < 1e-13);
}

/// Integers and 16-bit floats are computed in f32, a line of one element is no work for cuFFT, and nothing
/// has transforms that are nothing.
static void test_what_is_small(void **state) {
    (void)state;
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(7), ND_SHAPE(3, 4), ND_F32);
    nd_auto nd_tensor *half = nd_cast(drawn, ND_F16), *there = nd_to(half, cuda(0));
    nd_auto nd_tensor *got = nd_rfft(there, 0, 1, ND_FFT_NORM_BACKWARD);
    nd_auto nd_tensor *expected = nd_rfft(half, 0, 1, ND_FFT_NORM_BACKWARD);
    assert_int_equal(nd_get_dtype(got), ND_F32);
    assert_true(distance(got, expected) < 1e-6);
    const uint64_t before = statistics().libraries;
    nd_auto nd_tensor *one = nd_rfft(there, 1, 1, ND_FFT_NORM_BACKWARD);
    nd_auto nd_tensor *one_here = nd_rfft(half, 1, 1, ND_FFT_NORM_BACKWARD);
    assert_true(distance(one, one_here) == 0);
    nd_auto nd_tensor *none = nd_slice(there, 0, 0, 1, 0);
    nd_auto nd_tensor *nothing = nd_rfft(none, 0, 1, ND_FFT_NORM_BACKWARD);
    assert_int_equal(nd_get_numel(nothing), 0);
    nd_auto nd_tensor *no_places = nd_slice(there, 0, 0, 1, 1);
    nd_auto nd_tensor *zeros = nd_rfft(no_places, 4, 1, ND_FFT_NORM_BACKWARD);
    assert_int_equal(nd_get_numel(zeros), 3 * 3 * 2);
    assert_true(sum_of(zeros) == 0);
    assert_int_equal(statistics().libraries, before);
}

/// Not a number stays in its line, and the imaginary parts that a half does not have are not read.
static void test_what_is_not_a_number(void **state) {
    (void)state;
    nd_auto nd_tensor *here = nd_ones(ND_SHAPE(2, 3, 2), ND_F32);
    float *numbers = nd_get_data(here);
    numbers[1] = numbers[5] = NAN; // the imaginary parts of the first line's ends
    numbers[8] = NAN;              // a real part of the second
    nd_auto nd_tensor *there = nd_to(here, cuda(0));
    nd_auto nd_tensor *got = nd_irfft(there, 4, 1, ND_FFT_NORM_BACKWARD), *near = nd_to(got, cpu);
    nd_auto nd_tensor *expected = nd_irfft(here, 4, 1, ND_FFT_NORM_BACKWARD);
    const float *a = nd_get_data(near), *b = nd_get_data(expected);
    for (int i = 0; i < 4; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-6F);
    assert_true(isnan(a[4]) && isnan(b[4]));
}

static int transform_without(void) {
    for (int which = 0; which < KINDS; which++)
        for (int axis = 0; axis < 3; axis++)
            if (check(&kinds[which], ND_F64, TURNED, axis * 4, axis, ND_FFT_NORM_ORTHO) != 0)
                fail_msg("%s: cuFFT worked", kinds[which].name);
    return 0;
}

/// Where it is missing, cannot begin or refuses, the host serves.
static void test_transforms_without_cufft(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"ND_CUFFT", "/nonexistent/libcufft.so"},
        {"ND_CUFFT", "libm.so.6"},
        {"ND_CUDART_CUFFT", "1005"},
        {"ND_CUDART_CUFFT", "100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_succeeds_with("transform_without", cases[i][0], cases[i][1]);
}

static void check_failure(const char *asked, nd_status expected, int64_t n) {
    nd_auto nd_tensor *x = signal_on(cuda(0), ND_F32, true, DENSE);
    setenv("ND_CUDART_CUFFT", asked, 1);
    assert_null(nd_fft(x, n, 1, ND_FFT_NORM_BACKWARD));
    assert_int_equal(nd_error_get_status(), expected);
    assert_int_equal(strncmp(nd_error_get_message(), "fft: ", 5), 0);
    nd_error_clear();
    unsetenv("ND_CUDART_CUFFT");
    nd_auto nd_tensor *y = nd_fft(x, n, 1, ND_FFT_NORM_BACKWARD);
    assert_handle(y);
}

/// Of each a length of its own, so that no plan is there yet.
static void test_failures_are_told(void **state) {
    (void)state;
    check_failure("1002", ND_ERROR_OUT_OF_MEMORY, 31);
    check_failure("101", ND_ERROR_OUT_OF_MEMORY, 32);
    check_failure("103", ND_ERROR_DEVICE, 34);
    assert_nothing_left_on_devices();
}

/// Makes so many plans that no other one is left but those of graphs.
static void fill_plans(void) {
    nd_auto nd_tensor *x = signal_on(cuda(0), ND_F32, false, DENSE);
    nd_auto nd_tensor *here = signal_on(cpu, ND_F32, false, DENSE);
    for (int n = 100; n < 170; n++) {
        nd_auto nd_tensor *y = nd_rfft(x, n, 2, ND_FFT_NORM_BACKWARD);
        nd_auto nd_tensor *expected = nd_rfft(here, n, 2, ND_FFT_NORM_BACKWARD);
        assert_true(distance(y, expected) < 1e-5);
    }
}

/// The bits of eager calls; and a plan stays as long as a graph may use it.
static void test_transforms_are_captured(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = signal_on(cuda(0), ND_F32, false, TURNED);
        nd_tensor *eager[RESULTS] = {NULL}, *got[RESULTS] = {NULL};
        nd_graph *graph = NULL;
        transform(&kinds[2], x, 0, 1, ND_FFT_NORM_ORTHO, eager); // its plans are made outside
        nd_with_capture(cuda(0), &graph) transform(&kinds[2], x, 0, 1, ND_FFT_NORM_ORTHO, got);
        assert_handle(graph);
        fill_plans();
        for (int launch = 0; launch < 2; launch++)
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
}

/// Plans of graphs that are gone give their places to others, and those of graphs that are there take none.
static void test_graphs_give_plans_back(void **state) {
    (void)state;
    nd_tensor *x = signal_on(cuda(0), ND_F32, false, DENSE);
    nd_graph *graphs[80] = {NULL};
    for (int n = 0; n < 80; n++) {
        const uint64_t before = statistics().libraries;
        nd_auto nd_tensor *eager = nd_rfft(x, 200 + n, 2, ND_FFT_NORM_BACKWARD);
        nd_tensor *y = NULL;
        nd_with_capture(cuda(0), &graphs[n]) y = nd_rfft(x, 200 + n, 2, ND_FFT_NORM_BACKWARD);
        assert_handle(y);
        assert_int_equal(statistics().libraries - before, 1); // the other one was captured
        assert_ok(nd_graph_launch(graphs[n]));
        nd_auto nd_tensor *near = nd_to(eager, cpu);
        assert_true(distance(y, near) == 0);
        nd_release(y);
    }
    for (int n = 0; n < 80; n++)
        nd_release(graphs[n]);
    setenv("ND_CUDART_CUFFT", "104", 1);
    for (int n = 0; n < 200; n++) {
        nd_graph *graph = NULL;
        nd_auto nd_tensor *eager = nd_rfft(x, 300 + n, 2, ND_FFT_NORM_BACKWARD);
        assert_handle(eager);
        assert_ok(nd_capture_begin(cuda(0)));
        nd_auto nd_tensor *y = nd_rfft(x, 300 + n, 2, ND_FFT_NORM_BACKWARD);
        assert_handle(y);
        if (n % 2)
            nd_capture_abandon();
        else
            graph = nd_capture_end();
        nd_release(graph);
    }
    unsetenv("ND_CUDART_CUFFT");
    nd_release(x);
    assert_nothing_left_on_devices();
}

/// A line of one element is its own transform, but for factors and what is beside it.
static void test_lines_of_one_element(void **state) {
    (void)state;
    for (int which = 0; which < KINDS; which++) {
        const kind *of = &kinds[which];
        nd_tensor *there = signal_on(cuda(0), ND_F64, of->of_pairs, TURNED);
        nd_tensor *here = signal_on(cpu, ND_F64, of->of_pairs, TURNED);
        nd_tensor *got[RESULTS] = {NULL}, *expected[RESULTS] = {NULL};
        nd_graph *graph = NULL;
        const uint64_t before = statistics().libraries;
        nd_with_capture(cuda(0), &graph) transform(of, there, 1, 1, ND_FFT_NORM_ORTHO, got);
        assert_ok(nd_graph_launch(graph));
        transform(of, here, 1, 1, ND_FFT_NORM_ORTHO, expected);
        assert_all_alike(of->name, got, expected);
        assert_int_equal(statistics().libraries, before);
        release_results(got);
        release_results(expected);
        nd_release(graph);
        nd_release(there);
        nd_release(here);
    }
    assert_nothing_left_on_devices();
}

static void test_no_plan_is_made_in_a_capture(void **state) {
    (void)state;
    nd_auto nd_tensor *x = signal_on(cuda(0), ND_F32, false, DENSE);
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        assert_null(nd_rfft(x, 77, 2, ND_FFT_NORM_BACKWARD));
        check_refusal("nd_rfft()", true, ND_ERROR_STATE, true);
        nd_auto nd_tensor *y = nd_square(x);
        assert_handle(y);
    }
    assert_handle(graph); // it went on
    nd_release(graph);
}

/// One plan on two streams at once: the runtime ends the program where they share memory without an order.
static void test_streams_share_a_plan(void **state) {
    (void)state;
    nd_auto nd_tensor *here = signal_on(cpu, ND_F64, true, DENSE);
    nd_auto nd_tensor *expected = nd_fft(here, 0, 1, ND_FFT_NORM_BACKWARD);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_auto nd_tensor *x = nd_to(here, cuda(0));
        nd_stream *streams[] = {nd_stream_new(cuda(0)), nd_stream_new(cuda(0))};
        nd_tensor *y[8];
        for (int i = 0; i < 8; i++)
            nd_with_stream(streams[i % 2]) y[i] = nd_fft(x, 0, 1, ND_FFT_NORM_BACKWARD);
        for (int i = 0; i < 8; i++) {
            assert_true(distance(y[i], expected) < 1e-13);
            nd_release(y[i]);
        }
        nd_release(streams[0]);
        nd_release(streams[1]);
    }
    assert_nothing_left_on_devices();
}

int main(int argc, char **argv) {
    static const role roles[] = {{"transform_without", transform_without}, {NULL, NULL}};
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_transforms_by_cufft),
        ND_TEST(test_several_axes),
        ND_TEST(test_what_is_small),
        ND_TEST(test_what_is_not_a_number),
        ND_TEST(test_transforms_without_cufft),
        ND_TEST(test_failures_are_told),
        ND_TEST(test_transforms_are_captured),
        ND_TEST(test_graphs_give_plans_back),
        ND_TEST(test_lines_of_one_element),
        ND_TEST(test_no_plan_is_made_in_a_capture),
        ND_TEST(test_streams_share_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
