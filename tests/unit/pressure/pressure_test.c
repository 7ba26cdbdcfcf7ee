// Whole tensors when memory is short: on a fake device with little of it, and under quotas.
//
// The device keeps released blocks, as the pool of a GPU does, until somebody takes them back.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/device/fake/fake.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define DEVICE ((nd_device){ND_FAKE, 0})
enum { KIB = 1024 };

/// A device with so much memory; its tensors are made there by default.
static void begin(uint64_t bytes) {
    assert_ok(nd_synchronize(DEVICE));
    nd__fake_set_memory(0, bytes, true);
    assert_ok(nd_set_default_device(DEVICE));
}

static void end(void) {
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    assert_ok(nd_synchronize(DEVICE));
    assert_int_equal(nd__fake_live_blocks(0), 0);
    nd__fake_set_memory(0, 0, false);
}

static nd_tensor *block_of(int64_t bytes) {
    return nd_full(ND_SHAPE(bytes), 1, ND_U8);
}

static nd_memory_stats stats_now(void) {
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    assert_ok(nd_memory_get_stats(&stats));
    return stats;
}

/// Only this stage was enough since then.
static void assert_enough(const nd_memory_stats *before, nd_memory_stage stage) {
    nd_memory_stats after = stats_now();
    assert_int_equal(after.failures, before->failures);
    for (int i = 0; i < ND_MEMORY_STAGE_COUNT; i++)
        if ((after.stages[i].enough > before->stages[i].enough) != (i == (int)stage))
            fail_msg("stage %d was enough %d times", i,
                     (int)(after.stages[i].enough - before->stages[i].enough));
}

// -------------------------------------------------------------------------------------- the stages

static void test_finished_frees_are_enough(void **state) {
    (void)state;
    begin(10 * KIB);
    nd_release(block_of(8 * KIB));
    assert_ok(nd_synchronize(DEVICE));
    nd_memory_stats before = stats_now();
    nd_tensor *x = block_of(8 * KIB);
    assert_handle(x);
    assert_enough(&before, ND_MEMORY_STAGE_RETIRE);
    assert_int_equal(stats_now().stages[ND_MEMORY_STAGE_RETIRE].bytes -
                         before.stages[ND_MEMORY_STAGE_RETIRE].bytes,
                     8 * KIB);
    nd_release(x);
    end();
}

static void test_the_cache_is_enough(void **state) {
    (void)state;
    begin(10 * KIB);
    nd_tensor *a = block_of(5 * KIB), *b = block_of(5 * KIB);
    nd_release(a);
    nd_release(b);
    assert_ok(nd_synchronize(DEVICE));
    nd_memory_stats before = stats_now();
    nd_tensor *x = block_of(10 * KIB); // two pieces of half the size do not serve
    assert_handle(x);
    assert_enough(&before, ND_MEMORY_STAGE_TRIM);
    nd_release(x);
    end();
}

static nd_status second_order_step(int64_t size) {
    nd_auto nd_tensor *w = nd_full(ND_SHAPE(size), 0.5, ND_F32);
    if (!w || nd_set_requires_grad(w, true) != ND_OK)
        return nd_error_get_status();
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *cube = nd_pow_scalar(w, 3);
    nd_auto nd_tensor *loss = nd_sum(cube, 0, NULL, false);
    if (!loss || nd_backward(loss, &options) != ND_OK)
        return nd_error_get_status();
    nd_auto nd_tensor *square = nd_square(nd_get_grad(w));
    nd_auto nd_tensor *penalty = nd_sum(square, 0, NULL, false);
    return penalty ? nd_backward(penalty, &options) : nd_error_get_status();
}

