// Byte quotas: B17, B21 and F7 with resources, whose bytes managers account for like those of a
// tensor's storage.
#ifndef ND_TRACK_SITES
#define ND_TRACK_SITES
#endif
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static nd_manager *bounded_manager(const nd_manager *parent, const char *name, uint64_t quota) {
    nd_manager *manager = manager_new(parent, name);
    assert_ok(nd_manager_set_quota(manager, ND_CPU, quota));
    return manager;
}

static uint64_t bytes_of(const nd_manager *manager) {
    return stats_of(manager).subtree_bytes[ND_CPU];
}

/// A dead ring of two cells that holds `bytes`.
static void drop_ring_with_bytes(const nd_manager *manager, size_t bytes) {
    nd_with_manager(manager) {
        nd_object *ring[2] = {cell_new(0, 2), cell_new(1, 2)};
        nd_resource *buffer = bytes_in(manager, bytes);
        assert_handle(buffer);
        cell_ring(ring, 2);
        cell_link(ring[0], 1, buffer);
        nd_release(buffer);
        nd_release(ring[0]);
        nd_release(ring[1]);
    }
}

static void test_B17_request_over_the_quota_fails_and_changes_nothing(void **state) {
    (void)state;
    nd_manager *outer = bounded_manager(NULL, "training", 1000);
    nd_manager *inner = nd_manager_new(outer, "step");
    nd_resource *held = bytes_in(inner, 700);
    assert_handle(held);
    nd_manager_stats before = ND_MANAGER_STATS_INIT, after = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(inner, &before));
    nd_error_clear();
    assert_null(bytes_in(inner, 301));
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_non_null(strstr(nd_error_get_message(), "training"));
    assert_non_null(strstr(nd_error_get_message(), "301"));
    assert_non_null(strstr(nd_error_get_message(), "1000"));
    assert_non_null(strstr(nd_error_get_message(), "700"));
    assert_ok(nd_manager_get_stats(inner, &after));
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(bytes_of(outer), 700);

    nd_resource *fits = bytes_in(inner, 300);
    assert_handle(fits);
    assert_int_equal(bytes_of(outer), 1000);
    nd_release(fits);
    nd_release(held);
    assert_int_equal(bytes_of(outer), 0);
    close_and_release(inner);
    close_and_release(outer);
}

static void test_B17_error_names_the_largest_holders(void **state) {
    (void)state;
    static char nowhere[1];
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    nd_manager *m = bounded_manager(NULL, "m", 1000);
    nd_resource *held[3] = {NULL};
    size_t sizes[3] = {100, 600, 200};
    char site[64];
    nd_with_manager(m) {
        held[0] = nd_resource_new("weights", nowhere, sizes[0], &callbacks);
        held[1] = nd_resource_new("weights", nowhere, sizes[1], &callbacks);
        held[2] = nd_resource_new("weights", nowhere, sizes[2], &callbacks);
        snprintf(site, sizeof site, "quotas.c:%d", __LINE__ - 1);
    }
    assert_null(bytes_in(m, 101));
    const char *message = nd_error_get_message();
    assert_non_null(strstr(message, "weights"));
    const char *largest = strstr(message, "600"), *second = strstr(message, "200 bytes");
    assert_true(largest && second && largest < second);
    assert_non_null(strstr(message, site));
    for (int i = 0; i < 3; i++)
        nd_release(held[i]);
    close_and_release(m);
}

static void test_B17_error_groups_the_holders_of_a_line(void **state) {
    (void)state;
    static char nowhere[1];
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    enum { MANY = 100 };
    nd_manager *m = bounded_manager(NULL, "m", 1000);
    nd_resource *held[MANY], *one = NULL;
    char many_line[96], one_line[96];
    int line = 0;
    nd_with_manager(m) {
        line = __LINE__ + 2;
        for (int i = 0; i < MANY; i++)
            held[i] = nd_resource_new("batch", nowhere, (size_t)(4 + i % 2 * 2), &callbacks);
        one = nd_resource_new("weights", nowhere, 400, &callbacks);
    }
    snprintf(many_line, sizeof many_line,
             "largest holders: 100 x batch of 500 bytes together made at %s:%d", __FILE__, line);
    snprintf(one_line, sizeof one_line, ", weights of 400 bytes made at %s:%d", __FILE__, line + 1);
    assert_null(bytes_in(m, 101));
    assert_non_null(strstr(nd_error_get_message(), many_line));
    assert_non_null(strstr(nd_error_get_message(), one_line));
    for (int i = 0; i < MANY; i++)
        nd_release(held[i]);
    nd_release(one);
    close_and_release(m);
}

