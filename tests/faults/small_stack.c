// How much stack a thread needs that calls the library: docs/threading.md says STACK bytes. Every
// kind of call is made in a process of its own, so that it is the first of its kind, on a thread
// whose stack was painted before. Not under sanitizers, whose frames are larger.
#include "tests/testing.h"
#include <math.h>
#include <nd/debug.h>
#include <nd/fft.h>
#include <nd/image.h>
#include <nd/linalg.h>
#include <nd/nd.h>
#include <nd/state.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 128 << 10, PAINTED = 1 << 20, PAINT = 0xa5 };

static const char *folder(void) {
    const char *temporary = getenv("TEST_TMPDIR");
    return temporary ? temporary : "/tmp";
}

static const char *path_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    return path;
}

// What all kinds compute with; made by the child's first thread.
static nd_tensor *square, *small_square, *image, *pictures, *windows, *labels;
static nd_module *model;

static void make_operands(void) {
    nd_key key = nd_key_new(1);
    square = nd_randn(key, ND_SHAPE(130, 130), ND_F32);
    small_square = nd_randn(key, ND_SHAPE(20, 20), ND_F64);
    image = nd_zeros(ND_SHAPE(19, 17, 3), ND_U8);
    pictures = nd_randn(key, ND_SHAPE(2, 16, 20, 20), ND_F32);
    windows = nd_randn(key, ND_SHAPE(8, 16, 3, 3), ND_F32);
    labels = nd_zeros(ND_SHAPE(130), ND_I64);
    model = ND_SEQUENTIAL(nd_linear_module(key, 130, 30, true), nd_tanh_module(),
                          nd_linear_module(key, 30, 10, true));
}

static void product_of(nd_dtype dtype) {
    nd_auto nd_tensor *x = nd_cast(square, dtype);
    nd_release(nd_matmul(x, x));
}
static void kind_add(void) {
    nd_release(nd_add(square, square));
}
static void kind_matmul_f32(void) {
    product_of(ND_F32);
}
static void kind_matmul_f64(void) {
    product_of(ND_F64);
}
static void kind_matmul_bf16(void) {
    product_of(ND_BF16);
}
static void kind_matmul_i32(void) {
    product_of(ND_I32);
}
static void kind_einsum(void) {
    nd_release(nd_einsum("ij,jk->ik", 2, (const nd_tensor *[]){square, square}));
}
static void kind_conv(void) {
    nd_set_requires_grad(windows, true);
    nd_auto nd_tensor *y = nd_conv2d(pictures, windows, NULL, NULL);
    nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
    nd_backward(sum, NULL);
}
static void kind_softmax(void) {
    nd_release(nd_softmax(square, 1));
}
static void kind_sort(void) {
    nd_release(nd_sort(square, 0, false));
}
static void kind_reduce(void) {
    nd_release(nd_std(square, 1, (const int[]){0}, 1, false));
}
static void kind_randn(void) {
    nd_release(nd_randn(nd_key_new(2), ND_SHAPE(10000), ND_F32));
}
static void kind_svd(void) {
    nd_tensor *u = NULL, *s = NULL, *v = NULL;
    nd_svd(small_square, &u, &s, &v);
    nd_release(u);
    nd_release(s);
    nd_release(v);
}
static void kind_lstsq(void) {
    nd_release(nd_lstsq(small_square, small_square, -1));
}
static void kind_inv(void) {
    nd_tensor *r = NULL;
    nd_release(nd_inv(small_square));
    nd_release(nd_inv(square));
    if (nd_qr(square, NULL, &r) == ND_OK)
        nd_release(r);
}
static void kind_fft(void) {
    nd_release(nd_rfft(small_square, 997, 0, ND_FFT_NORM_BACKWARD));
    nd_release(nd_rfft(square, 4096, 1, ND_FFT_NORM_BACKWARD));
}
static void kind_png(void) {
    nd_auto nd_tensor *bytes = nd_encode_png(image, NULL);
    if (bytes)
        nd_release(nd_decode_image(nd_get_data(bytes), (size_t)nd_get_numel(bytes), NULL));
}
static void kind_jpeg(void) {
    nd_auto nd_tensor *bytes = nd_encode_jpeg(image, NULL);
    if (bytes)
        nd_release(nd_decode_image(nd_get_data(bytes), (size_t)nd_get_numel(bytes), NULL));
}
static void kind_safetensors(void) {
    const char *names[] = {"a"}, *path = path_of("stack.safetensors");
    nd_save_safetensors(path, 1, names, (const nd_tensor *[]){square});
    nd_release(nd_load_safetensors(path));
}
static void kind_csv(void) {
    nd_save_csv(path_of("stack.csv"), square, NULL);
    nd_release(nd_load_csv(path_of("stack.csv"), ND_F32, NULL));
}
static void kind_npz(void) {
    const char *names[] = {"a"}, *path = path_of("stack.npz");
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = true;
    nd_save_npz(path, 1, names, (const nd_tensor *[]){square}, &options);
    nd_release(nd_load_npz(path));
}
static void kind_error(void) {
    nd_release(nd_add(square, small_square));
    nd_error_clear();
}
static void kind_dump(void) {
    FILE *null = fopen("/dev/null", "w");
    nd_debug_dump(NULL, null);
    nd_debug_dump_json(NULL, null, 0);
    nd_debug_holders(square, null);
    nd_print(square, null);
    fclose(null);
}
static void kind_trace(void) {
    nd_trace_begin(path_of("stack.json"));
    nd_release(nd_ones(ND_SHAPE(4), ND_F32));
    nd_trace_end();
}
static void kind_training(void) {
    nd_auto nd_optimizer *optimizer = nd_adamw(model, NULL);
    for (int step = 0; step < 2; step++) {
        nd_auto nd_tensor *logits = nd_module_forward(model, square);
        nd_auto nd_tensor *loss = nd_cross_entropy(logits, labels);
        nd_backward(loss, NULL);
        nd_optimizer_step(optimizer);
        nd_optimizer_zero_grad(optimizer);
    }
}
static void kind_collection(void) {
    for (int i = 0; i < 100; i++) {
        nd_auto nd_list *list = nd_list_new();
        nd_list_append(list, list);
    }
    nd_gc_collect(NULL, NULL);
}
static void kind_long_chain(void) {
    nd_tensor *last = nd_ones(ND_SHAPE(4), ND_F32);
    nd_set_requires_grad(last, true);
    for (int i = 0; i < 10000; i++) {
        nd_tensor *next = nd_tanh(last);
        nd_release(last);
        last = next;
    }
    nd_auto nd_tensor *sum = nd_sum(last, 0, NULL, false);
    nd_release(last);
    nd_backward(sum, NULL);
}
static void kind_quota(void) {
    nd_auto nd_manager *manager = nd_manager_new(NULL, "small");
    nd_manager_set_quota(manager, ND_CPU, 10);
    nd_with_manager(manager) nd_release(nd_ones(ND_SHAPE(100), ND_F32));
    nd_error_clear();
    nd_manager_close(manager, NULL);
}