static void test_the_collector_is_enough_for_training_on_a_small_device(void **state) {
    (void)state;
    begin(256 * KIB);
    assert_ok(nd_test_set_threshold(ND_FAKE, 0));
    assert_ok(nd_test_set_threshold(ND_CPU, 0));
    nd_gc_set_mode(ND_GC_ON);
    nd_memory_stats before = stats_now();
    for (int i = 0; i < 200; i++)
        assert_ok(second_order_step(1024)); // some 30 KiB of garbage each
    nd_memory_stats after = stats_now();
    assert_int_equal(after.failures, before.failures);
    assert_in_range(after.stages[ND_MEMORY_STAGE_COLLECT].bytes -
                        before.stages[ND_MEMORY_STAGE_COLLECT].bytes,
                    1024 * KIB, UINT32_MAX);

    nd_gc_set_mode(ND_GC_OFF);
    nd_status status = ND_OK;
    for (int i = 0; i < 200 && status == ND_OK; i++)
        status = second_order_step(1024);
    assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(nd_error_get_message(), "no memory on fake:0"));
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_ok(second_order_step(1024)); // nothing was lost
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_ok(nd_test_set_threshold(ND_FAKE, ND_GC_ADAPTIVE));
    assert_ok(nd_test_set_threshold(ND_CPU, ND_GC_ADAPTIVE));
    end();
}

static void test_B17_the_collector_is_enough_for_training_under_a_quota(void **state) {
    (void)state;
    nd_manager *m = manager_new(NULL, "training");
    assert_ok(nd_manager_set_quota(m, ND_CPU, 256 * KIB));
    assert_ok(nd_test_set_threshold(ND_CPU, 0));
    nd_memory_stats before = stats_now();
    nd_with_manager(m) {
        assert_ok(nd_manager_set_gc_mode(m, ND_GC_ON));
        for (int i = 0; i < 200; i++)
            assert_ok(second_order_step(1024));
        assert_enough(&before, ND_MEMORY_STAGE_COLLECT);
        assert_ok(nd_manager_set_gc_mode(m, ND_GC_OFF));
        nd_status status = ND_OK;
        for (int i = 0; i < 200 && status == ND_OK; i++)
            status = second_order_step(1024);
        assert_int_equal(status, ND_ERROR_QUOTA);
        assert_non_null(strstr(nd_error_get_message(), " x storage of "));
        assert_ok(nd_gc_collect(m, NULL));
        assert_ok(second_order_step(1024));
        assert_ok(nd_gc_collect(m, NULL));
    }
    assert_ok(nd_test_set_threshold(ND_CPU, ND_GC_ADAPTIVE));
    close_and_release(m);
}

static atomic_bool is_finalizing;

static void take_time(nd_object *self) {
    (void)self;
    atomic_store(&is_finalizing, true);
    struct timespec time = {.tv_nsec = 50000000};
    nanosleep(&time, NULL);
}

static void *collect_slowly(void *manager) {
    assert_ok(nd_gc_collect(manager, NULL));
    return NULL;
}

/// All that is garbage has been found by another thread, which has not freed it yet.
static void test_another_threads_collection_is_enough(void **state) {
    (void)state;
    cell_begin(1);
    cell_on_finalize = take_time;
    atomic_store(&is_finalizing, false);
    nd_manager *m = manager_new(NULL, "shared");
    assert_ok(nd_manager_set_quota(m, ND_CPU, 10 * KIB));
    assert_ok(nd_manager_set_gc_mode(m, ND_GC_ON));
    nd_with_manager(m) {
        nd_object *cycle = cell_new_of(&cell_finalized_type, 0, 2);
        nd_auto nd_tensor *held = block_of(8 * KIB);
        cell_link(cycle, 0, cycle);
        cell_link(cycle, 1, held);
        nd_release(cycle);
    }
    nd_memory_stats before = stats_now();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, collect_slowly, m), 0);
    while (!atomic_load(&is_finalizing))
        sched_yield();
    nd_with_manager(m) {
        nd_auto nd_tensor *x = block_of(8 * KIB);
        assert_handle(x);
    }
    assert_enough(&before, ND_MEMORY_STAGE_COLLECT);
    pthread_join(thread, NULL);
    close_and_release(m);
    cell_end();
}

typedef struct cache {
    pthread_mutex_t lock;
    nd_tensor *kept[16];
    atomic_int asked;
} cache;

