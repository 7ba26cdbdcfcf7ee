// C6 of docs/behaviours.md: what captures refuse, and what is left of them when something fails.
//
// Run with ND_CUDART_RACES=1, as streams_test. tests/cudart/planted/ holds bugs that these tests must
// notice.
#include "tests/cudart/graphs.h"
#include "third_party/dlpack/dlpack.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

// ------------------------------------------------------------------------------------------------
// what is refused

/// The message says that it is the size.
#define assert_size_refused(call)                                         \
    do {                                                                  \
        (void)(call);                                                     \
        assert_non_null(strstr(nd_error_get_message(), "of the result")); \
        nd_error_clear();                                                 \
        assert_refused(call);                                             \
    } while (0)

static void nothing(void *data) {
    (void)data;
}

static void test_C06_refusals_leave_the_capture_good(void **state) {
    (void)state;
    nd_stream *stream = nd_stream_new(cuda(0));
    nd_event *event = nd_event_new(cuda(0), true), *timed = nd_event_new(cuda(0), true);
    assert_ok(nd_event_record(event, NULL));
    assert_ok(nd_event_record(timed, NULL));
    nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
    nd_tensor *one = full_on(cuda(0), 1, 1), *there = full_on(cuda(1), SIZE, 1);
    nd_tensor *here = full_on(cpu, SIZE, 1), *square = full_on(cuda(0), 4, 1);
    nd_tensor *matrix = nd_reshape(square, ND_SHAPE(2, 2)), *values_of = NULL;
    nd_tensor *mask = nd_equal(x, x), *number = nd_cast(one, ND_I32);
    nd_graph *before = accumulating(x, total), *graph = NULL;
    float values[SIZE];
    bool done;
    double time;
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    nd_memory_cache_stats cache = ND_MEMORY_CACHE_STATS_INIT;
    assert_false(nd_is_capturing());
    nd_with_capture(cuda(0), &graph) {
        assert_true(nd_is_capturing());
        nd_auto nd_tensor *y = nd_mul(x, x);
        assert_refused(nd_capture_begin(cuda(0)) != ND_OK);
        assert_refused(nd_graph_launch(before) != ND_OK);
        assert_refused(nd_synchronize(cuda(0)) != ND_OK);
        assert_refused(nd_synchronize(cuda(1)) != ND_OK);
        assert_refused(isnan(nd_get_item(one)));
        assert_refused(nd_copy_to_host(x, values, sizeof values) != ND_OK);
        assert_refused(nd_copy_(x, here) != ND_OK);
        assert_refused(nd_copy_(here, x) != ND_OK);
        assert_refused(nd_copy_(there, x) != ND_OK);
        assert_refused(nd_copy_(x, there) != ND_OK);
        assert_refused(!nd_to(x, cpu));
        assert_refused(!nd_to(x, cuda(1)));
        assert_refused(!nd_to(here, cuda(0)));
        assert_refused(!nd_add(there, there));
        assert_refused(nd_fill_(there, 0) != ND_OK);
        assert_refused(!nd_inv(matrix));
        assert_size_refused(!nd_nonzero(x));
        assert_size_refused(!nd_masked_select(x, mask));
        assert_size_refused(nd_unique(x, &values_of, NULL, NULL, NULL) != ND_OK);
        assert_size_refused(!nd_bincount(number, NULL, 3));
        assert_refused(!nd_to_dlpack(x));
        assert_refused(nd_queue_callback(cuda(0), nothing, NULL, NULL) != ND_OK);
        assert_refused(!nd_stream_new(cuda(0)));
        assert_refused(nd_stream_synchronize(stream) != ND_OK);
        assert_refused(nd_stream_query(stream, &done) != ND_OK);
        assert_refused(nd_stream_wait(stream, event) != ND_OK);
        assert_refused(!nd_event_new(cuda(0), false));
        assert_refused(nd_event_record(event, NULL) != ND_OK);
        assert_refused(nd_event_synchronize(event) != ND_OK);
        assert_refused(nd_event_query(event, &done) != ND_OK);
        assert_refused(nd_event_get_elapsed(event, timed, &time) != ND_OK);
        assert_refused(nd_memory_get_device_stats(cuda(0), &stats) != ND_OK);
        assert_refused(nd_memory_get_cache_stats(ND_CUDA, &cache) != ND_OK);
        assert_refused(nd_memory_set_limit(cuda(0), 1 << 20) != ND_OK);
        assert_refused(nd_memory_set_cache_limit(ND_CUDA, 0) != ND_OK);
        assert_int_equal(nd_memory_get_cached(ND_CUDA), 0);
        assert_int_equal(nd_memory_trim(ND_CUDA), 0);
        assert_ok(nd_set_default_device(cuda(0)));
        assert_refused(!nd_from_data(values, ND_SHAPE(SIZE), ND_F32));
        assert_refused(!nd_linspace(0, 1, SIZE * SIZE, ND_F32));
        assert_ok(nd_set_default_device(cpu));
        // The CPU works as ever, and another current stream changes nothing.
        nd_auto nd_tensor *twice = nd_add(here, here);
        assert_true(((const float *)nd_get_data(twice))[0] == 2);
        nd_with_stream(stream) assert_ok(nd_add_(total, y));
    }
    assert_handle(graph);
    assert_int_equal(nd_graph_get_bytes(graph), SIZE * sizeof(float)); // y's: nothing else took any
    assert_true(sum_of(total) == 0);
    assert_ok(nd_graph_launch(graph));
    assert_ok(nd_graph_launch(before));
    assert_true(sum_of(total) == 27.0 * SIZE);
    nd_release(graph);
    nd_release(before);
    nd_release(mask);
    nd_release(number);
    nd_release(matrix);
    nd_release(square);
    nd_release(here);
    nd_release(there);
    nd_release(one);
    nd_release(x);
    nd_release(total);
    nd_release(event);
    nd_release(timed);
    nd_release(stream);
    assert_nothing_left_on_devices();
}

