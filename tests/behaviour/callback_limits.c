// G37: what cannot be done inside a callback that a device's queue runs, and what happens when none
// can be queued.
#include "lib/base/alloc.h"
#include "tests/behaviour/callbacks.h"
#include "tests/training.h"

static struct {
    nd_tensor *there, *here, *loss;
    nd_optimizer *optimizer;
    nd_object *cell;
    nd_manager *manager;
    const char *failed;
} asked;

/// Takes note of a call that was answered otherwise than with ND_ERROR_STATE.
static void must_be_refused(const char *call) {
    if (nd_error_get_status() != ND_ERROR_STATE && !asked.failed) {
        asked.failed = call;
        fprintf(stderr, "%s: %s\n", call, nd_error_get_message());
    }
    nd_error_clear();
}

static void must_be_null(const char *call, const void *made) {
    if (made && !asked.failed)
        asked.failed = call;
    must_be_refused(call);
}

#define REFUSED(call) ((call), must_be_refused(#call))
#define REFUSED_NEW(call) must_be_null(#call, call)

static void nothing(void *data) {
    (void)data;
}

static nd_status must_not_fill(nd_object *self, void *data) {
    (void)self, (void)data;
    asked.failed = "nd_object_new_with fills";
    return ND_OK;
}

/// Everything that would make, close, collect or compute something, or wait for a device.
static void try_all(void *data) {
    (void)data;
    nd_gc_report report = ND_GC_REPORT_INIT;
    float numbers[4] = {0};
    nd_error_clear();
    const nd_device other = {LATE, 1};
    REFUSED_NEW(nd_ones(ND_SHAPE(4), ND_F32));
    REFUSED_NEW(nd_ones(ND_SHAPE(4000), ND_F32));
    REFUSED_NEW(nd_add(asked.here, asked.here));
    REFUSED_NEW(nd_add(asked.there, asked.there));
    REFUSED(nd_add_(asked.there, asked.there));
    REFUSED(nd_add_(asked.here, asked.here));
    REFUSED(nd_fill_(asked.here, 7));
    REFUSED_NEW(nd_slice(asked.here, 0, 1, 1, 0));
    REFUSED_NEW(nd_to(asked.here, fake));
    REFUSED_NEW(nd_to(asked.there, cpu));
    REFUSED(nd_copy_to_host(asked.there, numbers, sizeof numbers));
    REFUSED(nd_synchronize(fake));
    REFUSED(nd_synchronize(cpu));
    REFUSED(nd_queue_callback(fake, nothing, NULL, NULL));
    REFUSED(nd_queue_callback(other, nothing, NULL, NULL));
    REFUSED(nd_set_default_device(other));
    REFUSED_NEW(cell_new(9, 0));
    REFUSED_NEW(nd_object_new_with(&cell_type, sizeof(cell), must_not_fill, NULL));
    REFUSED_NEW(nd_list_new());
    REFUSED_NEW(nd_weak_new(asked.cell));
    REFUSED_NEW(nd_manager_new(NULL, "m"));
    REFUSED(nd_manager_attach(asked.manager, asked.cell));
    REFUSED(nd_manager_lend(asked.manager, asked.cell));
    REFUSED(nd_manager_close(asked.manager, NULL));
    REFUSED(nd_manager_dispose(asked.manager, NULL));
    REFUSED(nd_close(asked.cell));
    REFUSED(nd_close(asked.manager));
    REFUSED(nd_gc_collect(NULL, &report));
    REFUSED(nd_backward(asked.loss, NULL));
    REFUSED(nd_optimizer_step(asked.optimizer));
    // What is allowed.
    nd_object *again = nd_retain(asked.cell);
    if (!again || nd_get_count(again) != 2 || nd_is_closed(again) ||
        nd_get_shape(asked.there)[0] != 4 || *(float *)nd_get_data(asked.here) != 1 ||
        nd_get_manager(again) != nd_manager_get_root() || nd_error_get_status() != ND_OK)
        asked.failed = "what is allowed";
    nd_release(again);
}