static bool drop_one(const nd_memory_pressure *pressure, void *data) {
    cache *self = data;
    nd_tensor *dropped = NULL;
    assert_int_equal(pressure->kind, ND_FAKE);
    assert_false(pressure->quota);
    atomic_fetch_add(&self->asked, 1);
    pthread_mutex_lock(&self->lock);
    for (int i = 0; i < 16 && !dropped; i++) {
        dropped = self->kept[i];
        self->kept[i] = NULL;
    }
    pthread_mutex_unlock(&self->lock);
    nd_release(dropped);
    return dropped != NULL;
}

static void set_cache(cache *self) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = drop_one;
    callback.data = self;
    assert_ok(nd_memory_set_callback(NULL, &callback));
}

static void test_the_callback_is_enough(void **state) {
    (void)state;
    begin(10 * KIB);
    cache self = {.lock = PTHREAD_MUTEX_INITIALIZER};
    self.kept[0] = block_of(8 * KIB);
    set_cache(&self);
    assert_ok(nd_synchronize(DEVICE));
    nd_memory_stats before = stats_now(), after;
    nd_tensor *x = block_of(8 * KIB);
    assert_handle(x);
    assert_int_equal(atomic_load(&self.asked), 1);
    // The device may not have come to the release yet: then it took the wait as well.
    after = stats_now();
    assert_int_equal(after.stages[ND_MEMORY_STAGE_CALLBACK].bytes -
                         before.stages[ND_MEMORY_STAGE_CALLBACK].bytes,
                     8 * KIB);
    assert_int_equal(after.failures, before.failures);
    assert_ok(nd_memory_set_callback(NULL, NULL));
    nd_release(x);
    end();
}

static void *resume_soon(void *data) {
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    nd__fake_resume(0);
    return NULL;
}

static void test_waiting_for_the_device_is_enough(void **state) {
    (void)state;
    begin(10 * KIB);
    nd_tensor *a = block_of(8 * KIB);
    assert_ok(nd_synchronize(DEVICE));
    nd__fake_pause(0);
    nd_release(a); // queued
    pthread_t thread;
    nd_memory_stats before = stats_now();
    assert_int_equal(pthread_create(&thread, NULL, resume_soon, NULL), 0);
    nd_tensor *x = block_of(8 * KIB);
    assert_handle(x);
    assert_enough(&before, ND_MEMORY_STAGE_WAIT);
    pthread_join(thread, NULL);
    nd_release(x);
    end();
}

static void test_waiting_is_bounded(void **state) {
    (void)state;
    begin(10 * KIB);
    nd_tensor *a = block_of(8 * KIB);
    assert_ok(nd_synchronize(DEVICE));
    nd__fake_pause(0);
    nd_release(a);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_null(block_of(8 * KIB));
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    assert_non_null(
        strstr(nd_error_get_message(), "full: no memory on fake:0 for 8192 bytes; 0 fake"));
    assert_non_null(strstr(nd_error_get_message(), "the limit is 10240;"));
    assert_non_null(strstr(nd_error_get_message(), "device waited for, which is not done yet"));
    assert_in_range(to.tv_sec - from.tv_sec, 0,
                    300); // a second, on a machine that does nothing else
    nd__fake_resume(0);
    end();
}

// ---------------------------------------------------------------------------- failures and threads

static void test_what_fails_loses_nothing(void **state) {
    (void)state;
    begin(64 * KIB);
    nd_manager *m = manager_new(NULL, "m");
    nd_with_manager(m) {
        uint64_t objects = nd_manager_get_total_objects(m), bytes = nd_manager_get_total_bytes(m);
        for (int64_t size = 64 * KIB; size > KIB; size -= 3 * KIB) {
            nd_auto nd_tensor *x = block_of(size);
            nd_auto nd_tensor *y = nd_add(x, x); // fits for the smaller ones
            nd_auto nd_tensor *z = nd_mul(y, x);
            if (!z)
                assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
            if (size > 32 * KIB)
                assert_null(y);
            if (size < 10 * KIB) // a block from the cache may be twice as large as what is in it
                assert_handle(z);
            nd_error_clear();
        }
        assert_int_equal(nd_manager_get_total_objects(m), objects);
        assert_int_equal(nd_manager_get_total_bytes(m), bytes);
    }
    close_and_release(m);
    end();
}

