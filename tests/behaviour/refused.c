// What is refused is as if it had never been asked for: no account, peak or quota knows of it, and
// nobody else is refused because of it.
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdatomic.h>

// Sanitizers would end the program that asks for more than they have.
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}

#define BEYOND_MEMORY ((int64_t)1 << 58) // floats

static uint64_t peak_of(const nd_manager *manager) {
    return stats_of(manager).peak_bytes[ND_CPU];
}

static nd_tensor *floats_in(const nd_manager *manager, int64_t count) {
    nd_tensor *tensor = NULL;
    nd_with_manager(manager) tensor = nd_empty(1, &count, ND_F32);
    return tensor;
}

static void assert_refused(void *result, nd_status expected) {
    assert_null(result);
    assert_int_equal(nd_error_get_status(), expected);
    nd_error_clear();
}

static void test_B15_what_a_cap_refuses_is_in_no_peak(void **state) {
    (void)state;
    static float values[1000];
    nd_manager *parent = manager_new(NULL, "parent"), *capped = manager_new(parent, "capped");
    nd_tensor *x = ones_in(capped, 100), *other = ones_in(parent, 1000);
    assert_ok(nd_manager_set_cap(capped, 1));
    const uint64_t before[] = {peak_of(capped), peak_of(parent), peak_of(NULL)};
    nd_with_manager(capped) {
        assert_refused(nd_zeros(ND_SHAPE(1000000), ND_F32), ND_ERROR_QUOTA);
        assert_refused(nd_empty(ND_SHAPE(10), ND_F32), ND_ERROR_QUOTA);
        assert_refused(nd_from_data(values, ND_SHAPE(1000), ND_F32), ND_ERROR_QUOTA);
        assert_refused(nd_wrap(values, ND_SHAPE(1000), ND_F32, NULL), ND_ERROR_QUOTA);
        assert_refused(nd_add(other, other), ND_ERROR_QUOTA);
        assert_refused(nd_clone(other), ND_ERROR_QUOTA);
        assert_refused(nd_slice(other, 0, 2, 1, 0), ND_ERROR_QUOTA);
    }
    assert_refused(bytes_in(capped, 1 << 20), ND_ERROR_QUOTA);
    assert_int_equal(peak_of(capped), before[0]);
    assert_int_equal(peak_of(parent), before[1]);
    assert_int_equal(peak_of(NULL), before[2]);
    nd_release(x);
    nd_release(other);
    close_and_release(capped);
    close_and_release(parent);
}

/// Asks in vain until it is told to stop.
typedef struct asker {
    nd_manager *manager;
    int64_t floats;
    atomic_bool stop;
    atomic_uint asked;
    bool got_one;
} asker;

static void *ask_in_vain(void *data) {
    asker *self = data;
    while (!atomic_load(&self->stop)) {
        nd_tensor *tensor = floats_in(self->manager, self->floats);
        self->got_one |= tensor != NULL;
        nd_release(tensor);
        atomic_fetch_add(&self->asked, 1);
    }
    nd_error_clear();
    return NULL;
}

/// Asks a manager for what fits beside another thread that asks in vain.
static void ask_beside(asker *self, const nd_manager *manager, int64_t floats) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_in_vain, self), 0);
    unsigned refused = 0;
    for (int i = 0; i < 2000 || atomic_load(&self->asked) < 1000; i++) {
        nd_tensor *fits = floats_in(manager, floats);
        refused += !fits;
        nd_release(fits);
    }
    atomic_store(&self->stop, true);
    pthread_join(thread, NULL);
    nd_error_clear();
    assert_int_equal(refused, 0);
    assert_false(self->got_one);
}

static void test_B17_what_a_cap_refuses_takes_no_quota(void **state) {
    (void)state;
    nd_manager *parent = manager_new(NULL, "parent"), *capped = manager_new(parent, "capped"),
               *beside = manager_new(parent, "beside");
    nd_tensor *x = ones_in(capped, 1);
    assert_ok(nd_manager_set_cap(capped, 1));
    assert_ok(nd_manager_set_quota(parent, ND_CPU, 1000000));
    asker self = {.manager = capped, .floats = 200000};
    ask_beside(&self, beside, 200000);
    nd_release(x);
    close_and_release(beside);
    close_and_release(capped);
    close_and_release(parent);
}

