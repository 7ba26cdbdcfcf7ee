// Fourier transforms at their edges: shared between threads, refused, without memory and without
// FFTW.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fft_lines.h"
#include "kernels/cpu/fftw.h"
#include "lib/base/alloc.h"
#include "tests/unit/ops/transforms.h"
#include <nd/threads.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// -------------------------------------------------------------------------------------------------
// threads and memory

/// Lines are shared between threads, and each is computed as it is alone.
static void test_fft_has_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    int threads = nd_get_num_threads();
    for (int axis = 0; axis < 2; axis++) {
        nd_auto nd_tensor *x = random_dense(ND_SHAPE(250, 260), ND_F32, -1, 1);
        assert_ok(nd_set_num_threads(1));
        nd_auto nd_tensor *one = nd_rfft(x, 0, axis, ND_FFT_NORM_BACKWARD);
        assert_ok(nd_set_num_threads(3));
        nd_auto nd_tensor *three = nd_rfft(x, 0, axis, ND_FFT_NORM_BACKWARD);
        assert_memory_equal(nd_get_data(one), nd_get_data(three),
                            (size_t)nd_get_numel(one) * sizeof(float));
        nd_auto nd_tensor *line = nd_select(x, 17, 1 - axis);
        nd_auto nd_tensor *alone = nd_rfft(line, 0, 0, ND_FFT_NORM_BACKWARD);
        nd_auto nd_tensor *part = nd_select(one, 17, 1 - axis);
        assert_alike(part, alone);
    }
    assert_ok(nd_set_num_threads(threads));
}

/// The same bits, or both NaN.
static void assert_same_numbers(const nd_tensor *a, const nd_tensor *b, const char *name,
                                int64_t n) {
    assert_int_equal(nd_get_numel(a), nd_get_numel(b));
    for (int64_t i = 0; i < nd_get_numel(a); i++) {
        double x = at_flat(a, i), y = at_flat(b, i);
        if (!(isnan(x) && isnan(y)) && memcmp(&x, &y, sizeof x) != 0)
            fail_msg("%s of %lld: number %lld is %a and %a", name, (long long)n, (long long)i, x,
                     y);
    }
}

/// Random lines, with zeros of both signs in some, and an infinity and a NaN in one each.
static nd_tensor *lines_with_edges(int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_tensor *x = random_dense(ndim, shape, dtype, -1, 1);
    const double edges[] = {0, -0.0, 0, -0.0, INFINITY, NAN};
    for (size_t i = 0; i < COUNT_OF(edges); i++) {
        int64_t at = rand() % nd_get_numel(x);
        if (dtype == ND_F32)
            ((float *)nd_get_data(x))[at] = (float)edges[i];
        else
            ((double *)nd_get_data(x))[at] = edges[i];
    }
    return x;
}

/// Some lines of x along axis 1, of 3 dimensions and pairs, alone and in every instruction set.
static void check_lines(size_t kind, const nd_tensor *x, int64_t n) {
    nd_auto nd_tensor *y = kinds[kind].f(x, n, 1, ND_FFT_NORM_ORTHO);
    assert_handle(y);
    static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};
    for (size_t i = 0; i < COUNT_OF(isas) && nd__fft_is_short(n); i++)
        if (nd__cpu_use_isa(isas[i])) {
            nd_auto nd_tensor *other = kinds[kind].f(x, n, 1, ND_FFT_NORM_ORTHO);
            assert_same_numbers(y, other, kinds[kind].name, n);
        }
    nd__cpu_use_isa(NULL);
    for (int64_t outer = 0; outer < nd_get_shape(x)[0]; outer++) {
        nd_auto nd_tensor *plane = nd_select(x, outer, 0);
        nd_auto nd_tensor *of_plane = nd_select(y, outer, 0);
        for (int64_t inner = 0; inner < nd_get_shape(x)[2]; inner += 1 + rand() % 4) {
            nd_auto nd_tensor *line = nd_select(plane, inner, 1);
            nd_auto nd_tensor *alone = kinds[kind].f(line, n, 0, ND_FFT_NORM_ORTHO);
            nd_auto nd_tensor *part = nd_select(of_plane, inner, 1);
            assert_same_numbers(alone, part, kinds[kind].name, n);
        }
    }
}

