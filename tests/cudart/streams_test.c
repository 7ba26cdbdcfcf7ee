// Streams on the fake runtime: that results, lifetimes and the caller's device do not depend on them.
//
// Run with ND_CUDART_RACES=1, so that two streams that touch a block with no order between them end
// the program. tests/cudart/planted/ holds bugs that these tests, or those of stream_programs_test.c,
// must notice.
#include "tests/cudart/streams.h"
#include <stdlib.h>

// ------------------------------------------------------------------------------------------------
// what a user sees

static void test_the_current_stream(void **state) {
    (void)state;
    nd_stream *a = stream_on(0), *b = stream_on(1);
    assert_int_equal(nd_stream_get_device(b).index, 1);
    assert_null(nd_stream_get_current(cuda(0)));
    nd_with_stream(a) {
        assert_ptr_equal(nd_stream_get_current(cuda(0)), a);
        assert_null(nd_stream_get_current(cuda(1)));
        nd_with_stream(b) {
            assert_ptr_equal(nd_stream_get_current(cuda(0)), a);
            assert_ptr_equal(nd_stream_get_current(cuda(1)), b);
        }
        assert_null(nd_stream_get_current(cuda(1)));
        assert_int_equal(nd_stream_set_current(cuda(0), b), ND_ERROR_DEVICE);
        nd_error_clear();
        assert_ptr_equal(nd_stream_get_current(cuda(0)), a);
    }
    assert_ok(nd_stream_set_current(cuda(1), b));
    assert_ptr_equal(nd_stream_get_current(cuda(1)), b);
    nd_release(b); // which ends the choice
    assert_null(nd_stream_get_current(cuda(1)));
    nd_release(a);
    assert_nothing_left_on_devices();
}

/// Work goes to the stream: the default one has nothing to do.
static void test_work_goes_to_the_current_stream(void **state) {
    (void)state;
    cudart_set_seed(0);
    nd_stream *a = stream_on(0), *b = stream_on(0);
    nd_tensor *x = NULL;
    nd_with_stream(a) x = full_on(cuda(0), 1000, 1);
    assert_false(is_done(a));
    assert_true(is_done(b));
    assert_ok(nd_stream_synchronize(a));
    assert_true(is_done(a));
    nd_release(x);
    nd_release(a);
    nd_release(b);
    assert_nothing_left_on_devices();
}

/// Reading on another stream waits for the writer, writing for the readers; the host for nothing.
static void test_results_do_not_depend_on_streams(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *stream[3] = {stream_on(0), stream_on(0), stream_on(0)};
        nd_tensor *x = full_on(cuda(0), 1000, 1), *sums[12];
        for (int i = 0; i < 12; i++) {
            nd_with_stream(stream[i % 3]) sums[i] = nd_add(x, x);
            nd_with_stream(stream[(i + 1) % 3]) assert_ok(nd_fill_(x, i + 2));
        }
        if (seed == 0)
            assert_true(statistics().pending > 24);
        for (int i = 0; i < 12; i++) {
            assert_true(sum_of(sums[i]) == 2000.0 * (i + 1));
            nd_release(sums[i]);
        }
        nd_release(x);
        for (int i = 0; i < 3; i++)
            nd_release(stream[i]);
    }
    assert_nothing_left_on_devices();
}

/// More streams than a block remembers one by one.
static void test_many_readers_before_a_writer(void **state) {
    (void)state;
    enum { READERS = 9 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *stream[READERS];
        nd_tensor *read[READERS];
        nd_tensor *x = full_on(cuda(0), 1000, 3);
        for (int i = 0; i < READERS; i++) {
            stream[i] = stream_on(0);
            nd_with_stream(stream[i]) read[i] = nd_mul(x, x);
        }
        assert_ok(nd_fill_(x, 0));
        nd_with_stream(stream[0]) nd_release(x);
        for (int i = 0; i < READERS; i++) {
            assert_true(sum_of(read[i]) == 9000);
            nd_release(read[i]);
            nd_release(stream[i]);
        }
    }
    assert_nothing_left_on_devices();
}

