// Explanations of tensors: storages of plain ones are seen, and the graph may be looked at while
// threads train, drop and collect.
#include "tests/unit/debug/written.h"
#include <pthread.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 60 };
#else
enum { STEPS = 600 };
#endif

/// A view that follows its base holds that, and the storage by way of it.
static void test_storage_is_held_by_tensor_and_view(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "step");
    nd_tensor *x = NULL, *view = NULL, *detached = NULL;
    nd_with_manager(m) {
        x = nd_zeros(2, (int64_t[]){4, 8}, ND_F32);
        view = nd_transpose(x, 0, 1);
        detached = nd_detach(x);
    }
    assert_handle(view);
    assert_handle(detached);
    written out = {0};
    assert_ok(nd_debug_dump_json(m, written_stream(&out), 0));
    assert_contains(written_text(&out), "\"type\": \"storage\", \"manager\": 0, \"count\": 2, "
                                        "\"handles\": 0, \"tracked\": false, \"closed\": false, "
                                        "\"bytes\": 128");
    assert_int_equal(occurrences(written_text(&out), "\"label\": \"storage\""), 2);
    assert_int_equal(occurrences(written_text(&out), "\"label\": \"base\""), 1);
    written_free(&out);
    assert_ok(nd_close(x)); // keeps it for the view, which shows none
    out = (written){0};
    assert_ok(nd_debug_dump_json(m, written_stream(&out), 0));
    assert_contains(written_text(&out), "\"type\": \"storage\", \"manager\": 0, \"count\": 2, "
                                        "\"handles\": 0,");
    assert_int_equal(occurrences(written_text(&out), "\"label\": \"storage\""), 2);
    written_free(&out);
    nd_release(detached);
    nd_release(view);
    nd_release(x);
    nd_release(m);
}

static void test_storage_that_a_tensor_gets_later_is_in_the_trace(void **state) {
    (void)state;
    const char *folder = getenv("TEST_TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/tensors_test.%d.json", folder ? folder : "/tmp", (int)getpid());
    nd_tensor *x = nd_zeros(2, (int64_t[]){4, 8}, ND_F32);
    assert_ok(nd_trace_begin(path));
    nd_tensor *view = nd_transpose(x, 0, 1);
    nd_release(x);
    nd_release(view);
    assert_ok(nd_trace_end());
    static char text[1 << 14];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    remove(path);
    assert_int_equal(occurrences(text, "alloc tensor"), 1); // the view
    assert_int_equal(occurrences(text, "alloc storage"), 1);
    assert_int_equal(occurrences(text, "free storage"), 1);
    assert_int_equal(occurrences(text, "free tensor"), 2);
}

/// One step whose graph is a cycle of w, its gradient and the graph.
static void step(const nd_tensor *shared) {
    nd_manager *m = nd_manager_new(NULL, "step");
    nd_with_manager(m) {
        nd_auto nd_tensor *w = nd_ones(1, (int64_t[]){16}, ND_F32);
        assert_ok(nd_set_requires_grad(w, true));
        nd_auto nd_tensor *product = nd_mul(w, shared);
        nd_auto nd_tensor *y = nd_tanh(product);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        assert_ok(nd_backward(loss, &options));
    }
    assert_ok(nd_manager_close(m, NULL));
    nd_release(m);
}

static void *train(void *shared) {
    for (int i = 0; i < STEPS; i++)
        step(shared);
    return NULL;
}

static void *drop_plain_ones(void *shared) {
    for (int i = 0; i < 10 * STEPS; i++) {
        nd_auto nd_tensor *copy = nd_clone(shared);
        nd_auto nd_tensor *sum = nd_add(copy, shared);
        assert_handle(sum);
    }
    return NULL;
}

static void test_looking_while_threads_train(void **state) {
    (void)state;
    assert_ok(nd_gc_set_mode(ND_GC_ON));
    nd_tensor *shared = nd_ones(1, (int64_t[]){16}, ND_F32);
    pthread_t threads[3];
    assert_int_equal(pthread_create(&threads[0], NULL, train, shared), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, train, shared), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, drop_plain_ones, shared), 0);
    for (int i = 0; i < STEPS / 2; i++) {
        nd_holders holders = ND_HOLDERS_INIT;
        written out = {0};
        FILE *stream = written_stream(&out);
        nd_watch *watch = i % 8 == 0 ? nd_debug_watch(shared) : NULL;
        assert_ok(nd_debug_get_holders(shared, stream, &holders));
        assert_true(holders.count >= 1 &&
                    holders.held_edges + holders.cycle_edges == holders.edges);
        assert_ok(nd_debug_dump_dot(NULL, stream, 50));
        nd_snapshot *snapshot = nd_snapshot_new(NULL);
        assert_handle(snapshot);
        nd_snapshot_free(snapshot);
        nd_watch_end(watch);
        written_free(&out);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_holders holders = ND_HOLDERS_INIT;
    assert_ok(nd_debug_get_holders(shared, NULL, &holders));
    assert_int_equal(holders.count, 1);
    nd_release(shared);
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_storage_is_held_by_tensor_and_view),
        ND_TEST(test_storage_that_a_tensor_gets_later_is_in_the_trace),
        ND_TEST(test_looking_while_threads_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
