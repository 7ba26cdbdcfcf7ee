// The program's callbacks: who is asked, what they may do in the middle of an allocation, and how
// long their data lives. Memory is a quota here, which every callback could make room under.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/alloc.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>

/// What a callback is given, and what it writes down.
typedef struct party {
    nd_manager *manager;
    nd_resource *cache;  // what it can give up
    nd_resource *inside; // what it allocated itself
    nd_memory_callback inner;
    int asked, freed, order;
} party;

static int order; // of calls, over all parties

static bool give_up_cache(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    (void)pressure;
    self->asked++;
    self->order = ++order;
    bool gives = self->cache != NULL;
    nd_release(self->cache);
    self->cache = NULL;
    return gives;
}

static void count_free(void *data) {
    ((party *)data)->freed++;
}

static void set(const nd_manager *manager, party *self,
                bool (*give_up)(const nd_memory_pressure *pressure, void *data)) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    callback.data = self;
    callback.free = count_free;
    assert_ok(nd_memory_set_callback(manager, &callback));
}

static nd_manager *bounded(const nd_manager *parent, const char *name, uint64_t quota) {
    nd_manager *manager = manager_new(parent, name);
    assert_ok(nd_manager_set_quota(manager, ND_CPU, quota));
    return manager;
}

static nd_memory_stage_stats callback_stats(void) {
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    assert_ok(nd_memory_get_stats(&stats));
    return stats.stages[ND_MEMORY_STAGE_CALLBACK];
}

// ------------------------------------------------------------------------------------ who is asked

static void test_nearest_first_and_then_up(void **state) {
    (void)state;
    nd_manager *top = bounded(NULL, "top", 1000);
    nd_manager *middle = manager_new(top, "middle");
    nd_manager *bottom = manager_new(middle, "bottom"), *beside = manager_new(top, "beside");
    party at_root = {0}, at_top = {0}, at_bottom = {0}, at_side = {0};
    at_root.cache = bytes_in(top, 500);
    at_top.cache = bytes_in(top, 300);
    at_bottom.cache = bytes_in(top, 100);
    set(NULL, &at_root, give_up_cache);
    set(top, &at_top, give_up_cache);
    set(bottom, &at_bottom, give_up_cache);
    set(beside, &at_side, give_up_cache);
    order = 0;
    nd_memory_stage_stats before = callback_stats();

    nd_resource *first = bytes_in(bottom, 200); // the nearest suffices
    assert_handle(first);
    assert_int_equal(at_bottom.order, 1);
    assert_int_equal(at_top.asked, 0);
    nd_resource *second =
        bytes_in(bottom, 600); // the nearest has nothing left, then up to the root
    assert_handle(second);
    assert_int_equal(at_bottom.order, 2);
    assert_int_equal(at_top.order, 3);
    assert_int_equal(at_root.order, 4);
    assert_int_equal(at_side.asked, 0);
    nd_memory_stage_stats after = callback_stats();
    assert_int_equal(after.reached - before.reached, 2);
    assert_int_equal(after.enough - before.enough, 2);
    assert_int_equal(after.bytes - before.bytes, 900);

    nd_resource *third = bytes_in(middle, 300); // inherits, and fails
    assert_null(third);
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_int_equal(at_bottom.order, 2);
    assert_int_equal(at_top.order, 5);
    assert_int_equal(at_root.order, 6);
    assert_non_null(strstr(nd_error_get_message(), "2 callbacks asked (0 bytes)"));
    nd_release(first);
    nd_release(second);
    assert_ok(nd_memory_set_callback(NULL, NULL));
    assert_int_equal(at_root.freed, 1);
    close_and_release(bottom);
    close_and_release(beside);
    close_and_release(middle);
    close_and_release(top);
    assert_int_equal(at_top.freed + at_bottom.freed + at_side.freed, 3);
}

static bool check_what_is_told(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    self->asked++;
    assert_int_equal(pressure->size, sizeof *pressure);
    assert_int_equal(pressure->version, 1);
    assert_int_equal(pressure->bytes, 77);
    assert_int_equal(pressure->kind, ND_CPU);
    assert_true(pressure->quota);
    assert_ptr_equal(pressure->manager, self->manager);
    return false;
}

static void test_a_callback_is_told_who_wants_how_much(void **state) {
    (void)state;
    nd_manager *top = bounded(NULL, "top", 76);
    party self = {.manager = manager_new(top, "asks")};
    set(top, &self, check_what_is_told);
    assert_null(bytes_in(self.manager, 77));
    assert_int_equal(self.asked, 1);
    close_and_release(self.manager);
    close_and_release(top);
}

// ---------------------------------------------------------------------------------------- re-entry