/// nd_synchronize waits for every stream.
static void test_synchronize_waits_for_all_streams(void **state) {
    (void)state;
    cudart_set_seed(0);
    nd_stream *stream[3];
    for (int i = 0; i < 3; i++) {
        stream[i] = stream_on(0);
        nd_with_stream(stream[i]) nd_release(full_on(cuda(0), 1000, i));
    }
    assert_true(statistics().pending > 0);
    assert_ok(nd_synchronize(cuda(0)));
    assert_int_equal(statistics().pending, 0);
    for (int i = 0; i < 3; i++)
        nd_release(stream[i]);
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// C1 to C5, C10, C13, C14 of docs/behaviours.md

static void test_C01_release_with_work_queued(void **state) {
    (void)state;
    cudart_set_seed(0);
    nd_stream *side = stream_on(0);
    const uint64_t done = statistics().steps;
    nd_with_stream(side) {
        nd_tensor *x = full_on(cuda(0), 1000, 1);
        for (int i = 0; i < 20; i++) {
            nd_tensor *next = nd_add(x, x);
            nd_release(x);
            x = next;
        }
        nd_release(x);
    }
    assert_int_equal(statistics().steps, done); // nobody has waited for anything
    assert_int_equal(statistics().live_blocks, 0);
    nd_release(side);
    assert_nothing_left_on_devices();
}

static void test_C02_last_release_before_a_second_stream_is_done(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *a = stream_on(0), *b = stream_on(0);
        nd_tensor *y[10], *z[10];
        for (int i = 0; i < 10; i++) {
            nd_tensor *x = full_on(cuda(0), 1000, i);
            nd_with_stream(a) y[i] = nd_add(x, x);
            nd_with_stream(b) z[i] = nd_mul(x, x);
            nd_release(x);
            nd_release(full_on(cuda(0), 1000, -1)); // wants the memory
        }
        for (int i = 0; i < 10; i++) {
            assert_true(sum_of(y[i]) == 2000.0 * i && sum_of(z[i]) == 1000.0 * i * i);
            nd_release(y[i]);
            nd_release(z[i]);
        }
        nd_release(a);
        nd_release(b);
    }
    assert_nothing_left_on_devices();
}

static void test_F18_C03_a_stream_is_released_before_its_tensors(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *y[10];
        nd_tensor *x = full_on(cuda(0), 1000, 5);
        for (int i = 0; i < 10; i++) {
            nd_stream *side = stream_on(0);
            nd_with_stream(side) {
                nd_release(side); // held by the block
                y[i] = nd_add(x, x);
            }
        }
        nd_release(x);
        for (int i = 0; i < 10; i++) {
            assert_true(sum_of(y[i]) == 10000);
            nd_release(y[i]);
        }
    }
    assert_nothing_left_on_devices();
}

static void test_C04_events(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *a = stream_on(0), *b = stream_on(0);
        nd_event *event = nd_event_new(cuda(0), true), *end = nd_event_new(cuda(0), true);
        bool done = false;
        double time = 0;
        // Never recorded: nothing waits.
        assert_ok(nd_stream_wait(b, event));
        assert_ok(nd_event_query(event, &done));
        assert_true(done);
        assert_ok(nd_event_synchronize(event));
        assert_int_equal(nd_event_get_elapsed(event, end, &time), ND_ERROR_STATE);
        nd_error_clear();
        nd_tensor *x[2];
        for (int i = 0; i < 2; i++) {
            nd_with_stream(a) {
                x[i] = full_on(cuda(0), 1000, i);
                assert_ok(nd_event_record(event, NULL));
            }
            assert_ok(nd_stream_wait(b, event));
        }
        if (seed == 0) {
            assert_false(is_done(b));
            assert_ok(nd_event_query(event, &done));
            assert_false(done);
        }
        assert_ok(nd_event_record(end, b));
        assert_ok(nd_event_get_elapsed(event, end, &time));
        assert_true(time >= 0);
        assert_true(is_done(a) && is_done(b));
        nd_event *plain = nd_event_new(cuda(1), false);
        assert_int_equal(nd_event_record(plain, a), ND_ERROR_DEVICE);
        nd_error_clear();
        nd_release(plain);
        nd_release(event);
        nd_release(end);
        nd_release(x[0]);
        nd_release(x[1]);
        nd_release(a);
        nd_release(b);
    }
    assert_nothing_left_on_devices();
}

