// The same seed and number of threads give the same bits: twice in one process, in another process,
// beside a busy machine and beside other threads that compute. With nd_set_deterministic any number
// of threads does; without it, all but products of f32 and convolutions of f32 and halves.
//
// A computation appends everything it makes to a record; records are compared byte by byte. Run
// with an argument, the program writes the record of all computations to that file. Compiled with
// ND_EVERY_COUNT it tries more numbers of threads.
#include "tests/testing.h"
#include "tests/training.h"
#include <math.h>
#include <nd/threads.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, LOAD = 4, CALLERS = 3, ROOM = 1 << 26 };

/// Numbers of threads that are compared with one.
#ifdef ND_EVERY_COUNT
static const int thread_counts[] = {2, 3, 5, 7, 11, 16, 23, 24};
#else
static const int thread_counts[] = {2, 23};
#endif
enum { COUNTS = sizeof thread_counts / sizeof *thread_counts };

/// How far products and convolutions of f32, and convolutions of bf16, may be apart for two numbers
/// of threads, in units of the largest of the results: what docs/threading.md says.
#define APART 1e-5
#define APART_BF16 0x1p-7

typedef struct record {
    char *bytes;
    size_t size;
} record;

static record new_record(void) {
    record r = {malloc(ROOM), 0};
    assert_non_null(r.bytes);
    return r;
}

/// Appends the elements of x, halves as f32; consumes it.
static void note(record *r, nd_tensor *x) {
    assert_non_null(x);
    nd_dtype dtype = nd_get_dtype(x);
    nd_auto nd_tensor *wide =
        dtype == ND_F16 || dtype == ND_BF16 ? nd_cast(x, ND_F32) : nd_retain(x);
    nd_auto nd_tensor *dense = nd_contiguous(wide);
    size_t bytes = (size_t)nd_get_numel(dense) * nd_dtype_get_size(nd_get_dtype(dense));
    assert_true(r->size + bytes <= ROOM);
    assert_int_equal(nd_copy_to_host(dense, r->bytes + r->size, bytes), ND_OK);
    r->size += bytes;
    nd_release(x);
}

static nd_tensor *normal(uint64_t stream, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_auto nd_tensor *x = nd_randn((nd_key){11, stream}, ndim, shape, ND_F32);
    return nd_cast(x, dtype);
}

/// A leaf that wants a gradient.
static nd_tensor *leaf(uint64_t stream, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_tensor *x = normal(stream, ndim, shape, dtype);
    assert_int_equal(nd_set_requires_grad(x, true), ND_OK);
    return x;
}

/// Runs backward from the sum of squares of y, and notes y and the gradients; consumes y.
static void note_gradients(record *r, nd_tensor *y, size_t count, const nd_tensor *const *leaves) {
    assert_non_null(y);
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
    assert_int_equal(nd_backward(sum, NULL), ND_OK);
    note(r, nd_detach(y));
    nd_release(y);
    for (size_t i = 0; i < count; i++)
        note(r, nd_retain(nd_get_grad(leaves[i])));
}

// ------------------------------------------------------------------------------------ computations

static void train(record *r) {
    nd_key key = nd_key_new(3);
    nd_auto nd_module *model =
        ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), 256, 128, true), nd_relu_module(),
                      nd_linear_module(nd_key_fold(key, 1), 128, 10, true));
    nd_auto nd_optimizer *optimizer = adam_of(model, 0.01, 0.9, 0.999, 1e-8, 0);
    nd_auto nd_tensor *images = nd_rand(nd_key_fold(key, 2), ND_SHAPE(128, 256), ND_F32);
    nd_auto nd_tensor *labels = nd_randint(nd_key_fold(key, 3), 0, 10, ND_SHAPE(128), ND_I64);
    for (int step = 0; step < 5; step++) {
        nd_auto nd_tensor *logits = nd_module_forward(model, images);
        nd_auto nd_tensor *loss = nd_cross_entropy(logits, labels);
        assert_int_equal(nd_module_zero_grad(model), ND_OK);
        assert_int_equal(nd_backward(loss, NULL), ND_OK);
        assert_int_equal(nd_optimizer_step(optimizer), ND_OK);
        note(r, nd_detach(loss));
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(model); i++)
        note(r, nd_detach(nd_module_get_parameter_at(model, i, NULL)));
}