static nd_tensor *doubled(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count;
    (void)data;
    return nd_add(inputs[0], inputs[0]);
}

static void assert_linear_algebra_refused(const nd_tensor *matrix, const nd_tensor *column) {
    nd_tensor *a, *b, *c;
    assert_refused(!nd_solve(matrix, column));
    assert_refused(!nd_solve_triangular(matrix, column, true, false));
    assert_refused(!nd_inv(matrix));
    assert_refused(!nd_lstsq(matrix, column, -1));
    assert_refused(!nd_matrix_power(matrix, -2));
    assert_refused(!nd_pinv(matrix, -1));
    assert_refused(!nd_cholesky(matrix));
    assert_refused(nd_qr(matrix, &a, &b) != ND_OK);
    assert_refused(nd_svd(matrix, &a, &b, &c) != ND_OK);
    assert_refused(!nd_svdvals(matrix));
    assert_refused(nd_eigh(matrix, &a, &b) != ND_OK);
    assert_refused(!nd_eigvalsh(matrix));
    assert_refused(!nd_det(matrix));
    assert_refused(nd_slogdet(matrix, &a, &b) != ND_OK);
    assert_refused(!nd_matrix_rank(matrix, -1));
    assert_refused(!nd_matrix_norm(matrix, ND_MATRIX_NORM_NUCLEAR, false));
    assert_refused(!nd_matrix_norm(matrix, ND_MATRIX_NORM_SPECTRAL, false));
}

static void assert_files_refused(const nd_tensor *x, const nd_tensor *picture,
                                 const nd_module *module, const nd_state *program) {
    static const char *const name = "x";
    char path[300];
    snprintf(path, sizeof path, "%s/refused", getenv("TEST_TMPDIR") ? getenv("TEST_TMPDIR") : ".");
    assert_refused(nd_save_npy(path, x) != ND_OK);
    assert_refused(nd_save_npz(path, 1, &name, &x, NULL) != ND_OK);
    assert_refused(nd_save_csv(path, x, NULL) != ND_OK);
    assert_refused(nd_save_safetensors(path, 1, &name, &x) != ND_OK);
    assert_refused(nd_save_png(path, picture, NULL) != ND_OK);
    assert_refused(!nd_encode_png(picture, NULL));
    assert_refused(nd_save_parameters(module, path) != ND_OK);
    assert_refused(nd_save_state(program, path) != ND_OK);
    assert_int_equal(access(path, F_OK), -1);
}