static void test_G37_other_calls_are_refused_there(void **state) {
    (void)state;
    begin(10);
    asked.manager = manager_new(NULL, "m");
    asked.cell = cell_new(0, 0);
    asked.here = ones_on(cpu, 4);
    nd_tensor *leaf = ones_on(cpu, 4);
    assert_ok(nd_set_requires_grad(leaf, true));
    asked.loss = nd_sum(leaf, 0, NULL, false);
    nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    asked.optimizer = sgd_of(module, 0.1, 0, 0);
    asked.there = ones_on(fake, 4);
    asked.failed = NULL;
    const nd_device devices[2] = {cpu, fake};
    for (int i = 0; i < 2; i++) {
        uint64_t objects = nd_manager_get_total_objects(NULL);
        assert_ok(nd_queue_callback(devices[i], try_all, NULL, NULL));
        assert_ok(nd_synchronize(fake));
        if (asked.failed)
            fail_msg("in a callback: %s", asked.failed);
        assert_int_equal(nd_manager_get_total_objects(NULL), objects);
        assert_true(nd_manager_is_open(asked.manager));
    }
    nd_error_clear();
    nd_auto nd_tensor *sum = nd_add(asked.there, asked.there); // outside all is as before
    assert_true(nd_copy_to_host(sum, (float[4]){0}, 16) == ND_OK);
    assert_true(*(float *)nd_get_data(asked.here) == 1);
    assert_null(nd_get_grad(leaf));
    nd_release(leaf);
    nd_release(asked.loss);
    nd_release(asked.optimizer);
    nd_release(module);
    nd_release(asked.there);
    nd_release(asked.here);
    nd_release(asked.cell);
    close_and_release(asked.manager);
    assert_deaths(1);
}

static bool fail_all(size_t bytes) {
    (void)bytes;
    return true;
}
static int64_t until_failure;
static bool fail_one(size_t bytes) {
    (void)bytes;
    return until_failure-- == 0;
}

static void test_G37_what_cannot_be_queued_is_not_kept(void **state) {
    (void)state;
    begin(1);
    nd_object *object = cell_new(0, 0);
    for (int way = 0; way < 3; way++) {
        nd_error_clear();
        until_failure = way;
        nd__alloc_should_fail = way == 2 ? fail_all : fail_one;
        nd_status status = nd_queue_callback(fake, release_it, object, object);
        nd__alloc_should_fail = NULL;
        // The second try, behind a stage of the ladder, has memory; CUDA's takes one piece.
        if (way == 0 || (way == 1 && LATE == ND_CUDA)) {
            assert_ok(status);
            assert_ok(nd_synchronize(fake));
            assert_int_equal(atomic_load(&calls), 1);
            assert_deaths(1);
            object = cell_new(0, 0);
            begin(1);
            continue;
        }
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
        assert_non_null(strstr(nd_error_get_message(), "queue_callback"));
        assert_int_equal(nd_get_count(object), 1);
        assert_int_equal(late_pending(0), 0);
    }
    const nd_device missing[] = {{LATE, 2}, {LATE, -1}, {ND_CPU, 1}, {(nd_device_kind)77, 0}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(nd_queue_callback(missing[i], release_it, object, object),
                         ND_ERROR_DEVICE);
    assert_int_equal(nd_queue_callback(fake, NULL, object, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_get_count(object), 1);
    assert_int_equal(atomic_load(&calls), 0);
    nd_release(object);
    assert_deaths(1);
}

static void test_G37_closed_object_is_kept_and_freed(void **state) {
    (void)state;
    begin(1);
    nd_object *object = cell_new(0, 0);
    late_pause(0);
    assert_ok(nd_queue_callback(fake, NULL, NULL, object));
    assert_ok(nd_close(object));
    assert_deaths(1);
    nd_release(object);
    run_queue();
    assert_ok(nd_synchronize(fake));
    assert_deaths(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G37_other_calls_are_refused_there),
        ND_TEST(test_G37_what_cannot_be_queued_is_not_kept),
        ND_TEST(test_G37_closed_object_is_kept_and_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