static void convolve(record *r, nd_dtype dtype, int64_t images) {
    nd_auto nd_tensor *x = leaf(1, ND_SHAPE(images, 16, 20, 20), dtype);
    nd_auto nd_tensor *weight = leaf(2, ND_SHAPE(24, 16, 3, 3), dtype);
    nd_auto nd_tensor *bias = leaf(3, ND_SHAPE(24), dtype);
    note_gradients(r, nd_conv2d(x, weight, bias, NULL), 3,
                   (const nd_tensor *const[]){x, weight, bias});
}
static void convolve_f32(record *r) {
    convolve(r, ND_F32, 6);
    convolve(r, ND_F32, 1);
}
static void convolve_f64(record *r) {
    convolve(r, ND_F64, 2);
}
static void convolve_bf16(record *r) {
    convolve(r, ND_BF16, 3);
}
static void transposed_convolution(record *r) {
    nd_auto nd_tensor *x = leaf(1, ND_SHAPE(3, 16, 16, 16), ND_F32);
    nd_auto nd_tensor *weight = leaf(2, ND_SHAPE(16, 24, 3, 3), ND_F32);
    note_gradients(r, nd_conv_transpose2d(x, weight, NULL, NULL), 2,
                   (const nd_tensor *const[]){x, weight});
}

static void multiply(record *r, nd_dtype dtype) {
    nd_auto nd_tensor *a = leaf(1, ND_SHAPE(211, 173), dtype);
    nd_auto nd_tensor *b = leaf(2, ND_SHAPE(173, 150), dtype);
    note_gradients(r, nd_matmul(a, b), 2, (const nd_tensor *const[]){a, b});
    nd_auto nd_tensor *many = normal(3, ND_SHAPE(5, 60, 70), dtype);
    nd_auto nd_tensor *turned = nd_transpose(many, 1, 2);
    note(r, nd_matmul(many, turned));
}
static void multiply_f32(record *r) {
    multiply(r, ND_F32);
}
static void multiply_f64(record *r) {
    multiply(r, ND_F64);
}
static void multiply_bf16(record *r) {
    multiply(r, ND_BF16);
}

static void multiply_integers(record *r) {
    nd_auto nd_tensor *a = nd_randint(nd_key_new(1), -9, 9, ND_SHAPE(211, 173), ND_I32);
    nd_auto nd_tensor *b = nd_randint(nd_key_new(2), -9, 9, ND_SHAPE(173, 150), ND_I32);
    note(r, nd_matmul(a, b));
}

static void scatter(record *r) {
    nd_auto nd_tensor *index = nd_randint(nd_key_new(5), 0, 7, ND_SHAPE(50000), ND_I64);
    nd_auto nd_tensor *source = normal(2, ND_SHAPE(50000), ND_F32);
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(7), ND_F32);
    note(r, nd_scatter_add(zeros, index, source, 0));
    nd_auto nd_tensor *wide = nd_unsqueeze(index, 1);
    nd_auto nd_tensor *indices = nd_expand(wide, ND_SHAPE(50000, 4));
    nd_auto nd_tensor *sources = normal(3, ND_SHAPE(50000, 4), ND_F16);
    nd_auto nd_tensor *to = nd_zeros(ND_SHAPE(7, 4), ND_F16);
    note(r, nd_scatter_add(to, indices, sources, 0));
}

static void embed(record *r) {
    nd_auto nd_tensor *weight = leaf(1, ND_SHAPE(40, 48), ND_F32);
    nd_auto nd_tensor *tokens = nd_randint(nd_key_new(6), 0, 40, ND_SHAPE(16, 100), ND_I64);
    note_gradients(r, nd_embedding(weight, tokens, -1), 1, (const nd_tensor *const[]){weight});
}