static bool allocate_inside(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    self->asked++;
    self->inside = bytes_in(pressure->manager, 2000); // too much, for it too; it is not asked again
    assert_null(self->inside);
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_non_null(strstr(nd_error_get_message(), "tried: nothing"));
    nd_release(self->cache);
    self->cache = NULL;
    self->inside = bytes_in(pressure->manager, 100);
    assert_handle(self->inside);
    return true;
}

static void test_a_callback_that_allocates_is_not_called_inside_itself(void **state) {
    (void)state;
    nd_manager *m = bounded(NULL, "m", 1000);
    party self = {.cache = bytes_in(m, 900)}, above = {0};
    set(m, &self, allocate_inside);
    set(NULL, &above, give_up_cache);
    nd_resource *x = bytes_in(m, 900);
    assert_handle(x);
    assert_int_equal(nd_error_get_status(), ND_OK); // what failed inside is forgotten
    assert_int_equal(self.asked, 1);
    assert_int_equal(above.asked, 0);
    assert_handle(self.inside);
    nd_release(self.inside);
    nd_release(x);
    close_and_release(m);
    assert_ok(nd_memory_set_callback(NULL, NULL));
}

static bool collect_and_close(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    self->asked++;
    assert_true(nd_gc_collect(NULL, NULL) == ND_OK);
    assert_int_equal(cell_total_deaths(), 2);
    assert_ok(nd_manager_close((nd_manager *)(uintptr_t)pressure->manager, NULL));
    nd_release(self->cache);
    self->cache = NULL;
    return true;
}

static void test_a_callback_collects_and_closes_the_asking_manager(void **state) {
    (void)state;
    cell_begin(2);
    nd_manager *top = bounded(NULL, "top", 1000);
    nd_manager *m = manager_new(top, "m");
    party self = {.cache = bytes_in(m, 900)};
    nd_with_manager(m) {
        cell_drop_ring(0, 2);
    }
    set(m, &self, collect_and_close);
    nd_resource *x = bytes_in(m, 200);
    assert_handle(x);
    assert_ptr_equal(nd_get_manager(x), top); // the nearest that is open
    assert_int_equal(stats_of(top).subtree_bytes[ND_CPU], 200);
    assert_int_equal(stats_of(m).subtree_bytes[ND_CPU], 0);
    assert_int_equal(self.asked, 1);
    assert_int_equal(self.freed, 1); // with its manager, when it had returned
    nd_release(x);
    nd_release(m);
    close_and_release(top);
}

static bool release_last_handle(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    self->asked++;
    nd_release(self->manager);
    self->manager = NULL;
    assert_true(nd_manager_is_open(pressure->manager)); // whoever allocates there holds it
    nd_release(self->cache);
    self->cache = NULL;
    return true;
}

static void test_a_callback_releases_the_asking_managers_last_handle(void **state) {
    (void)state;
    nd_manager *top = bounded(NULL, "top", 1000);
    party self = {.manager = manager_new(top, "m"), .cache = bytes_in(top, 900)};
    set(self.manager, &self, release_last_handle);
    nd_tensor *x = NULL;
    nd_with_manager(self.manager) {
        x = nd_zeros(ND_SHAPE(100), ND_F32);
        assert_handle(x);
        assert_string_equal(nd_manager_get_name(nd_get_manager(x)), "m");
    }
    assert_int_equal(self.freed, 1);
    assert_ptr_equal(nd_get_manager(x), top);
    assert_int_equal(nd_get_numel(x), 100);
    nd_release(x);

    // The result goes where its operand is; nothing else holds that manager.
    party again = {.manager = manager_new(top, "n"), .cache = bytes_in(top, 700)};
    set(again.manager, &again, release_last_handle);
    nd_with_manager(again.manager) {
        x = nd_zeros(ND_SHAPE(50), ND_F32);
    }
    nd_tensor *y = nd_add(x, x);
    assert_handle(y);
    assert_int_equal(again.asked, 1);
    assert_int_equal(again.freed, 1);
    assert_ptr_equal(nd_get_manager(y), top);
    nd_release(x);
    nd_release(y);
    close_and_release(top);
}

static bool unregister_itself(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    self->asked++;
    assert_ok(nd_memory_set_callback(pressure->manager, NULL));
    assert_int_equal(self->freed, 0); // it still runs
    nd_release(self->cache);
    self->cache = NULL;
    return true;
}

static bool replace_itself(const nd_memory_pressure *pressure, void *data) {
    party *self = data;
    self->asked++;
    assert_ok(nd_memory_set_callback(pressure->manager, &self->inner));
    assert_int_equal(self->freed, 0);
    return true;
}