/// Whatever a function calls to get at the elements, it is the function that the error names.
static void test_C06_refusals_name_what_was_called(void **state) {
    (void)state;
    nd_tensor *matrix = full_on(cuda(0), 4, 2), *column = full_on(cuda(0), 2, 1);
    nd_tensor *square = nd_reshape(matrix, ND_SHAPE(2, 2)), *bytes = nd_cast(matrix, ND_U8);
    nd_tensor *picture = nd_reshape(bytes, ND_SHAPE(2, 2, 1)), *graph_of = NULL;
    nd_tensor *leaf = nd_clone(column), *one = full_on(cuda(0), 1, 1);
    nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_state *program = nd_state_new();
    assert_ok(nd_module_to(module, cuda(0)));
    assert_ok(nd_state_add_tensor(program, "x", matrix));
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_tensor *out = nd_module_forward(module, column), *loss = nd_sum(out, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    nd_graph *graph = NULL;
    char text[200];
    int64_t integer;
    FILE *sink = fopen("/dev/null", "w");
    nd_with_capture(cuda(0), &graph) {
        assert_refused(nd_print(column, sink) != ND_OK);
        assert_refused(nd_format(column, text, sizeof text) < 0);
        assert_refused(nd_get_item_i64(one, &integer) != ND_OK);
        assert_refused(!nd_to_dlpack(column));
        assert_refused(!nd_to_dlpack_unversioned(column));
        assert_refused(nd_module_to(module, cpu) != ND_OK);
        assert_refused(nd_clip_grad_norm(module, 1, NULL) != ND_OK);
        assert_refused(nd_gradcheck(doubled, NULL, 1, (const nd_tensor *const[]){leaf}, 1, 1e-3,
                                    1e-3) != ND_OK);
        assert_linear_algebra_refused(square, column);
        assert_files_refused(column, picture, module, program);
        graph_of = nd_add(column, column);
    }
    fclose(sink);
    assert_handle(graph);
    assert_ok(nd_graph_launch(graph));
    assert_true(sum_of(graph_of) == 4);
    nd_release(graph);
    nd_release(graph_of);
    nd_release(loss);
    nd_release(out);
    nd_release(program);
    nd_release(module);
    nd_release(leaf);
    nd_release(one);
    nd_release(picture);
    nd_release(bytes);
    nd_release(square);
    nd_release(column);
    nd_release(matrix);
    assert_nothing_left_on_devices();
}

static void test_C06_wrong_calls(void **state) {
    (void)state;
    assert_null(nd_capture_end());
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
    nd_error_clear();
    nd_capture_abandon();
    assert_int_equal(nd_capture_begin(cpu), ND_ERROR_UNSUPPORTED);
    nd_error_clear();
    assert_int_equal(nd_capture_begin(cuda(7)), ND_ERROR_DEVICE);
    nd_error_clear();
    assert_int_equal(nd_graph_launch(NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_graph_get_device(NULL).kind, ND_CPU);
    assert_int_equal(nd_graph_get_bytes(NULL), 0);
    nd_graph *graph = NULL;
    bool ran = false;
    nd_with_capture(cpu, &graph) ran = true;
    assert_false(ran);
    assert_null(graph);
    assert_int_equal(nd_error_get_status(), ND_ERROR_UNSUPPORTED);
    nd_error_clear();
    // Of nothing.
    nd_with_capture(cuda(0), &graph)(void) 0;
    assert_handle(graph);
    assert_int_equal(nd_graph_get_bytes(graph), 0);
    assert_ok(nd_graph_launch(graph));
    assert_ok(nd_close(graph));
    assert_int_equal(nd_graph_launch(graph), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_release(graph);
    assert_nothing_left_on_devices();
}

static int given_back;

static void give_back(DLManagedTensorVersioned *managed) {
    given_back++;
    (void)cudaFree(managed->dl_tensor.data);
    free(managed);
}

/// Memory that ndarc does not own cannot be held. It is given back behind the capture.
static void test_C06_memory_of_others(void **state) {
    (void)state;
    static int64_t shape[] = {SIZE};
    DLManagedTensorVersioned *managed = calloc(1, sizeof *managed);
    managed->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed->deleter = give_back;
    managed->dl_tensor =
        (DLTensor){.device = {kDLCUDA, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    assert_int_equal(cudaMalloc(&managed->dl_tensor.data, SIZE * sizeof(float)), cudaSuccess);
    nd_tensor *foreign = nd_from_dlpack(managed), *copy = NULL;
    assert_handle(foreign);
    assert_ok(nd_fill_(foreign, 4));
    nd_tensor *own = nd_clone(foreign);
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        check_refusal("nd_add", !nd_add(foreign, foreign), ND_ERROR_STATE, true);
        check_refusal("nd_fill_", nd_fill_(foreign, 0) != ND_OK, ND_ERROR_STATE, true);
        copy = nd_add(own, own);
        nd_release(foreign);
        assert_int_equal(given_back, 0);
    }
    assert_handle(graph);
    assert_int_equal(given_back, 1);
    assert_ok(nd_graph_launch(graph));
    assert_true(sum_of(copy) == 8.0 * SIZE);
    nd_release(graph);
    nd_release(copy);
    nd_release(own);
    assert_nothing_left_on_devices();
}

/// Left by break, goto or return, or when the thread ends.
static void leave_early(const nd_tensor *x, nd_graph **graph) {
    nd_with_capture(cuda(0), graph) {
        nd_auto nd_tensor *y = nd_mul(x, x);
        if (y)
            return;
    }
}

static void *leave_open(void *x) {
    if (nd_capture_begin(cuda(0)) == ND_OK)
        nd_release(nd_mul(x, x));
    return NULL;
}

static void test_C06_captures_that_are_given_up(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 2), *kept = NULL;
    nd_graph *graph = NULL;
    leave_early(x, &graph);
    assert_null(graph);
    assert_false(nd_is_capturing());
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_open, x), 0);
    pthread_join(thread, NULL);
    assert_int_equal(statistics().captures, 0);
    assert_ok(nd_capture_begin(cuda(0)));
    kept = nd_mul(x, x); // outlives it
    nd_capture_abandon();
    assert_ok(nd_fill_(kept, 1));
    assert_true(sum_of(kept) == SIZE);
    nd_release(kept);
    nd_release(x);
    assert_nothing_left_on_devices();
}

/// A graph and a tensor of another device die in a capture.
static void test_C06_deaths_in_a_capture(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
    nd_tensor *there = full_on(cuda(1), SIZE, 1);
    nd_graph *first = accumulating(x, total), *second = NULL;
    assert_ok(nd_graph_launch(first));
    const uint64_t graphs = statistics().live_graphs;
    nd_with_capture(cuda(0), &second) {
        nd_release(first);
        nd_release(there);
        assert_int_equal(statistics().live_graphs, graphs);
        assert_ok(nd_add_(total, x));
    }
    assert_handle(second);
    assert_ok(nd_graph_launch(second));
    assert_true(sum_of(total) == 21.0 * SIZE);
    nd_release(second);
    nd_release(x);
    nd_release(total);
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// failures

/// The sum of what two launches make, NaN on an error.
static double capture_and_launch(void) {
    nd_auto nd_tensor *x = full_on(cuda(0), SIZE, 2), *total = full_on(cuda(0), SIZE, 0);
    nd_auto nd_tensor *old = full_on(cuda(0), SIZE, 2);
    nd_auto nd_graph *graph = NULL;
    if (!x || !total || !old || nd_capture_begin(cuda(0)) != ND_OK)
        return NAN;
    nd_auto nd_tensor *y = nd_mul(x, x);
    nd_auto nd_tensor *running = y ? nd_cumsum(y, 0) : NULL;
    bool right = running && nd_add_(total, y) == ND_OK;
    nd_release(old);
    old = NULL;
    if (right)
        graph = nd_capture_end();
    else
        nd_capture_abandon();
    right = graph && nd_graph_launch(graph) == ND_OK && nd_graph_launch(graph) == ND_OK;
    return right ? sum_of(total) : NAN;
}

static void test_C06_each_call_fails_once(void **state) {
    (void)state;
    static const cudaError_t errors[] = {cudaErrorMemoryAllocation, cudaErrorInvalidValue,
                                         cudaErrorStreamCaptureInvalidated};
    assert_true(capture_and_launch() == 8.0 * SIZE);
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        uint64_t happened = statistics().failures;
        for (uint64_t n = 1; statistics().failures == happened + n - 1; n++) {
            cudart_fail(NULL, n, errors[e]);
            const double sum = capture_and_launch();
            const bool told = nd_error_get_status() != ND_OK;
            cudart_fail(NULL, 0, cudaSuccess);
            if (sum != 8.0 * SIZE && !(isnan(sum) && told))
                fail_msg("call %llu answers %d: %g, and %s", (unsigned long long)n, (int)errors[e],
                         sum, nd_status_get_name(nd_error_get_status()));
            assert_false(nd_is_capturing());
            nd_error_clear();
            assert_int_equal(statistics().captures, 0);
            assert_true(capture_and_launch() == 8.0 * SIZE);
        }
        assert_true(statistics().failures > happened + 40);
    }
    for (int i = 0; i < 2; i++)
        assert_ok(nd_synchronize(cuda(i)));
    assert_int_equal(statistics().pending, 0);
    assert_int_equal(statistics().captures, 0);
}

/// Work that fails while it is captured: what is left of it is no graph.
static void test_C06_a_broken_capture_is_told(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 2), *y = NULL;
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        cudart_fail("cudaLaunchKernelExC", 1, cudaErrorInvalidConfiguration);
        assert_null(nd_mul(x, x));
        nd_error_clear();
        y = nd_add(x, x);
    }
    assert_null(graph);
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
    nd_error_clear();
    assert_handle(y);
    nd_release(y);
    nd_release(x);
    assert_nothing_left_on_devices();
}