static void reduce(record *r) {
    typedef nd_tensor *reduction(const nd_tensor *, int, const int *, bool);
    static reduction *const functions[] = {nd_sum,  nd_mean, nd_max, nd_min,
                                           nd_prod, nd_any,  nd_all, nd_logsumexp};
    const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16};
    for (int which = 0; which < 3; which++) {
        nd_auto nd_tensor *x = normal(4, ND_SHAPE(300, 500), dtypes[which]);
        nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
        for (int axis = -1; axis < 2; axis++)
            for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
                note(r, functions[i](x, axis >= 0, &axis, false));
                note(r, functions[i](turned, axis >= 0, &axis, false));
            }
        note(r, nd_var(x, 0, NULL, 1, false));
        note(r, nd_cumsum(x, 0));
        note(r, nd_cumsum(x, 1));
        note(r, nd_argmax(x, 1, false));
    }
}

static void soften(record *r) {
    nd_auto nd_tensor *x = leaf(1, ND_SHAPE(400, 130), ND_F32);
    nd_auto nd_tensor *y = leaf(2, ND_SHAPE(130, 400), ND_F64);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(8), 0, 130, ND_SHAPE(400), ND_I64);
    note_gradients(r, nd_softmax(x, 1), 1, (const nd_tensor *const[]){x});
    note_gradients(r, nd_log_softmax(y, 0), 1, (const nd_tensor *const[]){y});
    note_gradients(r, nd_cross_entropy(x, labels), 1, (const nd_tensor *const[]){x});
}

static void attend(record *r) {
    nd_auto nd_tensor *query = leaf(1, ND_SHAPE(2, 4, 130, 32), ND_F32);
    nd_auto nd_tensor *key = leaf(2, ND_SHAPE(2, 4, 130, 32), ND_F32);
    nd_auto nd_tensor *value = leaf(3, ND_SHAPE(2, 4, 130, 32), ND_F32);
    note_gradients(r, nd_attention(query, key, value, NULL, NULL), 3,
                   (const nd_tensor *const[]){query, key, value});
}

static void recur(record *r) {
    nd_auto nd_tensor *x = leaf(1, ND_SHAPE(12, 20, 96), ND_F32);
    nd_auto nd_tensor *from_x = leaf(2, ND_SHAPE(384, 96), ND_F32);
    nd_auto nd_tensor *from_hidden = leaf(3, ND_SHAPE(384, 96), ND_F32);
    nd_tensor *y = NULL;
    assert_int_equal(nd_lstm(x, NULL, NULL, 2, (const nd_tensor *const[]){from_x, from_hidden},
                             NULL, &y, NULL, NULL),
                     ND_OK);
    note_gradients(r, y, 3, (const nd_tensor *const[]){x, from_x, from_hidden});
}

static void normalise(record *r) {
    nd_auto nd_tensor *x = leaf(1, ND_SHAPE(64, 12, 60), ND_F32);
    nd_auto nd_tensor *weight = leaf(2, ND_SHAPE(60), ND_F32);
    nd_auto nd_tensor *scale = leaf(3, ND_SHAPE(12), ND_F32);
    note_gradients(r, nd_layer_norm(x, weight, weight, 1e-5, 1), 2,
                   (const nd_tensor *const[]){x, weight});
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(12), ND_F32);
    nd_auto nd_tensor *variance = nd_ones(ND_SHAPE(12), ND_F32);
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.training = true;
    note_gradients(r, nd_batch_norm(x, scale, NULL, mean, variance, &options), 1,
                   (const nd_tensor *const[]){scale});
    note(r, nd_retain(mean));
    note(r, nd_retain(variance));
    nd_auto nd_tensor *groups = leaf(4, ND_SHAPE(9, 12, 50, 7), ND_F32);
    note_gradients(r, nd_group_norm(groups, scale, scale, 4, 1e-5), 2,
                   (const nd_tensor *const[]){groups, scale});
    note_gradients(r, nd_instance_norm(groups, NULL, scale, NULL, NULL, NULL), 1,
                   (const nd_tensor *const[]){groups});
    nd_auto nd_tensor *rows = leaf(5, ND_SHAPE(500, 60), ND_F64);
    note_gradients(r, nd_batch_norm(rows, NULL, NULL, NULL, NULL, NULL), 1,
                   (const nd_tensor *const[]){rows});
}

