// Streams and events where there is no queue: on the CPU.
#include "tests/testing.h"
#include <nd/stream.h>

static const nd_device cpu = {ND_CPU, 0};

static void test_a_stream_of_the_cpu_is_always_done(void **state) {
    (void)state;
    nd_stream *stream = nd_stream_new(cpu);
    assert_handle(stream);
    assert_true(nd_stream_get_device(stream).kind == ND_CPU);
    assert_null(nd_stream_get_current(cpu));
    nd_tensor *x = NULL;
    nd_with_stream(stream) {
        assert_ptr_equal(nd_stream_get_current(cpu), stream);
        x = nd_full(ND_SHAPE(10), 3, ND_F32);
    }
    assert_null(nd_stream_get_current(cpu));
    bool done = false;
    assert_ok(nd_stream_query(stream, &done));
    assert_true(done);
    assert_ok(nd_stream_synchronize(stream));
    assert_true(*(const float *)nd_get_data(x) == 3);
    nd_release(x);
    nd_release(stream);
}

static void test_the_choice_ends_with_the_stream(void **state) {
    (void)state;
    nd_stream *stream = nd_stream_new(cpu), *other = nd_stream_new(cpu);
    assert_ok(nd_stream_set_current(cpu, stream));
    nd_with_stream(other) {
        nd_release(other); // the block holds it
        assert_ptr_equal(nd_stream_get_current(cpu), other);
    }
    assert_ptr_equal(nd_stream_get_current(cpu), stream);
    nd_release(stream);
    assert_null(nd_stream_get_current(cpu));
}

static void test_C04_events_of_the_cpu(void **state) {
    (void)state;
    nd_stream *stream = nd_stream_new(cpu);
    nd_event *start = nd_event_new(cpu, true), *end = nd_event_new(cpu, true);
    assert_true(nd_event_get_device(start).kind == ND_CPU);
    bool done = false;
    double time = -1;
    assert_ok(nd_stream_wait(stream, start));
    assert_ok(nd_event_query(start, &done));
    assert_true(done);
    assert_ok(nd_event_synchronize(start));
    assert_ok(nd_event_record(end, stream));
    assert_int_equal(nd_event_get_elapsed(start, end, &time), ND_ERROR_STATE);
    nd_error_clear();
    assert_ok(nd_event_record(start, stream));
    assert_ok(nd_event_get_elapsed(end, start, &time));
    assert_true(time >= 0);
    assert_ok(nd_event_record(end, NULL)); // once more
    assert_ok(nd_event_get_elapsed(start, end, &time));
    assert_true(time >= 0 && time < 60000);
    assert_ok(nd_stream_wait(NULL, end));
    nd_event *plain = nd_event_new(cpu, false);
    assert_ok(nd_event_record(plain, stream));
    assert_int_equal(nd_event_get_elapsed(start, plain, &time), ND_ERROR_STATE);
    nd_error_clear();
    nd_release(plain);
    nd_release(end);
    nd_release(start);
    nd_release(stream);
}

static void test_F15_closed_streams_and_events(void **state) {
    (void)state;
    nd_stream *stream = nd_stream_new(cpu);
    nd_event *event = nd_event_new(cpu, false);
    bool done = false;
    nd_close(stream);
    nd_close(event);
    assert_int_equal(nd_stream_synchronize(stream), ND_ERROR_CLOSED);
    assert_int_equal(nd_stream_query(stream, &done), ND_ERROR_CLOSED);
    assert_int_equal(nd_stream_set_current(cpu, stream), ND_ERROR_CLOSED);
    assert_int_equal(nd_event_record(event, NULL), ND_ERROR_CLOSED);
    assert_int_equal(nd_stream_wait(NULL, event), ND_ERROR_CLOSED);
    assert_int_equal(nd_event_synchronize(event), ND_ERROR_CLOSED);
    bool ran = false;
    nd_with_stream(stream) ran = true;
    assert_true(ran);
    assert_null(nd_stream_get_current(cpu));
    nd_error_clear();
    nd_release(event);
    nd_release(stream);
}

static void test_F30_null_and_devices_that_are_not_there(void **state) {
    (void)state;
    bool done = false;
    double time;
    const nd_device far = {ND_CPU, 7};
    assert_null(nd_stream_new(far));
    assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
    assert_null(nd_event_new(far, false));
    assert_int_equal(nd_stream_set_current(far, NULL), ND_ERROR_DEVICE);
    nd_error_clear();
    assert_int_equal(nd_stream_synchronize(NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_stream_query(NULL, &done), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_event_record(NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_stream_wait(NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_event_get_elapsed(NULL, NULL, &time), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    nd_with_stream((nd_stream *)NULL) done = true;
    assert_true(done);
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_true(nd_stream_get_device(NULL).kind == ND_CPU);
    assert_true(nd_event_get_device(NULL).kind == ND_CPU);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_stream_of_the_cpu_is_always_done),
        ND_TEST(test_the_choice_ends_with_the_stream),
        ND_TEST(test_C04_events_of_the_cpu),
        ND_TEST(test_F15_closed_streams_and_events),
        ND_TEST(test_F30_null_and_devices_that_are_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