/// Roles: processes of their own.
static int lost_with_graph(void) {
    nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0), *y = NULL;
    nd_graph *graph = accumulating(x, total), *other = NULL;
    if (nd_synchronize(cuda(0)) != ND_OK)
        return 1;
    cudart_hold(); // else the runtime may do what is queued at any time
    cudart_lose(1);
    if (nd_graph_launch(graph) != ND_OK)
        return 1;
    cudart_let_go();
    if (nd_synchronize(cuda(0)) != ND_ERROR_DEVICE || nd_graph_launch(graph) != ND_ERROR_DEVICE)
        return 1;
    nd_with_capture(cuda(0), &other) y = nd_add(x, x);
    if (other || y || nd_error_get_status() != ND_ERROR_DEVICE)
        return 2;
    nd_release(graph);
    nd_release(x);
    nd_release(total);
    return nd_manager_get_total_objects(NULL) == 0 ? 0 : 3;
}

static int lost_in_capture(void) {
    nd_tensor *x = full_on(cuda(0), SIZE, 3), *y = NULL;
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        y = nd_add(x, x);
        cudart_fail("cudaLaunchKernelExC", 1, cudaErrorIllegalAddress);
        nd_release(nd_add(x, x));
        nd_error_clear();
        nd_release(y);
    }
    if (graph || nd_error_get_status() == ND_OK)
        return 1;
    nd_release(x);
    return nd_manager_get_total_objects(NULL) == 0 ? 0 : 3;
}