static void test_B17_what_finds_no_memory_takes_no_quota(void **state) {
    (void)state;
    nd_manager *parent = manager_new(NULL, "parent"), *vain = manager_new(parent, "vain"),
               *beside = manager_new(parent, "beside");
    assert_ok(nd_manager_set_quota(parent, ND_CPU, 4 * (uint64_t)BEYOND_MEMORY));
    asker self = {.manager = vain, .floats = BEYOND_MEMORY};
    ask_beside(&self, beside, 20000);
    assert_int_equal(peak_of(vain), 0);
    assert_int_equal(peak_of(parent), 80000);
    assert_true(peak_of(NULL) < (uint64_t)BEYOND_MEMORY);
    close_and_release(beside);
    close_and_release(vain);
    close_and_release(parent);
}

/// What a callback of the ladder saw and did.
typedef struct witness {
    nd_manager *manager;
    uint64_t bytes_seen;
    nd_tensor *fitting; ///< made meanwhile
    nd_status checked;
    unsigned asked;
    bool lifts_quota;
} witness;

static bool look_around(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    witness *self = data;
    self->asked++;
    self->bytes_seen = nd_manager_get_total_bytes(self->manager);
    self->checked = nd_debug_check();
    if (self->lifts_quota)
        nd_manager_set_quota(self->manager, ND_CPU, 0);
    else if (!self->fitting)
        self->fitting = floats_in(self->manager, 500);
    return false;
}

static void watch_pressure(witness *self) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = look_around;
    callback.data = self;
    assert_ok(nd_memory_set_callback(self->manager, &callback));
}

static void test_B17_what_finds_no_memory_is_in_no_account(void **state) {
    (void)state;
    witness self = {.manager = manager_new(NULL, "m")};
    nd_tensor *x = ones_in(self.manager, 1000);
    assert_ok(nd_manager_set_quota(self.manager, ND_CPU, 4 * (uint64_t)BEYOND_MEMORY + 10000));
    watch_pressure(&self);
    const uint64_t peak = peak_of(self.manager), everywhere = peak_of(NULL);
    assert_refused(floats_in(self.manager, BEYOND_MEMORY), ND_ERROR_OUT_OF_MEMORY);
    assert_true(self.asked > 0);
    assert_int_equal(self.checked, ND_OK);
    assert_int_equal(self.bytes_seen, 4000);
    assert_handle(self.fitting);
    assert_int_equal(peak_of(self.manager), peak + 2000);
    assert_true(peak_of(NULL) <= everywhere + 2000);
    assert_ok(nd_memory_set_callback(self.manager, NULL));
    nd_release(self.fitting);
    nd_release(x);
    close_and_release(self.manager);
}

/// A callback that gave nothing up may have made room all the same.
static void test_B17_the_ladder_looks_again_behind_each_callback(void **state) {
    (void)state;
    witness self = {.manager = manager_new(NULL, "m"), .lifts_quota = true};
    nd_tensor *x = ones_in(self.manager, 1000);
    assert_ok(nd_manager_set_quota(self.manager, ND_CPU, 5000));
    watch_pressure(&self);
    nd_tensor *fits = floats_in(self.manager, 1250);
    assert_handle(fits);
    assert_int_equal(self.asked, 1);
    nd_release(fits);
    nd_release(x);
    assert_ok(nd_memory_set_callback(self.manager, NULL));
    close_and_release(self.manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B15_what_a_cap_refuses_is_in_no_peak),
        ND_TEST(test_B17_what_a_cap_refuses_takes_no_quota),
        ND_TEST(test_B17_what_finds_no_memory_takes_no_quota),
        ND_TEST(test_B17_what_finds_no_memory_is_in_no_account),
        ND_TEST(test_B17_the_ladder_looks_again_behind_each_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