static void test_a_callback_removes_or_replaces_itself(void **state) {
    (void)state;
    nd_manager *m = bounded(NULL, "m", 1000);
    party self = {.cache = bytes_in(m, 900)};
    set(m, &self, unregister_itself);
    nd_release(bytes_in(m, 900));
    assert_int_equal(self.freed, 1);
    assert_null(bytes_in(m, 1001));
    assert_int_equal(self.asked, 1);

    party next = {.cache = bytes_in(m, 900)}, before = {0};
    before.inner = (nd_memory_callback)ND_MEMORY_CALLBACK_INIT;
    before.inner.give_up = give_up_cache;
    before.inner.data = &next;
    before.inner.free = count_free;
    set(m, &before, replace_itself);
    assert_null(bytes_in(m, 200)); // the new one comes with the next request
    assert_int_equal(before.asked, 1);
    assert_int_equal(before.freed, 1);
    assert_int_equal(next.asked, 0);
    nd_resource *x = bytes_in(m, 200);
    assert_handle(x);
    assert_int_equal(next.asked, 1);
    nd_release(x);
    close_and_release(m);
    assert_int_equal(next.freed, 1);
}

static party *finalized;

static void allocate_in_finalizer(nd_object *self) {
    (void)self;
    finalized->inside = bytes_in(finalized->manager, 2000);
}

/// A walk inside the collection that another walk asked for: the collector is busy, the callback is
/// not, and it ends.
static void test_a_finalizer_that_allocates_on_the_ladder(void **state) {
    (void)state;
    static const nd_type type = {.size = sizeof type,
                                 .version = 1,
                                 .name = "finalized",
                                 .flags = ND_TYPE_GREEN,
                                 .finalize = allocate_in_finalizer};
    nd_manager *m = bounded(NULL, "m", 1000);
    assert_ok(nd_manager_set_gc_mode(m, ND_GC_ON));
    party self = {.manager = m};
    finalized = &self;
    set(m, &self, give_up_cache);
    nd_with_manager(m) {
        nd_list *cycle = nd_list_new();
        nd_object *member = nd_object_new(&type, 8);
        assert_ok(nd_list_append(cycle, cycle));
        assert_ok(nd_list_append(cycle, member));
        nd_release(member);
        nd_release(cycle);
    }
    assert_null(bytes_in(m, 1001));
    assert_int_equal(self.asked, 2); // by the finalizer's walk, and by the one that collected
    assert_null(self.inside);
    close_and_release(m);
}

// ------------------------------------------------------------------------------------ registration

static bool refuse(size_t bytes) {
    (void)bytes;
    return true;
}

static void test_what_cannot_be_set_changes_nothing(void **state) {
    (void)state;
    party self = {0}, other = {0};
    nd_manager *m = manager_new(NULL, "m");
    set(m, &self, give_up_cache);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = NULL;
    callback.data = &other;
    callback.free = count_free;
    assert_int_equal(nd_memory_set_callback(m, &callback), ND_ERROR_INVALID_ARGUMENT);
    callback.give_up = give_up_cache;
    callback.version = 2;
    assert_int_equal(nd_memory_set_callback(m, &callback), ND_ERROR_INVALID_ARGUMENT);
    callback.version = 1;
    nd__alloc_should_fail = refuse;
    nd_status status = nd_memory_set_callback(m, &callback);
    nd__alloc_should_fail = NULL;
    assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
    assert_int_equal(self.freed, 0);
    assert_ok(nd_manager_close(m, NULL));
    assert_int_equal(self.freed, 1);
    assert_int_equal(nd_memory_set_callback(m, &callback), ND_ERROR_CLOSED);
    assert_ok(nd_memory_set_callback(m, NULL));
    assert_int_equal(other.freed, 0);
    nd_release(m);
    m = manager_new(NULL, "m"); // the same memory, without the callback
    assert_ok(nd_manager_set_quota(m, ND_CPU, 1));
    assert_null(bytes_in(m, 2));
    assert_int_equal(self.asked, 0);
    nd_release(m);
}

// ----------------------------------------------------------------------------------------- threads

typedef struct shared {
    nd_manager *manager;
    atomic_int alive, wrong;
    atomic_bool stop;
} shared;

/// Data of a callback that is replaced all the time.
typedef struct token {
    shared *owner;
    atomic_int alive;
} token;

static bool ask_token(const nd_memory_pressure *pressure, void *data) {
    token *self = data;
    (void)pressure;
    for (int i = 0; i < 20; i++)
        if (!atomic_load(&self->alive))
            atomic_fetch_add(&self->owner->wrong, 1);
    return true;
}

static void free_token(void *data) {
    token *self = data;
    atomic_store(&self->alive, 0);
    atomic_fetch_sub(&self->owner->alive, 1);
    nd__alloc_free(self);
}