/// The thread can use the device that was not lost; what callbacks keep there is let go. `call` is what
/// fails first on the other one.
static int lost_beside_another(const char *call) {
    nd_tensor *kept = full_on(cuda(0), SIZE, 3), *x = full_on(cuda(1), SIZE, 3);
    nd_graph *graph = NULL;
    if (nd_queue_callback(cuda(0), NULL, NULL, kept) != ND_OK)
        return 1;
    nd_release(kept);
    nd_with_capture(cuda(1), &graph) {
        cudart_fail(call, 1, cudaErrorIllegalAddress);
        nd_release(nd_add(x, x));
        nd_error_clear();
    }
    if (graph || nd_error_get_status() == ND_OK || nd_is_capturing())
        return 2;
    nd_release(x);
    nd_error_clear();
    if (nd_synchronize(cuda(0)) != ND_OK)
        return 3;
    nd_tensor *here = full_on(cuda(0), SIZE, 2);
    nd_graph *other = NULL;
    nd_with_capture(cuda(0), &other)(void) nd_add_(here, here);
    if (nd_graph_launch(other) != ND_OK || sum_of(here) != 4.0 * SIZE)
        return 4;
    nd_release(other);
    nd_release(here);
    return nd_manager_get_total_objects(NULL) == 0 ? 0 : 5;
}

