// A thread is cancelled inside every call that may wait, touch a file or run user code (F34).
//
// The request is there before the call: if there was a cancellation point anywhere in the call, the
// thread would end in it. It must come back, and end at the thread's own next cancellation point.
#include "tests/behaviour/cell.h"
#include "tests/behaviour/late.h"
#include "tests/testing.h"
#include "tests/training.h"
#include <nd/fft.h>
#include <nd/linalg.h>
#include <nd/nn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/ndarc-cancelled-XXXXXX";
static char path[128];
static const char *came_back = "no call"; ///< from which call, last
static FILE *nowhere;
static nd_tensor *x, *images, *labels;

/// What user code may do at any time, and what makes it a cancellation point.
static void sleep_briefly(void) {
    usleep(1);
}

static void sleep_in_finalizer(nd_object *self) {
    (void)self;
    sleep_briefly();
}

static void sleep_with_data(void *data) {
    (void)data;
    sleep_briefly();
}

static void sleep_and_free(void *pointer, size_t bytes) {
    (void)bytes;
    sleep_briefly();
    free(pointer);
}

static nd_tensor *sleep_in_hook(const nd_tensor *gradient, const nd_object *context) {
    (void)context, (void)gradient;
    sleep_briefly();
    return NULL;
}

static void destroy_slowly(nd_object *self) {
    (void)self;
    sleep_briefly();
}

static const nd_type slow_type = {
    .size = sizeof(nd_type), .version = 1, .name = "slow", .destroy = destroy_slowly};

/// A boundary collects: nd_gc_collect would be a cancellation point as it begins.
static void call_collection(void) {
    cell_on_finalize = sleep_in_finalizer;
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_object *a = NULL;
    nd_with_manager(m) {
        a = cell_new_of(&cell_finalized_type, 0, 1);
    }
    cell_link(a, 0, a);
    nd_weak *weak = nd_weak_new(a);
    nd_weak_set_callback(weak, sleep_with_data, NULL);
    nd_release(a);
    nd_manager_close(m, NULL);
    nd_release(m);
    nd_release(weak);
}

static void call_close(void) {
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_with_manager(m) {
        cell_drop_ring(0, 3);
    }
    nd_manager_close(m, NULL);
    nd_release(m);
}

static void call_dispose(void) {
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_object *slow = NULL;
    nd_with_manager(m) {
        slow = nd_object_new(&slow_type, 8);
    }
    nd_manager_dispose(m, NULL);
    nd_release(slow);
    nd_release(m);
}

static void call_release(void) {
    nd_release(nd_object_new(&slow_type, 8));
    nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = sleep_and_free};
    nd_release(nd_resource_new("slow", malloc(8), 8, &callbacks));
}

static nd_status sleep_in_init(nd_object *self, void *data) {
    (void)self, (void)data;
    sleep_briefly();
    return ND_OK;
}

static nd_tensor *sleep_in_forward(const nd_tensor *input) {
    sleep_briefly();
    return nd_retain(input);
}

/// Code of the program's that makes objects and runs models.
static void call_program(void) {
    nd_release(nd_object_new_with(&slow_type, 8, sleep_in_init, NULL));
    nd_module *module = nd_function_module(sleep_in_forward);
    nd_release(nd_module_forward(module, images));
    nd_release(module);
}

/// The first of the process asks the system how much of them is to be kept.
static void call_large_release(void) {
    nd_release(nd_ones(ND_SHAPE(1 << 24), ND_F32));
    nd_release(nd_ones(ND_SHAPE(1 << 24), ND_F32));
}

/// The first ones open libraries and start threads.
static void call_kernels(void) {
    nd_tensor *matrix = nd_full(ND_SHAPE(300, 300), 0.5, ND_F32);
    nd_release(nd_matmul(matrix, matrix));
    nd_release(nd_rfft(matrix, 0, -1, ND_FFT_NORM_BACKWARD));
    nd_release(nd_det(matrix));
    nd_release(nd_eigvalsh(matrix));
    nd_release(matrix);
    int threads = nd_get_num_threads();
    nd_set_num_threads(1);
    nd_set_num_threads(threads);
}

static void call_save_and_load(void) {
    const char *name = "x";
    const nd_tensor *tensors[] = {x};
    nd_save_safetensors(path, 1, &name, tensors);
    nd_release(nd_load_safetensors(path));
    nd_release(nd_load_idx(path)); // it is none
    nd_save_npz(path, 1, &name, tensors, NULL);
    nd_release(nd_load_npz(path));
    nd_save_npy(path, x);
    nd_release(nd_load_npy(path, NULL));
    nd_release(nd_load_safetensors_index(path, NULL)); // it is none
    nd_release(nd_gguf_open(path));                    // nor that
    nd_release(nd_load_image(path, NULL));
}

static void call_images_and_tables(void) {
    nd_tensor *picture = nd_zeros(ND_SHAPE(3, 4, 4), ND_U8),
              *table = nd_ones(ND_SHAPE(3, 2), ND_F32);
    nd_save_png(path, picture, NULL);
    nd_release(nd_load_image(path, NULL));
    nd_save_jpeg(path, picture, NULL);
    nd_release(nd_load_image(path, NULL));
    nd_release(nd_encode_png(picture, NULL));
    nd_save_csv(path, table, NULL);
    nd_release(nd_load_csv(path, ND_F32, NULL));
    nd_release(picture);
    nd_release(table);
}