/// Bundles of neighbours, of lines one behind the other and of both, whole and not, against the
/// same lines alone, whose values fft_test.c holds against the definition.
static void test_lines_have_the_same_bits_alone(void **state) {
    (void)state;
    static const int64_t beside[][2] = {{2, 21}, {19, 1}, {7, 3}, {1, 4}, {40, 1}};
    for (int64_t n = 1; n <= 280; n += n < 70 ? 1 : 1 + rand() % 7)
        for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
            const int64_t *lines = beside[(size_t)rand() % COUNT_OF(beside)];
            int64_t from = (kinds[kind].from_half ? n / 2 + 1 : n) + rand() % 3 - 1;
            const int64_t shape[] = {lines[0], from > 0 ? from : 1, lines[1], 2};
            nd_auto nd_tensor *x =
                lines_with_edges(3 + kinds[kind].from_pairs, shape, rand() % 2 ? ND_F32 : ND_F64);
            check_lines(kind, x, n);
        }
}

static uint64_t allocations_left;

static bool fail_at_zero(size_t bytes) {
    (void)bytes;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

/// Every function, forward and back.
static nd_status run_everything(const nd_tensor *x) {
    nd_auto nd_tensor *half = nd_cast(x, ND_F16);
    nd_auto nd_tensor *y = nd_rfftn(half, 0, NULL, NULL, ND_FFT_NORM_ORTHO);
    nd_auto nd_tensor *moved = nd_fftshift(y, 1, (const int[]){0});
    nd_auto nd_tensor *z = nd_ifft(moved, 7, 0, ND_FFT_NORM_BACKWARD);
    nd_auto nd_tensor *back = nd_hfft(z, 0, 1, ND_FFT_NORM_BACKWARD);
    nd_auto nd_tensor *frequencies = nd_fftfreq(nd_get_shape(x)[1], 1, ND_F32);
    nd_auto nd_tensor *weighted = back && frequencies ? nd_mul(back, frequencies) : NULL;
    nd_auto nd_tensor *sum = weighted ? nd_sum(weighted, 0, NULL, false) : NULL;
    return sum ? nd_backward(sum, NULL) : nd_error_get_status();
}

/// Wherever memory runs out there is an error, and nothing is lost.
static void test_fft_without_memory(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(4, 6), ND_F32, -1, 1);
    assert_ok(nd_set_requires_grad(x, true));
    for (uint64_t allowed = 0;; allowed++) {
        assert_true(allowed < 10000);
        allocations_left = allowed;
        nd__alloc_should_fail = fail_at_zero;
        nd_status status = run_everything(x);
        nd__alloc_should_fail = NULL;
        if (status == ND_OK) {
            assert_true(allowed > 0);
            return;
        }
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        assert_null(nd_get_grad(x));
        nd_error_clear();
    }
}

// -------------------------------------------------------------------------------------------------
// refusals

#define PLAIN ND_FFT_NORM_BACKWARD
#define INVALID ND_ERROR_INVALID_ARGUMENT

