// F46: programs whose threads compute in floating-point modes of their own: rounding in another
// direction, without subnormal numbers, with traps. Results have the bits that they have without,
// whichever thread was the first to compute and whichever computes what, and each thread keeps its
// mode. F47: programs whose threads have small stacks by default.
#include "tests/testing.h"
#include <fenv.h>
#include <math.h>
#include <nd/autograd.h>
#include <nd/fft.h>
#include <nd/io.h>
#include <nd/linalg.h>
#include <nd/nd.h>
#include <nd/nn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELEMENTS = 1 << 18, THREADS = 4 };

#if defined(__x86_64__)
enum { WITHOUT_SUBNORMALS = 0x8040 }; // flush to zero, and take them for zero
static unsigned get_control(void) {
    return __builtin_ia32_stmxcsr();
}
static void set_control(unsigned control) {
    __builtin_ia32_ldmxcsr(control);
}
#else
enum { WITHOUT_SUBNORMALS = 0 };
static unsigned get_control(void) {
    return (unsigned)fegetround();
}
static void set_control(unsigned control) {
    fesetround((int)control);
}
#endif

typedef enum mode { UPWARD, DOWNWARD, TOWARD_ZERO, NO_SUBNORMALS, TRAPS, MODES } mode;

static void set_mode(mode mode) {
    static const int directions[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    feclearexcept(FE_ALL_EXCEPT);
    if (mode <= TOWARD_ZERO)
        fesetround(directions[mode]);
    else if (mode == NO_SUBNORMALS)
        set_control(get_control() | WITHOUT_SUBNORMALS);
    else
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
}

/// A large x whose product with itself is subnormal, whose reciprocal is rounded, and whose elements
/// are 0 now and then.
static nd_tensor *operand(void) {
    nd_tensor *x = nd_rand(nd_key_new(1), ND_SHAPE(ELEMENTS), ND_F32);
    float *data = x ? nd_get_data(x) : NULL;
    for (int i = 0; data && i < ELEMENTS; i += 5) {
        data[i] = 0;
        data[i + 1] = 3e-20f;
        data[i + 2] = 1e30f;
    }
    return x;
}

// Kinds of results, all of them of the same operand.
static nd_tensor *product(const nd_tensor *x) {
    return nd_mul(x, x);
}
static nd_tensor *quotient(const nd_tensor *x) {
    return nd_div(x, nd_tmp(nd_mul(x, x)));
}
static nd_tensor *sum(const nd_tensor *x) {
    return nd_sum(x, 0, NULL, false);
}
static nd_tensor *rounded(const nd_tensor *x) {
    return nd_round(nd_tmp(nd_mul(x, nd_tmp(nd_full(ND_SHAPE(1), 9.7, ND_F32)))));
}
static nd_tensor *functions(const nd_tensor *x) {
    return nd_add(nd_tmp(nd_cos(x)), nd_tmp(nd_exp(nd_tmp(nd_neg(x)))));
}
static nd_tensor *logarithms(const nd_tensor *x) {
    return nd_log(nd_tmp(nd_mul(x, x)));
}
static nd_tensor *halves(const nd_tensor *x) {
    return nd_silu(nd_tmp(nd_cast(x, ND_F16)));
}
static nd_tensor *matrices(const nd_tensor *x) {
    const nd_tensor *a = nd_tmp(nd_reshape(nd_tmp(nd_clip(x, -1, 1)), 2, (int64_t[]){512, 512}));
    return nd_matmul(a, a);
}
static nd_tensor *doubles(const nd_tensor *x) {
    const nd_tensor *a = nd_tmp(nd_reshape(nd_tmp(nd_clip(x, -1, 1)), 2, (int64_t[]){512, 512}));
    const nd_tensor *wide = nd_tmp(nd_cast(a, ND_F64));
    return nd_matmul(wide, wide);
}
static nd_tensor *rows(const nd_tensor *x) {
    return nd_softmax(nd_tmp(nd_reshape(nd_tmp(nd_clip(x, -1, 1)), 2, (int64_t[]){1024, 256})), -1);
}
static nd_tensor *lines(const nd_tensor *x) {
    return nd_cumsum(nd_tmp(nd_reshape(nd_tmp(nd_clip(x, -1, 1)), 2, (int64_t[]){64, 4096})), 1);
}
static nd_tensor *normals(const nd_tensor *x) {
    (void)x;
    return nd_randn(nd_key_new(2), ND_SHAPE(ELEMENTS), ND_F32);
}
static nd_tensor *gradients(const nd_tensor *x) {
    nd_auto nd_tensor *p = nd_clip(x, -1, 1);
    nd_auto nd_tensor *own = nd_detach(p);
    if (!own || nd_set_requires_grad(own, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *y = nd_sigmoid(own);
    nd_auto nd_tensor *total = nd_mean(y, 0, NULL, false);
    return nd_backward(total, NULL) == ND_OK ? nd_retain(nd_get_grad(own)) : NULL;
}
static nd_tensor *slopes(const nd_tensor *x) {
    nd_auto nd_tensor *p = nd_cast(nd_tmp(nd_clip(x, 0.25, 4)), ND_F64);
    nd_auto nd_tensor *own = nd_detach(p);
    if (!own || nd_set_requires_grad(own, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *y = nd_add(nd_tmp(nd_log2(own)), nd_tmp(nd_log10(own)));
    nd_auto nd_tensor *total = nd_sum(y, 0, NULL, false);
    return nd_backward(total, NULL) == ND_OK ? nd_retain(nd_get_grad(own)) : NULL;
}
/// Gradients of means over 3 and over 7 elements, one behind the other.
static nd_tensor *shares(const nd_tensor *x) {
    nd_auto nd_tensor *p = nd_cast(nd_tmp(nd_slice(x, 0, 21, 1, 0)), ND_F64);
    nd_auto nd_tensor *own = nd_reshape(p, 2, (int64_t[]){3, 7});
    if (!own || nd_set_requires_grad(own, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *targets = nd_zeros(ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *total = nd_mean(own, 0, NULL, false);
    const nd_tensor *terms[] = {
        nd_tmp(nd_cross_entropy(own, targets)),
        nd_tmp(nd_sum(nd_tmp(nd_var(own, 1, (int[]){1}, 0, false)), 0, NULL, false)),
        nd_tmp(nd_kl_div(own, nd_tmp(nd_ones_like(own)), false, ND_REDUCTION_BATCH_MEAN)),
        nd_tmp(
            nd_sum(nd_tmp(nd_square(nd_tmp(nd_mean(own, 1, (int[]){0}, false)))), 0, NULL, false)),
    };
    for (size_t i = 0; i < sizeof terms / sizeof *terms && total; i++) {
        nd_tensor *next = nd_add(total, terms[i]);
        nd_release(total);
        total = next;
    }
    return nd_backward(total, NULL) == ND_OK ? nd_retain(nd_get_grad(own)) : NULL;
}
static nd_tensor *factors(const nd_tensor *x) {
    const nd_tensor *a = nd_tmp(nd_reshape(nd_tmp(nd_clip(x, -1, 1)), 2, (int64_t[]){512, 512}));
    const nd_tensor *part = nd_tmp(nd_slice(nd_tmp(nd_slice(a, 0, 40, 1, 0)), 0, 40, 1, 1));
    const nd_tensor *square = nd_tmp(nd_matmul(part, nd_tmp(nd_transpose(part, 0, 1))));
    return nd_cholesky(nd_tmp(nd_add(square, nd_tmp(nd_eye(40, ND_F32)))));
}
static nd_tensor *waves(const nd_tensor *x) {
    const nd_tensor *waves = nd_tmp(nd_rfft(nd_tmp(nd_clip(x, -1, 1)), 0, 0, ND_FFT_NORM_BACKWARD));
    return waves ? nd_irfft(waves, 0, 0, ND_FFT_NORM_BACKWARD) : NULL;
}

static nd_tensor *(*const kinds[])(const nd_tensor *x) = {
    product, quotient, sum,     rounded,   functions, logarithms, halves,  matrices, doubles,
    rows,    lines,    normals, gradients, slopes,    shares,     factors, waves,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/// NULL where the library that it wants is not there.
static nd_tensor *result_of(int kind, const nd_tensor *x) {
    nd_auto_scope;
    nd_tensor *result = kinds[kind](x);
    if (!result)
        assert_int_equal(nd_error_get_status(), ND_ERROR_UNSUPPORTED);
    nd_error_clear();
    return result;
}

static size_t bytes_of(const nd_tensor *x) {
    return (size_t)nd_get_numel(x) * nd_dtype_get_size(nd_get_dtype(x));
}

static void assert_same(const nd_tensor *a, const nd_tensor *b, int kind, int mode) {
    if (!a && !b)
        return;
    assert_non_null(a);
    assert_non_null(b);
    if (memcmp(nd_get_data(a), nd_get_data(b), bytes_of(a)) != 0)
        fail_msg("kind %d in mode %d has other bits", kind, mode);
}

typedef struct foreign {
    mode mode;
    const nd_tensor *x;
    nd_tensor *const *expected;
} foreign;

static void *compute_in_mode(void *data) {
    const foreign *own = data;
    set_mode(own->mode);
    const unsigned control = get_control();
    const int direction = fegetround(), traps = fegetexcept();
    nd_tensor *results[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        results[kind] = result_of(kind, own->x);
#if defined(__x86_64__)
        const unsigned flags = 0x3f; // what the thread's own arithmetic around the kernels has met
        assert_int_equal(get_control() & ~flags, control & ~flags);
#endif
        assert_int_equal(fegetround(), direction);
        assert_int_equal(fegetexcept(), traps);
    }
    fesetenv(FE_DFL_ENV);
    for (int kind = 0; kind < KINDS; kind++) {
        if (own->expected)
            assert_same(results[kind], own->expected[kind], kind, (int)own->mode);
        nd_release(results[kind]);
    }
    return NULL;
}

static void run(const foreign *own) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute_in_mode, (void *)own), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/// Bits do not depend on the mode of the thread that calls.
static void test_F46_a_mode_of_ones_own_changes_no_result(void **state) {
    (void)state;
    nd_set_num_threads(THREADS);
    nd_auto nd_tensor *x = operand();
    assert_non_null(x);
    nd_tensor *expected[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        expected[kind] = result_of(kind, x);
    for (mode mode = UPWARD; mode < MODES; mode++)
        run(&(foreign){mode, x, expected});
    for (int kind = 0; kind < KINDS; kind++)
        nd_release(expected[kind]);
}

/// In a process of its own: a thread with a mode of its own begins the pool.
static int begin_pool_in(mode mode) {
    nd_set_num_threads(THREADS);
    nd_auto nd_tensor *x = operand();
    run(&(foreign){mode, x, NULL});
    int wrong = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        nd_set_num_threads(THREADS);
        nd_auto nd_tensor *shared = result_of(kind, x);
        nd_auto nd_tensor *again = result_of(kind, x);
        if (shared && memcmp(nd_get_data(shared), nd_get_data(again), bytes_of(shared)) != 0)
            wrong++;
    }
    nd_auto nd_tensor *small = nd_mul(x, x);
    const float *squares = nd_get_data(small);
    const volatile float tiny = 3e-20f;
    for (int i = 1; i < ELEMENTS; i += 5)
        wrong += squares[i] != tiny * tiny;
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(ELEMENTS), ND_F32);
    nd_auto nd_tensor *threes = nd_full(ND_SHAPE(ELEMENTS), 3, ND_F32);
    nd_auto nd_tensor *thirds = nd_div(ones, threes);
    const float *third = nd_get_data(thirds);
    for (int i = 0; i < ELEMENTS; i++)
        wrong += third[i] != 1.0f / 3;
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(ELEMENTS), ND_F32);
    nd_release(nd_div(ones, zeros)); // nobody who sees this asked for a trap
    return wrong;
}

static void test_F46_who_begins_the_pool_gives_it_no_mode(void **state) {
    (void)state;
    for (mode mode = UPWARD; mode < MODES; mode++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(begin_pool_in(mode) == 0 ? 0 : 1);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("mode %d: status %x", mode, status);
    }
}

/// Numbers that a mode changes on their way through a text.
static nd_tensor *numbers(nd_dtype dtype) {
    static const double values[] = {0.1,    1.0 / 3, 1e-40,  -3e-42, 4e-320, 1.7976931348623157e308,
                                    3.4e38, 1e300,   2e-310, 0,      -0.0,   123456789.123456789};
    nd_tensor *wide = nd_from_data(values, ND_SHAPE(sizeof values / sizeof *values), ND_F64);
    nd_tensor *cast = nd_cast(wide, dtype);
    nd_release(wide);
    return cast;
}

static nd_tensor *batch_of_pictures(void) {
    unsigned char pixels[256];
    for (int i = 0; i < 256; i++)
        pixels[i] = (unsigned char)i;
    nd_auto nd_tensor *pictures = nd_from_data(pixels, ND_SHAPE(1, 256), ND_U8);
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(1), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 1;
    nd_auto nd_dataset *dataset = nd_dataset_new(pictures, labels, &options);
    nd_tensor *batch = NULL;
    nd_auto nd_tensor *batch_labels = NULL;
    assert_int_equal(nd_dataset_start(dataset, 0), ND_OK);
    assert_int_equal(nd_dataset_next_batch(dataset, &batch, &batch_labels), ND_OK);
    return batch;
}

/// Texts and single elements: made and read beside the kernels.
static void check_texts(nd_dtype dtype, const char *path) {
    nd_auto nd_tensor *x = numbers(dtype);
    nd_auto nd_tensor *column = nd_reshape(x, 2, (int64_t[]){nd_get_numel(x), 1});
    char expected[2048], text[2048];
    assert_true(nd_format(x, expected, sizeof expected) < (int64_t)sizeof expected);
    nd_auto nd_tensor *pixels = batch_of_pictures();
    for (mode mode = UPWARD; mode < MODES; mode++) {
        set_mode(mode);
        if (mode == TRAPS)
            feenableexcept(FE_UNDERFLOW);
        nd_status saved = nd_save_csv(path, column, NULL);
        nd_tensor *read = nd_load_csv(path, dtype, NULL);
        nd_format(x, text, sizeof text);
        double items[16] = {0};
        int64_t integer = 0;
        nd_status as_integer = ND_OK;
        for (int64_t i = 0; i < nd_get_numel(x); i++) {
            nd_tensor *one = nd_select(x, i, 0);
            items[i] = nd_get_item(one);
            as_integer = i == 0 ? nd_get_item_i64(one, &integer) : as_integer;
            nd_release(one);
        }
        nd_tensor *batch = batch_of_pictures();
        fesetenv(FE_DFL_ENV);
        assert_int_equal(saved, ND_OK);
        assert_int_equal(as_integer, ND_ERROR_DTYPE);
        nd_error_clear();
        assert_non_null(read);
        assert_memory_equal(nd_get_data(read), nd_get_data(x),
                            (size_t)nd_get_numel(x) * nd_dtype_get_size(dtype));
        assert_string_equal(text, expected);
        for (int64_t i = 0; i < nd_get_numel(x); i++) {
            nd_auto nd_tensor *one = nd_select(x, i, 0);
            const double item = nd_get_item(one);
            assert_memory_equal(&items[i], &item, sizeof item);
        }
        assert_memory_equal(nd_get_data(batch), nd_get_data(pixels), 256 * sizeof(float));
        nd_release(read);
        nd_release(batch);
    }
}

static void test_F46_texts_and_elements_have_the_same_bits(void **state) {
    (void)state;
    char path[] = "/tmp/float_modes_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    check_texts(ND_F64, path);
    check_texts(ND_F32, path);
    unlink(path);
}

/// In a process of its own: its threads have stacks of a few pages, but those that compute.
static int compute_with_small_stacks(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    if (pthread_attr_setstacksize(&small, 16384) != 0 || pthread_setattr_default_np(&small) != 0)
        return 2;
    nd_set_num_threads(THREADS);
    nd_auto nd_tensor *x = operand();
    for (int kind = 0; kind < KINDS; kind++)
        nd_release(result_of(kind, x));
    nd_auto nd_tensor *pictures = nd_reshape(x, 4, (int64_t[]){8, 32, 32, 32});
    nd_auto nd_tensor *windows = nd_randn(nd_key_new(3), ND_SHAPE(32, 32, 3, 3), ND_F32);
    nd_release(nd_conv2d(pictures, windows, NULL, NULL));
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 4;
    options.prefetch = true;
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(8), ND_I64);
    nd_auto nd_dataset *dataset = nd_dataset_new(pictures, labels, &options);
    if (!dataset || nd_dataset_start(dataset, 0) != ND_OK)
        return 3;
    nd_auto nd_tensor *batch = NULL;
    nd_auto nd_tensor *batch_labels = NULL;
    return nd_dataset_next_batch(dataset, &batch, &batch_labels) == ND_OK && batch ? 0 : 4;
}

static void test_F47_the_programs_default_stack_is_small(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(compute_with_small_stacks());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    // Those with children first: none of these has a pool from its parent.
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F46_texts_and_elements_have_the_same_bits),
        ND_TEST(test_F46_who_begins_the_pool_gives_it_no_mode),
        ND_TEST(test_F47_the_programs_default_stack_is_small),
        ND_TEST(test_F46_a_mode_of_ones_own_changes_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