static void *replace_callbacks(void *data) {
    shared *all = data;
    for (int i = 0; i < 20000 / ND_TEST_SCALE; i++) {
        token *next = nd__alloc_zeroed(sizeof *next);
        next->owner = all;
        atomic_store(&next->alive, 1);
        atomic_fetch_add(&all->alive, 1);
        nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
        callback.give_up = ask_token;
        callback.data = next;
        callback.free = free_token;
        if (nd_memory_set_callback(all->manager, &callback) != ND_OK)
            atomic_fetch_add(&all->wrong, 1);
    }
    atomic_store(&all->stop, true);
    return NULL;
}

static void *ask_for_too_much(void *data) {
    shared *all = data;
    while (!atomic_load(&all->stop)) {
        nd_resource *never = bytes_in(all->manager, 2000);
        if (never)
            atomic_fetch_add(&all->wrong, 1);
        nd_release(never);
    }
    return NULL;
}

static void test_data_lives_as_long_as_a_thread_runs_the_callback(void **state) {
    (void)state;
    shared all = {.manager = bounded(NULL, "m", 1000)};
    pthread_t threads[4];
    assert_int_equal(pthread_create(&threads[0], NULL, replace_callbacks, &all), 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for_too_much, &all), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&all.wrong), 0);
    assert_int_equal(atomic_load(&all.alive), 1);
    close_and_release(all.manager);
    assert_int_equal(atomic_load(&all.alive), 0);
}

typedef struct cache {
    pthread_mutex_t lock;
    nd_resource *kept[8];
    nd_manager *manager;
    atomic_int failures;
} cache;

static bool drop_one(const nd_memory_pressure *pressure, void *data) {
    cache *self = data;
    nd_resource *dropped = NULL;
    (void)pressure;
    pthread_mutex_lock(&self->lock);
    for (int i = 0; i < 8 && !dropped; i++) {
        dropped = self->kept[i];
        self->kept[i] = NULL;
    }
    pthread_mutex_unlock(&self->lock);
    nd_release(dropped);
    return dropped != NULL;
}

/// Fills the cache; what does not fit makes the cache give up something else.
static void *use_cache(void *data) {
    cache *self = data;
    for (int i = 0; i < 4000 / ND_TEST_SCALE; i++) {
        nd_resource *made = bytes_in(self->manager, 300);
        for (int tries = 0; !made && tries < 1000; tries++)
            made = bytes_in(self->manager, 300); // the other threads hold one each, no more
        if (!made)
            atomic_fetch_add(&self->failures, 1);
        nd_with_manager(self->manager) {
            nd_list *cycle = nd_list_new();
            if (cycle && nd_list_append(cycle, cycle) != ND_OK)
                atomic_fetch_add(&self->failures, 1);
            nd_release(cycle);
        }
        pthread_mutex_lock(&self->lock);
        nd_resource *before = self->kept[i % 8];
        self->kept[i % 8] = made;
        pthread_mutex_unlock(&self->lock);
        nd_release(before);
    }
    return NULL;
}

static void test_threads_on_the_ladder_at_once(void **state) {
    (void)state;
    cache self = {.manager = bounded(NULL, "m", 1500)};
    pthread_mutex_init(&self.lock, NULL);
    assert_ok(nd_manager_set_gc_mode(self.manager, ND_GC_ON));
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = drop_one;
    callback.data = &self;
    assert_ok(nd_memory_set_callback(self.manager, &callback));
    nd_memory_stats before = ND_MEMORY_STATS_INIT, after = ND_MEMORY_STATS_INIT;
    assert_ok(nd_memory_get_stats(&before));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_cache, &self), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&self.failures), 0);
    assert_ok(nd_memory_get_stats(&after));
    uint64_t enough = 0;
    for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT; stage++)
        enough += after.stages[stage].enough - before.stages[stage].enough;
    assert_int_equal(after.walks - before.walks, after.failures - before.failures + enough);
    assert_true(after.walks > before.walks);
    for (int i = 0; i < 8; i++)
        nd_release(self.kept[i]);
    pthread_mutex_destroy(&self.lock);
    close_and_release(self.manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_nearest_first_and_then_up),
        ND_TEST(test_a_callback_is_told_who_wants_how_much),
        ND_TEST(test_a_callback_that_allocates_is_not_called_inside_itself),
        ND_TEST(test_a_callback_collects_and_closes_the_asking_manager),
        ND_TEST(test_a_callback_releases_the_asking_managers_last_handle),
        ND_TEST(test_a_callback_removes_or_replaces_itself),
        ND_TEST(test_a_finalizer_that_allocates_on_the_ladder),
        ND_TEST(test_what_cannot_be_set_changes_nothing),
        ND_TEST(test_data_lives_as_long_as_a_thread_runs_the_callback),
        ND_TEST(test_threads_on_the_ladder_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