static void test_refusals_of_fft(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 4), ND_F32);
    nd_auto nd_tensor *pairs = nd_ones(ND_SHAPE(3, 1, 2), ND_F32);
    nd_auto nd_tensor *bools = nd_ones(ND_SHAPE(3, 2), ND_BOOL);
    nd_auto nd_tensor *point = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *none = nd_ones(ND_SHAPE(3, 0), ND_F32);
    nd_auto nd_tensor *eight = nd_ones(ND_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), ND_F32);
    assert_refused(nd_rfft(NULL, 0, 0, PLAIN), INVALID, "rfft: ");
    assert_refused(nd_rfft(bools, 0, 0, PLAIN), ND_ERROR_DTYPE, "rfft: ");
    assert_refused(nd_fft(bools, 0, 0, PLAIN), ND_ERROR_DTYPE, "fft: ");
    assert_refused(nd_fft(x, 0, 0, PLAIN), ND_ERROR_SHAPE,
                   "fft: x has shape [3, 4] and must be [..., 2], pairs");
    assert_refused(nd_irfft(point, 0, 0, PLAIN), ND_ERROR_SHAPE, "irfft: x has shape []");
    assert_refused(nd_rfft(point, 0, 0, PLAIN), ND_ERROR_SHAPE, "rfft: x has shape [] and no axis");
    assert_refused(nd_ifft(one, 0, 0, PLAIN), ND_ERROR_SHAPE, "ifft: x has shape [2] and no axis");
    assert_refused(nd_fftn(one, 0, NULL, NULL, PLAIN), ND_ERROR_SHAPE, "fftn: x has shape [2] and");
    assert_refused(nd_rfft(x, 0, 2, PLAIN), INVALID, "rfft: axis 2");
    assert_refused(nd_fft(pairs, 0, 2, PLAIN), INVALID, "fft: axis 2");
    assert_refused(nd_fft(pairs, 0, -3, PLAIN), INVALID, "fft: axis -3");
    assert_refused(nd_rfft(x, -1, 0, PLAIN), INVALID, "rfft: n is -1 and must not be negative");
    assert_refused(nd_rfft(none, 0, 1, PLAIN), ND_ERROR_SHAPE, "rfft: axis 1 has 0 places, and n");
    assert_refused(nd_hfft(pairs, 0, -1, PLAIN), ND_ERROR_SHAPE, "hfft: axis 1 has 1 places, and");
    assert_refused(nd_rfft(x, (int64_t)1 << 31, 0, PLAIN), ND_ERROR_UNSUPPORTED,
                   "rfft: 2147483648 elements are too many for FFTW");
    assert_refused(nd_rfft(eight, 0, 0, PLAIN), ND_ERROR_SHAPE, "rfft: x has 8 dimensions");
    assert_refused(nd_ihfft(x, 0, 0, (nd_fft_norm)3), INVALID, "ihfft: there is no norm 3");
    assert_refused(nd_rfftn(x, 0, NULL, NULL, (nd_fft_norm)-1), INVALID, "rfftn: there is no");

    const int axes[] = {0, -2, 1};
    const int64_t sizes[] = {2, -2, 2};
    assert_refused(nd_rfftn(x, 2, NULL, axes, PLAIN), INVALID, "rfftn: axis 0 is named twice");
    assert_refused(nd_rfftn(x, 3, NULL, axes, PLAIN), INVALID, "rfftn: axis 0 is named twice");
    assert_refused(nd_irfftn(pairs, 2, sizes, axes + 1, PLAIN), INVALID, "irfftn: n is -2");
    assert_refused(nd_fftn(pairs, 1, NULL, NULL, PLAIN), INVALID, "fftn: 1 axes at NULL");
    assert_refused(nd_fftn(pairs, 0, sizes, NULL, PLAIN), INVALID, "fftn: 0 axes at NULL, with");
    assert_refused(nd_ifftn(pairs, -1, NULL, axes, PLAIN), INVALID, "ifftn: -1 axes");
    assert_refused(nd_ifftn(pairs, 9, NULL, axes, PLAIN), INVALID, "ifftn: 9 axes");

    assert_refused(nd_fftfreq(0, 1, ND_F32), INVALID, "fftfreq: 0 samples");
    assert_refused(nd_rfftfreq(3, 0, ND_F32), INVALID, "rfftfreq: 3 samples, 0 apart");
    assert_refused(nd_rfftfreq(3, NAN, ND_F32), INVALID, "rfftfreq: 3 samples, nan apart");
    assert_refused(nd_fftfreq(3, 1, ND_I64), ND_ERROR_DTYPE, "fftfreq: the dtype is int64");
    assert_refused(nd_fftfreq(3, 1, (nd_dtype)99), ND_ERROR_DTYPE, "fftfreq: the dtype is");
    assert_refused(nd_fftshift(x, 2, (const int[]){1, -1}), INVALID, "fftshift: axis -1 is named");
    assert_refused(nd_ifftshift(x, 1, (const int[]){2}), INVALID, "ifftshift: axis 2");
    assert_refused(nd_ifftshift(NULL, 0, NULL), INVALID, "ifftshift: ");
}