/// CUDA's own number of the device that is current, for one that ndarc leaves out.
static void test_C05_the_callers_device_is_restored(void **state) {
    (void)state;
    for (int ordinal = 0; ordinal < 3; ordinal++) {
        assert_int_equal(cudaSetDevice(ordinal), cudaSuccess);
        for (int i = 0; i < 2; i++) {
            nd_stream *side = stream_on(i);
            nd_event *event = nd_event_new(cuda(i), false);
            nd_with_stream(side) {
                nd_tensor *x = full_on(cuda(i), 1000, 2), *there = nd_to(x, cuda(1 - i));
                assert_ok(nd_event_record(event, NULL));
                assert_true(sum_of(there) == 2000 && sum_of(x) == 2000);
                assert_ok(nd_queue_callback(cuda(i), NULL, NULL, x));
                nd_release(there);
                nd_release(x);
            }
            assert_ok(nd_event_synchronize(event));
            assert_ok(nd_stream_synchronize(side));
            nd_release(event);
            nd_release(side);
            assert_ok(nd_synchronize(cuda(i)));
            (void)nd_memory_trim(ND_CUDA);
            int now = -1;
            assert_int_equal(cudaGetDevice(&now), cudaSuccess);
            assert_int_equal(now, ordinal);
        }
    }
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_nothing_left_on_devices();
}

static void release_it(void *data) {
    nd_release((nd_tensor *)data);
}

static void make_one(void *data) {
    *(nd_stream **)data = nd_stream_new(cuda(0));
}

static void test_C10_callbacks_that_release_and_that_are_refused(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *stream[3], *made = (nd_stream *)(uintptr_t)1;
        for (int i = 0; i < 3; i++) {
            stream[i] = stream_on(0);
            nd_with_stream(stream[i]) {
                nd_tensor *x = full_on(cuda(0), 100, i);
                assert_ok(nd_queue_callback(cuda(0), release_it, x, NULL));
                if (i == 0)
                    assert_ok(nd_queue_callback(cuda(0), make_one, &made, NULL));
            }
        }
        assert_ok(nd_synchronize(cuda(0)));
        assert_null(made);
        for (int i = 0; i < 3; i++)
            nd_release(stream[i]);
    }
    assert_nothing_left_on_devices();
}

static void test_C13_a_hundred_streams(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        cudart_set_seed(seed);
        nd_stream *stream[100];
        nd_tensor *x = full_on(cuda(0), 100, 1);
        for (int i = 0; i < 100; i++) {
            stream[i] = stream_on(0);
            nd_with_stream(stream[i]) {
                nd_tensor *next = nd_add_scalar(x, 1);
                nd_release(x);
                x = next;
            }
        }
        for (int i = 0; i < 100; i++)
            nd_release(stream[i]);
        assert_true(sum_of(x) == 10100);
        nd_release(x);
        for (int i = 0; i < 1000; i++) // CUDA has 256 in all
            nd_release(stream_on(i % 2));
    }
    assert_nothing_left_on_devices();
}

static void test_C14_a_collection_beside_three_streams(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *stream[3];
        nd_tensor *kept[3];
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) {
            for (int i = 0; i < 3; i++) {
                stream[i] = stream_on(0);
                nd_list *list = nd_list_new();
                nd_with_stream(stream[i]) {
                    nd_tensor *x = full_on(cuda(0), 1000, i + 1);
                    kept[i] = nd_add(x, x);
                    nd_with_stream(stream[(i + 2) % 3 < i ? (i + 2) % 3 : i]) {
                        nd_tensor *y = nd_mul(x, kept[i]);
                        assert_ok(nd_list_append(list, y));
                        nd_release(y);
                    }
                    assert_ok(nd_list_append(list, x));
                    nd_release(x);
                }
                assert_ok(nd_list_append(list, list));
                nd_release(list);
            }
        }
        const uint64_t steps = statistics().steps;
        nd_gc_report report = ND_GC_REPORT_INIT;
        assert_ok(nd_gc_collect(manager, &report));
        assert_true(report.collected_objects >= 3);
        if (seed == 0)
            assert_int_equal(statistics().steps, steps);
        for (int i = 0; i < 3; i++) {
            assert_true(sum_of(kept[i]) == 2000.0 * (i + 1));
            nd_release(kept[i]);
            nd_release(stream[i]);
        }
        nd_release(manager);
    }
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// what goes wrong elsewhere