static void call_training_state(void) {
    nd_module *net = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_optimizer *optimizer = nd_adam(net, NULL);
    nd_state *program = nd_state_new();
    nd_state_add_module(program, "net", net);
    nd_state_add_optimizer(program, "optimizer", optimizer);
    nd_save_state(program, path);
    nd_load_state(program, path);
    nd_save_parameters(net, path);
    nd_load_parameters(net, path);
    nd_release(program);
    nd_release(optimizer);
    nd_release(net);
}

static void call_dataset(void) {
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 4;
    options.prefetch = true;
    nd_dataset *dataset = nd_dataset_new(images, labels, &options);
    nd_dataset_start(dataset, 0);
    nd_tensor *some_images, *some_labels;
    while (next_batch(dataset, &some_images, &some_labels)) {
        nd_release(some_images);
        nd_release(some_labels);
    }
    nd_dataset_start(dataset, 1);
    nd_release(dataset);
}

static void call_device(void) {
    nd_device fake = {LATE, 0};
    nd_tensor *there = nd_to(x, fake);
    nd_queue_callback(fake, sleep_with_data, NULL, NULL);
    nd_synchronize(fake);
    nd_tensor *back = nd_to(there, (nd_device){ND_CPU, 0});
    nd_release(back);
    nd_release(there);
}

static void call_backward(void) {
    nd_tensor *leaf = nd_ones(ND_SHAPE(3), ND_F32);
    nd_set_requires_grad(leaf, true);
    nd_register_hook(leaf, sleep_in_hook, NULL);
    nd_tensor *loss = nd_sum(leaf, 0, NULL, false);
    nd_backward(loss, NULL);
    nd_release(loss);
    nd_release(leaf);
}

static void call_reports(void) {
    setvbuf(nowhere, NULL, _IONBF, 0);
    nd_debug_dump(NULL, nowhere);
    nd_debug_dump_json(NULL, nowhere, 100);
    nd_debug_dump_dot(NULL, nowhere, 100);
    nd_debug_holders(x, nowhere);
    nd_debug_report_leaks(NULL, nowhere, 100);
    nd_print(x, nowhere);
}

static void call_trace(void) {
    nd_trace_begin(path);
    nd_release(nd_ones(ND_SHAPE(3), ND_F32));
    nd_trace_end();
}

typedef struct call {
    const char *name;
    void (*function)(void);
} call;

static void *run(void *data) {
    const call *c = data;
    assert_ok(nd_test_use_device());
    pthread_cancel(pthread_self()); // acted upon at the first cancellation point
    c->function();
    came_back = c->name;
    pthread_testcancel();
    came_back = "was not cancelled at all";
    return NULL;
}

static void begin_files(void) {
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    nowhere = fopen("/dev/null", "w");
    assert_non_null(nowhere);
}

static void end_files(void) {
    fclose(nowhere);
    unlink(path);
    rmdir(folder);
}

static void test_F34_cancelled_inside_every_call_that_may_wait(void **state) {
    (void)state;
    static const call calls[] = {
        {"large release", call_large_release},
        {"kernels", call_kernels},
        {"collection", call_collection},
        {"close", call_close},
        {"dispose", call_dispose},
        {"release", call_release},
        {"program", call_program},
        {"files", call_save_and_load},
        {"images and tables", call_images_and_tables},
        {"training state", call_training_state},
        {"dataset", call_dataset},
        {"device", call_device},
        {"backward", call_backward},
        {"reports", call_reports},
        {"trace", call_trace},
    };
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    begin_files();
    cell_begin(4);
    x = nd_ones(ND_SHAPE(16, 2, 2), ND_U8);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0})); // where data sets are
    images = nd_ones(ND_SHAPE(16, 2, 2), ND_U8);
    labels = nd_zeros(ND_SHAPE(16), ND_I64);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        pthread_t thread;
        void *answer;
        assert_int_equal(pthread_create(&thread, NULL, run, (void *)(uintptr_t)&calls[i]), 0);
        pthread_join(thread, &answer);
        assert_string_equal(came_back, calls[i].name);
        assert_ptr_equal(answer, PTHREAD_CANCELED);
        assert_ok(nd_gc_collect(NULL, NULL)); // no lock was left taken
        assert_ok(nd_debug_check());
    }
    nd_release(x);
    nd_release(images);
    nd_release(labels);
    end_files();
}

static void *collect_for_ever(void *data) {
    for (;;)
        nd_gc_collect(NULL, NULL);
    return data;
}

static void *write_for_a_while(void *data) {
    for (int i = 0; i < 200000 / ND_TEST_SCALE; i++)
        cell_link(data, 0, data);
    return NULL;
}

static void test_F34_collecting_thread_is_cancelled_between_collections(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *a = cell_new(0, 1);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_for_a_while, a), 0);
    for (int i = 0; i < 30; i++) {
        pthread_t thread;
        void *answer;
        assert_int_equal(pthread_create(&thread, NULL, collect_for_ever, NULL), 0);
        usleep((useconds_t)(100 * i));
        pthread_cancel(thread);
        pthread_join(thread, &answer);
        assert_ptr_equal(answer, PTHREAD_CANCELED);
        assert_ok(nd_gc_collect(NULL, NULL));
    }
    pthread_join(writer, NULL);
    cell_unlink(a, 0);
    nd_release(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F34_cancelled_inside_every_call_that_may_wait),
        ND_TEST(test_F34_collecting_thread_is_cancelled_between_collections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