static bool give_nothing(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    (void)data;
    return false;
}

static void test_B17_error_says_why_nothing_was_collected(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_manager *m = bounded_manager(NULL, "m", 1000);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_nothing;
    const struct {
        nd_gc_mode mode;
        bool callback;
        uint64_t pressure;
        const char *says;
    } cases[] = {
        {ND_GC_OFF, false, 1, "tried: nothing, as the collector is off and no callback is set"},
        {ND_GC_OFF, true, 1, "tried: 1 callbacks asked (0 bytes), but the collector is off"},
        {ND_GC_WARN, true, 1, ", but the collector only warns"},
        {ND_GC_ON, true, 0, ", but the collector may not run under pressure"},
        {ND_GC_ON, true, 1, "tried: cycles collected (0 bytes), 1 callbacks asked (0 bytes)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nd_gc_policy policy = ND_GC_POLICY_INIT;
        policy.pressure = cases[i].pressure;
        assert_ok(nd_manager_set_gc_policy(m, &policy));
        assert_ok(nd_manager_set_gc_mode(m, cases[i].mode));
        assert_ok(nd_memory_set_callback(m, cases[i].callback ? &callback : NULL));
        nd_error_clear();
        assert_null(bytes_in(m, 1001));
        if (!strstr(nd_error_get_message(), cases[i].says))
            fail_msg("\"%s\" is not in: %s", cases[i].says, nd_error_get_message());
    }
    // It is on above.
    nd_manager *below = nd_manager_new(m, "below");
    for (int warns = 0; warns < 2; warns++) {
        assert_ok(nd_manager_set_gc_mode(below, warns ? ND_GC_WARN : ND_GC_OFF));
        nd_error_clear();
        assert_null(bytes_in(below, 1001));
        assert_true(strstr(nd_error_get_message(),
                           warns ? "but the collector only warns for manager \"below\""
                                 : "but the collector is off for manager \"below\"") != NULL);
    }
    nd_error_clear();
    close_and_release(below);
    close_and_release(m);
}

static void test_B17_quota_collects_before_it_refuses(void **state) {
    (void)state;
    for (int mode = ND_GC_OFF; mode <= ND_GC_ON; mode++) {
        cell_begin(2);
        nd_gc_set_mode((nd_gc_mode)mode);
        nd_manager *m = bounded_manager(NULL, "m", 1000);
        drop_ring_with_bytes(m, 900);
        assert_int_equal(bytes_of(m), 900);
        nd_resource *next = bytes_in(m, 200);
        if (mode == ND_GC_ON) {
            assert_handle(next);
            assert_int_equal(cell_total_deaths(), 2);
            assert_int_equal(bytes_of(m), 200);
        } else {
            assert_null(next);
            assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
            assert_int_equal(cell_total_deaths(), 0);
            assert_int_equal(bytes_of(m), 900);
        }
        nd_release(next);
        close_and_release(m);
        assert_ok(nd_gc_collect(NULL, NULL));
        assert_int_equal(cell_total_deaths(), 2);
    }
}

static void test_B17_quota_collects_in_a_sibling_below_the_bounded_manager(void **state) {
    (void)state;
    cell_begin(2);
    nd_gc_set_mode(ND_GC_ON);
    nd_manager *top = bounded_manager(NULL, "top", 1000);
    nd_manager *waster = nd_manager_new(top, "waster");
    nd_manager *asker = nd_manager_new(top, "asker");
    drop_ring_with_bytes(waster, 900);
    nd_resource *next = bytes_in(asker, 200);
    assert_handle(next);
    assert_int_equal(cell_total_deaths(), 2);
    nd_release(next);
    close_and_release(asker);
    close_and_release(waster);
    close_and_release(top);
}

static void test_B17_attach_respects_the_quota(void **state) {
    (void)state;
    nd_manager *home = nd_manager_new(NULL, "home");
    nd_manager *small = bounded_manager(NULL, "small", 100);
    nd_resource *x = bytes_in(home, 101);
    assert_int_equal(nd_manager_attach(small, x), ND_ERROR_QUOTA);
    assert_ptr_equal(nd_get_manager(x), home);
    assert_int_equal(bytes_of(home), 101);
    assert_int_equal(bytes_of(small), 0);
    nd_release(x);
    x = bytes_in(home, 100);
    assert_ok(nd_manager_attach(small, x));
    assert_int_equal(bytes_of(home), 0);
    assert_int_equal(bytes_of(small), 100);
    nd_release(x);
    close_and_release(small);
    close_and_release(home);
}

/// Gives up what it is given, or closes the manager that asks.
static bool give_up_or_close(const nd_memory_pressure *pressure, void *data) {
    nd_resource **cache = data;
    if (!*cache)
        return nd_manager_close((nd_manager *)(uintptr_t)pressure->manager, NULL) == ND_OK;
    assert_true(pressure->quota);
    assert_int_equal(pressure->bytes, 600);
    nd_release(*cache);
    *cache = NULL;
    return true;
}

static void test_B17_attach_walks_the_ladder(void **state) {
    (void)state;
    cell_begin(2);
    nd_manager *home = nd_manager_new(NULL, "home");
    nd_manager *small = bounded_manager(NULL, "small", 1000);
    assert_ok(nd_manager_set_gc_mode(small, ND_GC_ON));
    drop_ring_with_bytes(small, 900);
    nd_resource *x = bytes_in(home, 600);
    assert_ok(nd_manager_attach(small, x)); // the collector makes room
    assert_int_equal(cell_total_deaths(), 2);
    assert_ok(nd_manager_attach(home, x));

    nd_resource *cache = bytes_in(small, 500);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up_or_close;
    callback.data = &cache;
    assert_ok(nd_memory_set_callback(small, &callback));
    assert_ok(nd_manager_attach(small, x)); // the program does
    assert_null(cache);
    assert_int_equal(bytes_of(small), 600);
    assert_ok(nd_manager_attach(home, x));

    nd_resource *held = bytes_in(small, 500);
    assert_int_equal(nd_manager_attach(small, x), ND_ERROR_CLOSED); // it closed meanwhile
    assert_non_null(strstr(nd_error_get_message(), "closed"));
    assert_ptr_equal(nd_get_manager(x), home);
    assert_int_equal(bytes_of(home), 600);
    nd_release(held);
    nd_release(small);

    small = bounded_manager(NULL, "small", 1000);
    held = bytes_in(small, 500);
    assert_int_equal(nd_manager_attach(small, x), ND_ERROR_QUOTA);
    assert_non_null(
        strstr(nd_error_get_message(), "manager_attach: 600 cpu bytes do not fit into manager"));
    assert_non_null(strstr(nd_error_get_message(), "buffer of 500 bytes"));
    assert_ptr_equal(nd_get_manager(x), home);
    nd_release(held);
    nd_release(x);
    close_and_release(small);
    close_and_release(home);
}

static void test_B17_sizes_near_the_limits_of_64_bits(void **state) {
    (void)state;
    nd_manager *m = bounded_manager(NULL, "m", 1000);
    nd_resource *held = bytes_in(m, 10);
    nd_error_clear();
    assert_null(bytes_in(m, SIZE_MAX));
    assert_null(bytes_in(m, SIZE_MAX - 5));
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_int_equal(bytes_of(m), 10);
    assert_ok(nd_manager_set_quota(m, ND_CPU, 5)); // below what is live: only new requests fail
    assert_null(bytes_in(m, 1));
    nd_error_clear();
    nd_resource *none = bytes_in(m, 0); // is no more than there was
    assert_handle(none);
    nd_release(none);
    assert_ok(nd_manager_set_quota(m, ND_CPU, 0));
    nd_release(bytes_in(m, 5000));
    nd_release(held);
    close_and_release(m);
}

/// Whatever resources say, sums of their bytes do not wrap: what would be beyond 2^62 is refused.
static void test_B17_sums_of_bytes_do_not_wrap(void **state) {
    (void)state;
    const uint64_t most = UINT64_C(1) << 62;
    static const size_t sizes[] = {SIZE_MAX,
                                   SIZE_MAX - 10,
                                   (size_t)1 << 63,
                                   ((size_t)1 << 62) + 1,
                                   (size_t)1 << 62,
                                   (size_t)1 << 61,
                                   (size_t)3 << 59,
                                   (size_t)1 << 40,
                                   (size_t)1 << 32,
                                   UINT32_MAX,
                                   100};
    nd_manager *outer = manager_new(NULL, "outer"), *inner = nd_manager_new(outer, "inner");
    nd_resource *held[200];
    size_t held_bytes[200];
    const uint64_t begin = nd_manager_get_total_bytes(NULL);
    uint64_t sum = 0;
    uint32_t random = 1;
    size_t count = 0, refused = 0;
    for (int i = 0; i < 4000; i++) {
        random = random * 1664525u + 1013904223u;
        if (count == 200 || (count > 0 && random >> 31)) {
            const size_t at = (random >> 8) % count;
            sum -= held_bytes[at];
            nd_release(held[at]);
            held[at] = held[--count];
            held_bytes[at] = held_bytes[count];
        } else {
            const size_t bytes = sizes[(random >> 8) % (sizeof sizes / sizeof *sizes)];
            nd_resource *resource = bytes_in(random >> 7 & 1 ? inner : outer, bytes);
            // Small ones are not looked at, so that the sum may be a little more.
            assert_true(resource || (bytes > most || sum > most - bytes));
            assert_true(!resource || bytes < (size_t)1 << 32 || sum + bytes <= most);
            if (!resource) {
                assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
                assert_non_null(strstr(nd_error_get_message(), "at most 4611686018427387904"));
                refused++;
            } else {
                held_bytes[count] = bytes;
                held[count++] = resource;
                sum += bytes;
            }
        }
        assert_true(bytes_of(outer) == sum);
        assert_true(nd_manager_get_total_bytes(NULL) == begin + sum);
    }
    assert_true(refused > 100);
    // A quota of the largest number is none, and one below what is live grants nothing.
    assert_ok(nd_manager_set_quota(outer, ND_CPU, UINT64_MAX));
    assert_null(bytes_in(outer, SIZE_MAX));
    while (count > 0)
        nd_release(held[--count]);
    nd_resource *large = bytes_in(inner, (size_t)1 << 62);
    assert_handle(large);
    assert_ok(nd_manager_set_quota(outer, ND_CPU, 1000));
    assert_null(bytes_in(inner, 100));
    nd_release(large);
    close_and_release(inner);
    close_and_release(outer);
}

// ------------------------------------------------------------------------------------ threads

typedef struct race {
    nd_manager *manager;
    pthread_barrier_t barrier;
    size_t bytes;
    int rounds;
    atomic_int wins;
    atomic_int wrong_rounds;
    atomic_bool stop;
} race;

static void *race_for_the_last_bytes(void *data) {
    race *r = data;
    for (int round = 0; round < r->rounds; round++) {
        pthread_barrier_wait(&r->barrier);
        nd_resource *mine = bytes_in(r->manager, r->bytes);
        if (mine)
            atomic_fetch_add(&r->wins, 1);
        pthread_barrier_wait(&r->barrier);
        nd_release(mine);
        if (pthread_barrier_wait(&r->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            if (atomic_exchange(&r->wins, 0) != 1)
                atomic_fetch_add(&r->wrong_rounds, 1);
        }
        pthread_barrier_wait(&r->barrier);
    }
    return NULL;
}

static void test_B17_two_threads_race_for_the_last_bytes_and_one_wins(void **state) {
    (void)state;
    race r = {
        .manager = bounded_manager(NULL, "m", 100), .bytes = 60, .rounds = 5000 / ND_TEST_SCALE};
    pthread_barrier_init(&r.barrier, NULL, 2);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, race_for_the_last_bytes, &r);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&r.barrier);
    assert_int_equal(atomic_load(&r.wrong_rounds), 0);
    assert_int_equal(bytes_of(r.manager), 0);
    close_and_release(r.manager);
}