/// PyTorch 147168 and RFC 181191: memory that a second stream has used comes back when the host
/// happens to look, and the peak depends on how far it is ahead. Here it goes back behind its work.
static void test_pytorch_147168_memory_does_not_pile_up(void **state) {
    (void)state;
    cudart_set_seed(0);
    nd_stream *side = stream_on(0);
    for (int i = 0; i < 200; i++) {
        nd_tensor *x = full_on(cuda(0), 1000, i), *y = NULL;
        nd_with_stream(side) y = nd_add(x, x);
        nd_release(x);
        nd_release(y);
        assert_int_equal(statistics().live_blocks, 0);
    }
    nd_release(side);
    assert_nothing_left_on_devices();
}

/// rmm 649: a new stream has the handle of a destroyed one whose work is not done, and gets memory
/// that this still uses.
static void test_rmm_649_a_stream_in_an_old_ones_place(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *results[20];
        for (int i = 0; i < 20; i++) {
            nd_stream *side = stream_on(0);
            nd_with_stream(side) {
                nd_tensor *x = full_on(cuda(0), 1000, i);
                results[i] = nd_add(x, x);
                nd_release(x);
            }
            nd_release(side);
        }
        for (int i = 0; i < 20; i++) {
            assert_true(sum_of(results[i]) == 2000.0 * i);
            nd_release(results[i]);
        }
    }
    assert_nothing_left_on_devices();
}

/// ROCm xla 979: a buffer is freed at once where the stream that uses it is not the one it was
/// defined on.
static void test_xla_979_a_buffer_is_freed_behind_its_reader(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *side = stream_on(0);
        nd_tensor *x = full_on(cuda(0), 1000, 1), *y = NULL;
        nd_with_stream(side) {
            y = nd_add(x, x);
            for (int i = 0; i < 5; i++) {
                nd_tensor *next = nd_add(y, x);
                nd_release(y);
                y = next;
            }
        }
        nd_release(x);
        nd_tensor *z = full_on(cuda(0), 1000, 100);
        assert_true(sum_of(y) == 7000 && sum_of(z) == 100000);
        nd_release(y);
        nd_release(z);
        nd_release(side);
    }
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// several devices

static void test_copies_between_devices_are_in_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *a = stream_on(0), *b = stream_on(1);
        nd_tensor *x = NULL, *there[5];
        nd_with_stream(a) x = full_on(cuda(0), 1000, 0);
        const uint64_t steps = statistics().steps;
        for (int i = 0; i < 5; i++) {
            nd_with_stream(a) assert_ok(nd_fill_(x, i));
            nd_with_stream(b) there[i] = nd_to(x, cuda(1));
            assert_handle(there[i]);
        }
        nd_release(x);
        if (seed == 0)
            assert_int_equal(statistics().steps, steps); // the host has not waited
        for (int i = 0; i < 5; i++) {
            assert_true(sum_of(there[i]) == 1000.0 * i);
            nd_release(there[i]);
        }
        nd_release(a);
        nd_release(b);
    }
    assert_nothing_left_on_devices();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_the_current_stream),
        ND_TEST(test_work_goes_to_the_current_stream),
        ND_TEST(test_results_do_not_depend_on_streams),
        ND_TEST(test_many_readers_before_a_writer),
        ND_TEST(test_synchronize_waits_for_all_streams),
        ND_TEST(test_C01_release_with_work_queued),
        ND_TEST(test_C02_last_release_before_a_second_stream_is_done),
        ND_TEST(test_F18_C03_a_stream_is_released_before_its_tensors),
        ND_TEST(test_C04_events),
        ND_TEST(test_C05_the_callers_device_is_restored),
        ND_TEST(test_C10_callbacks_that_release_and_that_are_refused),
        ND_TEST(test_C13_a_hundred_streams),
        ND_TEST(test_C14_a_collection_beside_three_streams),
        ND_TEST(test_pytorch_147168_memory_does_not_pile_up),
        ND_TEST(test_rmm_649_a_stream_in_an_old_ones_place),
        ND_TEST(test_xla_979_a_buffer_is_freed_behind_its_reader),
        ND_TEST(test_copies_between_devices_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