static int lost_at_launch(void) {
    return lost_beside_another("cudaLaunchKernelExC");
}

static int lost_at_end(void) {
    return lost_beside_another("cudaStreamEndCapture");
}

static int lost_at_exchange(void) {
    return lost_beside_another("cudaThreadExchangeStreamCaptureMode");
}

static int child_with_graph(void) {
    nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
    nd_graph *graph = accumulating(x, total);
    if (nd_capture_begin(cuda(0)) != ND_OK)
        return 1;
    nd_tensor *y = nd_add(x, x);
    pid_t child = fork();
    if (child == 0) {
        bool right = nd_is_capturing() && !nd_add(x, x);
        nd_release(y);
        right = right && !nd_capture_end() && nd_error_get_status() == ND_ERROR_DEVICE;
        right = right && nd_graph_launch(graph) == ND_ERROR_DEVICE;
        nd_release(graph);
        nd_release(x);
        nd_release(total);
        _exit(right ? 0 : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 2;
    nd_graph *other = nd_capture_end();
    if (!other || nd_graph_launch(other) != ND_OK || nd_graph_launch(graph) != ND_OK ||
        sum_of(y) != 6.0 * SIZE || sum_of(total) != 18.0 * SIZE)
        return 3;
    nd_release(y);
    nd_release(other);
    nd_release(graph);
    nd_release(x);
    nd_release(total);
    return 0;
}

static nd_graph *graph_until_exit;

static void release_late(void) {
    nd_release(graph_until_exit);
    nd_capture_abandon();
}

static int exit_with_graph(void) {
    nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
    atexit(release_late);
    graph_until_exit = accumulating(x, total);
    if (nd_graph_launch(graph_until_exit) != ND_OK || nd_capture_begin(cuda(0)) != ND_OK)
        return 1;
    nd_release(nd_add(x, x));
    nd_release(x);
    nd_release(total);
    return 0;
}

static void test_C06_lost_forked_and_ended_with_graphs(void **state) {
    (void)state;
    static const char *const names[] = {"lost_with_graph", "lost_in_capture",  "lost_at_launch",
                                        "lost_at_end",     "lost_at_exchange", "child_with_graph",
                                        "exit_with_graph"};
    char said[4096];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int code = run_role(names[i], said, sizeof said);
        if (code != 0)
            fail_msg("%s: %d, %s", names[i], code, said);
    }
}

static const role roles[] = {
    {"lost_with_graph", lost_with_graph},   {"lost_in_capture", lost_in_capture},
    {"lost_at_launch", lost_at_launch},     {"lost_at_end", lost_at_end},
    {"lost_at_exchange", lost_at_exchange}, {"child_with_graph", child_with_graph},
    {"exit_with_graph", exit_with_graph},   {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C06_refusals_leave_the_capture_good),
        ND_TEST(test_C06_refusals_name_what_was_called),
        ND_TEST(test_C06_wrong_calls),
        ND_TEST(test_C06_memory_of_others),
        ND_TEST(test_C06_captures_that_are_given_up),
        ND_TEST(test_C06_deaths_in_a_capture),
        ND_TEST(test_C06_a_broken_capture_is_told),
        ND_TEST(test_C06_lost_forked_and_ended_with_graphs),
        // Last: a free that fails leaves its block with the device.
        ND_TEST(test_C06_each_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