static void *ask_for_too_much(void *data) {
    race *r = data;
    while (!atomic_load(&r->stop)) {
        nd_resource *never = bytes_in(r->manager, 2000);
        if (never)
            atomic_fetch_add(&r->wins, 1);
        nd_release(never);
    }
    return NULL;
}

static void test_B17_neighbour_that_fits_is_never_refused(void **state) {
    (void)state;
    race r = {.manager = bounded_manager(NULL, "m", 1000)};
    pthread_t greedy[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&greedy[i], NULL, ask_for_too_much, &r);
    uint64_t refused = 0;
    for (int i = 0; i < 100000 / ND_TEST_SCALE; i++) {
        nd_resource *fits = bytes_in(r.manager, 1000);
        refused += fits == NULL;
        nd_release(fits);
    }
    atomic_store(&r.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(greedy[i], NULL);
    assert_int_equal(refused, 0);
    assert_int_equal(atomic_load(&r.wins), 0);
    close_and_release(r.manager);
}

static void *make_garbage(void *data) {
    race *r = data;
    for (int i = 0; i < r->rounds; i++) {
        nd_with_manager(r->manager) {
            nd_resource *held = bytes_in(r->manager, r->bytes);
            atomic_fetch_add(&r->wrong_rounds, held == NULL);
            nd_list *ring = nd_list_new();
            nd_list_append(ring, ring);
            nd_list_append(ring, held);
            nd_release(held);
            nd_release(ring);
        }
    }
    return NULL;
}

/// A thread holds nothing when it asks, and all that it has let go of is garbage, which others
/// collect, and fill again, at any moment.
static void test_B17_request_that_fits_is_not_refused_for_garbage_of_others(void **state) {
    (void)state;
    enum { THREADS = 3 };
    nd_gc_set_mode(ND_GC_ON);
    for (uint64_t room = THREADS; room <= 10 * THREADS; room *= 10) {
        race r = {.manager = bounded_manager(NULL, "m", room * 1000),
                  .bytes = 1000,
                  .rounds = 30000 / ND_TEST_SCALE};
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, make_garbage, &r);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&r.wrong_rounds), 0);
        nd_manager_stats stats = ND_MANAGER_STATS_INIT;
        assert_ok(nd_manager_get_stats(r.manager, &stats));
        assert_true(stats.peak_bytes[ND_CPU] <= room * 1000);
        close_and_release(r.manager);
    }
    nd_gc_set_mode(ND_GC_OFF);
}