static void *train_and_cache(void *data) {
    cache *self = data;
    nd_set_default_device(DEVICE);
    intptr_t failures = 0;
    for (int i = 0; i < 400 / ND_TEST_SCALE; i++) {
        failures += second_order_step(256) != ND_OK;
        nd_tensor *kept = block_of(4 * KIB);
        failures += kept == NULL;
        pthread_mutex_lock(&self->lock);
        nd_tensor *before = self->kept[i % 16];
        self->kept[i % 16] = kept;
        pthread_mutex_unlock(&self->lock);
        nd_release(before);
    }
    return (void *)failures;
}

/// Each needs less than a fourth of the memory; what fills it is garbage and the cache.
static void test_threads_on_every_rung_at_once(void **state) {
    (void)state;
    begin(128 * KIB);
    cache self = {.lock = PTHREAD_MUTEX_INITIALIZER};
    set_cache(&self);
    assert_ok(nd_test_set_threshold(ND_FAKE, 0));
    nd_gc_set_mode(ND_GC_ON);
    nd_memory_stats before = stats_now();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train_and_cache, &self), 0);
    intptr_t failures = 0;
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        failures += (intptr_t)failed;
    }
    nd_memory_stats after = stats_now();
    uint64_t enough = 0;
    for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT; stage++)
        enough += after.stages[stage].enough - before.stages[stage].enough;
    assert_int_equal(after.walks - before.walks, enough + (after.failures - before.failures));
    assert_true(enough > 0);
    // What one thread frees another may take: that is an error, and nothing worse.
    assert_true(failures <= (intptr_t)(after.failures - before.failures));
    for (int i = 0; i < 16; i++)
        nd_release(self.kept[i]);
    assert_ok(nd_memory_set_callback(NULL, NULL));
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_ok(nd_test_set_threshold(ND_FAKE, ND_GC_ADAPTIVE));
    end();
}

static bool disturb(const nd_memory_pressure *pressure, void *data) {
    nd_manager **step = data;
    (void)pressure;
    if (!*step)
        return false;
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(*step, &report));
    nd_release(*step);
    *step = NULL;
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_auto nd_tensor *own = nd_zeros(ND_SHAPE(4), ND_F32);
    assert_handle(own);
    return true;
}

/// The callback closes the manager that the step works in, and its last handle goes, at every
/// moment at which the step asks for memory.
static void test_a_callback_closes_the_manager_under_a_training_step(void **state) {
    (void)state;
    int closed = 0;
    for (uint64_t quota = 4 * KIB; quota < 48 * KIB; quota += KIB) {
        nd_manager *step = manager_new(NULL, "step");
        assert_ok(nd_manager_set_quota(step, ND_CPU, quota));
        nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
        callback.give_up = disturb;
        callback.data = &step;
        assert_ok(nd_memory_set_callback(NULL, &callback));
        nd_error_clear();
        nd_with_manager(step) {
            nd_status status = second_order_step(1024);
            if (status != ND_OK)
                assert_true(status == ND_ERROR_QUOTA || status == ND_ERROR_CLOSED);
        }
        assert_ok(nd_memory_set_callback(NULL, NULL));
        closed += step == NULL;
        nd_release(step);
        assert_ok(nd_gc_collect(NULL, NULL));
    }
    assert_true(closed > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_finished_frees_are_enough),
        ND_TEST(test_the_cache_is_enough),
        ND_TEST(test_the_collector_is_enough_for_training_on_a_small_device),
        ND_TEST(test_B17_the_collector_is_enough_for_training_under_a_quota),
        ND_TEST(test_another_threads_collection_is_enough),
        ND_TEST(test_the_callback_is_enough),
        ND_TEST(test_waiting_for_the_device_is_enough),
        ND_TEST(test_waiting_is_bounded),
        ND_TEST(test_what_fails_loses_nothing),
        ND_TEST(test_threads_on_every_rung_at_once),
        ND_TEST(test_a_callback_closes_the_manager_under_a_training_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