static void lose(record *r) {
    nd_auto nd_tensor *a = leaf(1, ND_SHAPE(300, 333), ND_F32);
    nd_auto nd_tensor *b = leaf(2, ND_SHAPE(300, 333), ND_F32);
    const nd_tensor *const both[] = {a, b};
    note_gradients(r, nd_mse_loss(a, b), 2, both);
    note_gradients(r, nd_l1_loss(a, b, ND_REDUCTION_SUM), 2, both);
    note_gradients(r, nd_huber_loss(a, b, 0.5, ND_REDUCTION_NONE), 2, both);
    note_gradients(r, nd_bce_with_logits(a, b, NULL, NULL, ND_REDUCTION_MEAN), 2, both);
    note_gradients(r, nd_kl_div(a, b, true, ND_REDUCTION_BATCH_MEAN), 2, both);
    nd_auto nd_tensor *classes = nd_randint(nd_key_new(3), 0, 9, ND_SHAPE(300, 37), ND_I64);
    nd_auto nd_tensor *seen = nd_reshape(a, 3, (const int64_t[]){300, 9, 37});
    note_gradients(r, nd_nll_loss(seen, classes, NULL, 4, ND_REDUCTION_MEAN), 1, both);
}

static void elementwise(record *r) {
    typedef nd_tensor *unary(const nd_tensor *);
    static unary *const functions[] = {nd_exp,  nd_log1p, nd_sin,  nd_tanh, nd_gelu,
                                       nd_silu, nd_sqrt,  nd_mish, nd_erf,  nd_reciprocal};
    const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_BF16};
    for (int which = 0; which < 3; which++) {
        nd_auto nd_tensor *x = normal(5, ND_SHAPE(301, 333), dtypes[which]);
        nd_auto nd_tensor *view = nd_slice(x, 1, 332, 1, 1);
        nd_auto nd_tensor *row = normal(6, ND_SHAPE(331), dtypes[which]);
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            note(r, functions[i](view));
        note(r, nd_div(view, row));
        note(r, nd_pow(view, row));
    }
}

static void draw(record *r) {
    nd_key key = nd_key_new(9);
    note(r, nd_rand(key, ND_SHAPE(70001), ND_F32));
    note(r, nd_randn(key, ND_SHAPE(70001), ND_F64));
    note(r, nd_randperm(key, 5000));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(70001), ND_F32);
    note(r, nd_dropout(x, key, 0.3, true));
}

static void pool_windows(record *r) {
    nd_auto nd_tensor *x = leaf(1, ND_SHAPE(4, 8, 33, 35), ND_F32);
    nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
    options.kernel[0] = options.kernel[1] = 3;
    options.stride[0] = options.stride[1] = 2;
    options.padding[0] = options.padding[1] = 1;
    note_gradients(r, nd_max_pool2d(x, &options), 1, (const nd_tensor *const[]){x});
    note_gradients(r, nd_adaptive_avg_pool2d(x, 10, 9), 1, (const nd_tensor *const[]){x});
    nd_interpolate_options to = ND_INTERPOLATE_OPTIONS_INIT;
    to.sizes[0] = 50, to.sizes[1] = 41;
    to.mode = ND_INTERPOLATION_CUBIC;
    note_gradients(r, nd_interpolate(x, &to), 1, (const nd_tensor *const[]){x});
}

static const struct {
    const char *name;
    void (*compute)(record *r);
    /// How far numbers of threads may be apart without nd_set_deterministic; 0: the same bits.
    double apart;
} computations[] = {
    {"a multilayer perceptron, five steps of Adam", train, APART},
    {"convolution of f32, and gradients", convolve_f32, APART},
    {"convolution of f64, and gradients", convolve_f64, 0},
    {"convolution of bf16, and gradients", convolve_bf16, APART_BF16},
    {"transposed convolution of f32", transposed_convolution, APART},
    {"products of f32", multiply_f32, APART},
    {"products of f64", multiply_f64, 0},
    {"products of bf16", multiply_bf16, 0},
    {"products of i32", multiply_integers, 0},
    {"scatter_add", scatter, 0},
    {"embedding, and its gradient", embed, 0},
    {"reductions and scans", reduce, 0},
    {"softmax and cross entropy", soften, 0},
    {"attention, and gradients", attend, APART},
    {"an LSTM, and gradients", recur, APART},
    {"norms, and gradients", normalise, 0},
    {"losses, and gradients", lose, 0},
    {"elementwise functions", elementwise, 0},
    {"random numbers", draw, 0},
    {"pooling and interpolation, and gradients", pool_windows, 0},
};
enum { COMPUTATIONS = sizeof computations / sizeof *computations };