static void *ask_until_told(void *data) {
    race *r = data;
    while (!atomic_load(&r->stop))
        make_garbage(r);
    return NULL;
}

/// And one that does not fit waits for a second, and what its last collection takes on a busy machine.
static void test_B17_request_that_does_not_fit_is_refused_beside_garbage_of_others(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    race r = {.manager = bounded_manager(NULL, "m", 10000), .bytes = 1000, .rounds = 10};
    nd_resource *held = bytes_in(r.manager, 4000);
    pthread_t thread;
    pthread_create(&thread, NULL, ask_until_told, &r);
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    assert_null(bytes_in(r.manager, 7000));
    clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_in_range(ended.tv_sec - began.tv_sec, 0, 20);
    nd_error_clear();
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&r.wrong_rounds), 0);
    nd_release(held);
    close_and_release(r.manager);
    nd_gc_set_mode(ND_GC_OFF);
}

static void *churn_small(void *data) {
    race *r = data;
    nd_resource *held[8] = {NULL};
    for (uint32_t i = 0, random = 1; !atomic_load(&r->stop); i++) {
        random = random * 1664525u + 1013904223u;
        nd_release(held[i % 8]);
        held[i % 8] = bytes_in(r->manager, 1 + (random >> 20));
    }
    for (int i = 0; i < 8; i++)
        nd_release(held[i]);
    return NULL;
}