// -------------------------------------------------------------------------------------------------
// without FFTW

static bool is_refused(nd_tensor *result, const char *package) {
    bool refused = !result && nd_error_get_status() == ND_ERROR_UNSUPPORTED &&
                   strstr(nd_error_get_message(), package);
    nd_release(result);
    nd_error_clear();
    return refused;
}

/// What a process finds that has no FFTW of a dtype: that everything says so which needs it.
static bool lacks(nd_dtype dtype, const char *package) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 2), dtype);
    bool fine = true;
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++)
        fine = is_refused(kinds[kind].f(x, 0, 0, PLAIN), package) && fine;
    for (size_t kind = 0; kind < COUNT_OF(kinds_of_axes); kind++)
        fine = is_refused(kinds_of_axes[kind].f(x, 0, NULL, NULL, PLAIN), package) && fine;
    nd_auto nd_tensor *shifted = nd_fftshift(x, 0, NULL);
    nd_auto nd_tensor *frequencies = nd_fftfreq(3, 1, dtype);
    return fine && shifted && frequencies;
}

/// Whether so many bytes more than the process has now are all that it gets from here on.
static bool limit_memory_to(rlim_t more) {
    unsigned long pages = 0;
    FILE *sizes = fopen("/proc/self/statm", "r");
    bool known = sizes && fscanf(sizes, "%lu", &pages) == 1;
    if (sizes)
        fclose(sizes);
    rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    return known && setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) == 0;
}

/// FFTW would stop the program. A prime number of elements, for which a plan is large.
static bool refuses_without_memory(void) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1048573), ND_F64);
    if (!x || !limit_memory_to(64 << 20))
        return false;
    nd_auto nd_tensor *y = nd_rfft(x, 0, 0, PLAIN);
    const char *message = "rfft: no working memory for 1048573 elements";
    bool refused = !y && nd_error_get_status() == ND_ERROR_OUT_OF_MEMORY &&
                   strcmp(nd_error_get_message(), message) == 0;
    nd_auto nd_tensor *small = nd_rfft(x, 100, 0, PLAIN);
    return refused && small && at_flat(small, 0) == 100;
}

/// In another process, whose ND_FFTW is `file`: 0 when what the argument says is right.
static int look(const char *what) {
    if (strcmp(what, "none") == 0)
        return lacks(ND_F32, "libfftw3-single3") && lacks(ND_F64, "libfftw3-double3") ? 0 : 1;
    if (strcmp(what, "memory") == 0)
        return refuses_without_memory() ? 0 : 1;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *y = nd_rfft(x, 0, 0, PLAIN);
    return y && at_flat(y, 0) == 3 && lacks(ND_F64, "libfftw3-double3") ? 0 : 1;
}

static int look_with(const char *file, const char *what) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (file)
            setenv("ND_FFTW", file, 1);
        execl("/proc/self/exe", "fft_edges_test", what, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void test_no_memory_for_a_plan(void **state) {
    (void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // which need their own memory
    assert_int_equal(look_with(NULL, "memory"), 0);
#endif
}

static void test_without_fftw_each_function_says_so(void **state) {
    (void)state;
    assert_int_equal(look_with("/nonexistent/libfftw3.so", "none"), 0);
    assert_int_equal(look_with("libm.so.6", "none"), 0); // a library, but of something else
    assert_int_equal(look_with("libfftw3f.so.3", "single"), 0);
}

int main(int count, char **arguments) {
    if (count > 1)
        return look(arguments[1]);
    if (!nd__fftw_exists(ND_F32) || !nd__fftw_exists(ND_F64)) {
        puts("SKIPPED: no FFTW");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_fft_has_the_same_bits_on_any_number_of_threads),
        ND_TEST(test_lines_have_the_same_bits_alone),
        ND_TEST(test_fft_without_memory),
        ND_TEST(test_no_memory_for_a_plan),
        ND_TEST(test_refusals_of_fft),
        ND_TEST(test_without_fftw_each_function_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