static void compute_all(record *r) {
    for (int i = 0; i < COMPUTATIONS; i++)
        computations[i].compute(r);
}

/// Computes each again and compares with `expected`, of all of them.
static void assert_same(const record *expected, const char *when) {
    record found = new_record();
    for (int i = 0; i < COMPUTATIONS; i++) {
        size_t before = found.size;
        computations[i].compute(&found);
        if (found.size > expected->size ||
            memcmp(found.bytes + before, expected->bytes + before, found.size - before) != 0)
            fail_msg("%s has other bits %s", computations[i].name, when);
    }
    assert_int_equal(found.size, expected->size);
    free(found.bytes);
}

// ------------------------------------------------------------------------------------------- tests

/// Of THREADS threads, as they are when this returns; computed by the first test that asks.
static const record *usual_record(void) {
    static record usual;
    assert_int_equal(nd_set_num_threads(THREADS), ND_OK);
    if (!usual.bytes) {
        usual = new_record();
        compute_all(&usual);
    }
    return &usual;
}

static void test_same_bits_twice(void **state) {
    (void)state;
    assert_same(usual_record(), "the second time");
}

static atomic_bool stop;

static void *spin(void *argument) {
    (void)argument;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        continue;
    return NULL;
}

static void test_same_bits_beside_load(void **state) {
    (void)state;
    const record *quiet = usual_record();
    pthread_t load[LOAD];
    atomic_store(&stop, false);
    for (int i = 0; i < LOAD; i++)
        assert_int_equal(pthread_create(&load[i], NULL, spin, NULL), 0);
    assert_same(quiet, "beside a load");
    atomic_store(&stop, true);
    for (int i = 0; i < LOAD; i++)
        pthread_join(load[i], NULL);
}

static void *compute_beside(void *argument) {
    compute_all((record *)argument);
    return NULL;
}

static void test_same_bits_of_callers_that_share_the_pool(void **state) {
    (void)state;
    const record *alone = usual_record();
    record found[CALLERS];
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        found[i] = new_record();
        assert_int_equal(pthread_create(&callers[i], NULL, compute_beside, &found[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        assert_int_equal(found[i].size, alone->size);
        assert_memory_equal(found[i].bytes, alone->bytes, alone->size);
        free(found[i].bytes);
    }
}

/// This program again, in a process of its own.
static void compute_elsewhere(const char *path) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "bits", path, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_same_bits_in_another_process(void **state) {
    (void)state;
    const record *here = usual_record();
    const char *folder = getenv("TEST_TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/bits.XXXXXX", folder ? folder : "/tmp");
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    compute_elsewhere(path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    record there = new_record();
    there.size = fread(there.bytes, 1, ROOM, file);
    fclose(file);
    unlink(path);
    assert_int_equal(there.size, here->size);
    assert_memory_equal(there.bytes, here->bytes, here->size);
    free(there.bytes);
}

// What C++ has for destructors of a thread's variables.
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *data, void *library)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static atomic_bool ends;

/// A destructor that takes its time, as any does on a busy machine.
static void end_slowly(void *data) {
    (void)data;
    atomic_store(&ends, true);
    usleep(200000);
}

static void *compute_and_end(void *argument) {
    // Registered before the library's own, so run after it.
    __cxa_thread_atexit_impl(end_slowly, NULL, &__dso_handle);
    nd_auto nd_tensor *x = normal(1, ND_SHAPE(128, 128), ND_F32);
    nd_auto nd_tensor *product = nd_matmul(x, x);
    assert_non_null(product);
    return argument;
}

// The first product of a kind waits for a thread that ends, and is computed as all that follow.
static void test_same_bits_beside_a_thread_that_ends(void **state) {
    (void)state;
    if (!__cxa_thread_atexit_impl)
        return;
    assert_int_equal(nd_set_num_threads(1), ND_OK);
    nd_auto nd_tensor *a = normal(1, ND_SHAPE(65, 5000), ND_F32);
    nd_auto nd_tensor *b = normal(2, ND_SHAPE(5000, 33), ND_F32);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute_and_end, NULL), 0);
    while (!atomic_load(&ends))
        usleep(100);
    record first = new_record(), second = new_record();
    note(&first, nd_matmul(a, b));
    pthread_join(thread, NULL);
    note(&second, nd_matmul(a, b));
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.bytes, second.bytes, first.size);
    free(first.bytes);
    free(second.bytes);
}