/// Sums over parts that other threads move bytes between.
static void test_B17_statistics_never_pass_a_quota_that_holds(void **state) {
    (void)state;
    enum { THREADS = 4, QUOTA = 50000 };
    race r = {.manager = bounded_manager(NULL, "m", QUOTA)};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, churn_small, &r);
    uint64_t beyond = 0, below = 0;
    for (int i = 0; i < 200000 / ND_TEST_SCALE; i++) {
        nd_manager_stats stats = stats_of(r.manager);
        beyond += stats.subtree_bytes[ND_CPU] > QUOTA || stats.peak_bytes[ND_CPU] > QUOTA;
        below += stats.peak_bytes[ND_CPU] < stats.subtree_bytes[ND_CPU];
    }
    atomic_store(&r.stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(beyond, 0);
    assert_int_equal(below, 0);
    nd_error_clear();
    close_and_release(r.manager);
}

enum { WORKERS = 24, ROUNDS = 2000 / ND_TEST_SCALE, BLOCK = 2 << 20 };

typedef struct worker {
    nd_manager *manager;
    uint32_t seed;
    uint32_t failures;
} worker;

static void *churn(void *data) {
    worker *w = data;
    nd_resource *kept[2] = {NULL, NULL};
    uint32_t random = w->seed;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t slot = random >> 31;
        // Releasing first keeps every thread at two blocks, which is what the quota has room for.
        nd_release(kept[slot]);
        kept[slot] = bytes_in(w->manager, BLOCK);
        if (!kept[slot]) {
            w->failures++;
            continue;
        }
        for (uint32_t extra = (random >> 20) & 3; extra > 0; extra--) {
            nd_resource *again = nd_retain(kept[slot]);
            nd_release(again);
        }
    }
    nd_release(kept[0]);
    nd_release(kept[1]);
    return NULL;
}