static const struct {
    const char *name;
    void (*call)(void);
} kinds[] = {
#define KIND(name) \
    { #name, kind_##name }
    KIND(add),        KIND(matmul_f32), KIND(matmul_f64),  KIND(matmul_bf16), KIND(matmul_i32),
    KIND(einsum),     KIND(conv),       KIND(softmax),     KIND(sort),        KIND(reduce),
    KIND(randn),      KIND(svd),        KIND(lstsq),       KIND(inv),         KIND(fft),
    KIND(png),        KIND(jpeg),       KIND(safetensors), KIND(csv),         KIND(npz),
    KIND(error),      KIND(dump),       KIND(trace),       KIND(training),    KIND(collection),
    KIND(long_chain), KIND(quota),
#undef KIND
};
enum { COUNT = sizeof kinds / sizeof *kinds };

static void *run_kind(void *index) {
    kinds[*(const int *)index].call();
    return NULL;
}

/// Bytes of a painted stack that a thread wrote to, with what the C library keeps there.
static size_t stack_of(int index) {
    unsigned char *stack =
        mmap(NULL, PAINTED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(stack, PAINT, PAINTED);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, PAINTED);
    if (pthread_create(&thread, &attributes, run_kind, &index) != 0)
        return PAINTED;
    pthread_join(thread, NULL);
    size_t untouched = 0;
    while (untouched < PAINTED && stack[untouched] == PAINT)
        untouched++;
    return PAINTED - untouched;
}

/// The same with so much stack and no more; beyond it is a guard page.
static int run_on(int index, size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, bytes) != 0 ||
        pthread_create(&thread, &attributes, run_kind, &index) != 0)
        return 1;
    return pthread_join(thread, NULL);
}

/// In a child: the pages of stack that a kind of call took; with `bytes`, whether it ends well.
static int in_child(int index, size_t bytes) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        make_operands();
        _exit(bytes ? run_on(index, bytes) : (int)((stack_of(index) + 4095) / 4096));
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status))
        fail_msg("%s on %zu bytes of stack: status %d", kinds[index].name, bytes, status);
    return WEXITSTATUS(status);
}

static void test_calls_on_a_thread_with_little_stack(void **state) {
    (void)state;
    int most = 0;
    for (int i = 0; i < COUNT; i++) {
        int pages = in_child(i, 0);
        print_message("%-12s %3d KiB\n", kinds[i].name, 4 * pages);
        most = pages > most ? pages : most;
        assert_int_equal(in_child(i, STACK), 0);
    }
    print_message("the most: %d KiB\n", 4 * most);
    // Room for what other machines' libraries do more.
    assert_true(most > 0 && most * 4096 <= STACK * 3 / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_calls_on_a_thread_with_little_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