static void test_deterministic_is_off_at_first(void **state) {
    (void)state;
    assert_false(nd_is_deterministic());
    nd_set_deterministic(true);
    assert_true(nd_is_deterministic());
    nd_set_deterministic(false);
    assert_false(nd_is_deterministic());
}

static void test_deterministic_has_the_same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    nd_set_deterministic(true);
    assert_int_equal(nd_set_num_threads(1), ND_OK);
    record one = new_record();
    compute_all(&one);
    for (int k = 0; k < COUNTS; k++) {
        char when[64];
        snprintf(when, sizeof when, "with %d threads", thread_counts[k]);
        assert_int_equal(nd_set_num_threads(thread_counts[k]), ND_OK);
        assert_same(&one, when);
    }
    nd_set_deterministic(false);
    free(one.bytes);
}

/// How far two records of f32 are apart, in units of the largest number.
static double distance(const record *a, const record *b) {
    const float *x = (const float *)(const void *)a->bytes,
                *y = (const float *)(const void *)b->bytes;
    double most = 0, largest = 0;
    assert_int_equal(a->size, b->size);
    for (size_t i = 0; i < a->size / sizeof *x; i++) {
        assert_true(isfinite(x[i]) && isfinite(y[i]));
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
        largest = fmax(largest, fabs((double)x[i]));
    }
    return most / largest;
}

// What docs/threading.md says of numbers of threads.
static void test_only_products_of_f32_depend_on_the_number_of_threads(void **state) {
    (void)state;
    for (int i = 0; i < COMPUTATIONS; i++) {
        record one = new_record(), other = new_record();
        double most = 0;
        assert_int_equal(nd_set_num_threads(1), ND_OK);
        computations[i].compute(&one);
        for (int k = 0; k < COUNTS; k++) {
            other.size = 0;
            assert_int_equal(nd_set_num_threads(thread_counts[k]), ND_OK);
            computations[i].compute(&other);
            assert_int_equal(one.size, other.size);
            if (computations[i].apart == 0)
                assert_memory_equal(one.bytes, other.bytes, one.size);
            else
                most = fmax(most, distance(&one, &other));
        }
        if (computations[i].apart > 0)
            print_message("%s: %.1e of the largest number apart\n", computations[i].name, most);
        assert_true(most <= computations[i].apart);
        free(one.bytes);
        free(other.bytes);
    }
}

static int write_record(const char *path) {
    record r = new_record();
    if (nd_set_num_threads(THREADS) != ND_OK)
        return 1;
    compute_all(&r);
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(r.bytes, 1, r.size, file) == r.size && fclose(file) == 0;
    free(r.bytes);
    return written ? 0 : 1;
}

int main(int count, char **arguments) {
    if (count > 1)
        return write_record(arguments[1]);
    const struct CMUnitTest tests[] = {
        ND_TEST(test_same_bits_beside_a_thread_that_ends), // before others have made products
        ND_TEST(test_deterministic_is_off_at_first),
        ND_TEST(test_same_bits_twice),
        ND_TEST(test_same_bits_beside_load),
        ND_TEST(test_same_bits_of_callers_that_share_the_pool),
        ND_TEST(test_same_bits_in_another_process),
        ND_TEST(test_deterministic_has_the_same_bits_for_any_number_of_threads),
        ND_TEST(test_only_products_of_f32_depend_on_the_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