static void test_B21_24_threads_of_2_mb_blocks_under_a_quota(void **state) {
    (void)state;
    nd_manager *m = bounded_manager(NULL, "m", (uint64_t)WORKERS * 2 * BLOCK);
    pthread_t threads[WORKERS];
    worker workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){m, i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(m, &stats));
    assert_int_equal(stats.live_objects, 0);
    assert_int_equal(stats.subtree_bytes[ND_CPU], 0);
    assert_int_equal(stats.created_objects, (uint64_t)WORKERS * ROUNDS);
    assert_int_equal(stats.freed_objects, (uint64_t)WORKERS * ROUNDS);
    assert_in_range(stats.peak_bytes[ND_CPU], BLOCK, (uint64_t)WORKERS * 2 * BLOCK);
    close_and_release(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B17_request_over_the_quota_fails_and_changes_nothing),
        ND_TEST(test_B17_error_names_the_largest_holders),
        ND_TEST(test_B17_error_groups_the_holders_of_a_line),
        ND_TEST(test_B17_error_says_why_nothing_was_collected),
        ND_TEST(test_B17_quota_collects_before_it_refuses),
        ND_TEST(test_B17_quota_collects_in_a_sibling_below_the_bounded_manager),
        ND_TEST(test_B17_attach_respects_the_quota),
        ND_TEST(test_B17_attach_walks_the_ladder),
        ND_TEST(test_B17_sizes_near_the_limits_of_64_bits),
        ND_TEST(test_B17_sums_of_bytes_do_not_wrap),
        ND_TEST(test_B17_two_threads_race_for_the_last_bytes_and_one_wins),
        ND_TEST(test_B17_neighbour_that_fits_is_never_refused),
        ND_TEST(test_B17_request_that_fits_is_not_refused_for_garbage_of_others),
        ND_TEST(test_B17_request_that_does_not_fit_is_refused_beside_garbage_of_others),
        ND_TEST(test_B17_statistics_never_pass_a_quota_that_holds),
        ND_TEST(test_B21_24_threads_of_2_mb_blocks_under_a_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
