// What tensors cost their managers, wherever they are: bytes that go with them (B12, B27, B34), caps
// and quotas that refuse them (B15, B16, B17, B21), and memory that is kept for reuse (B33).
#include "lib/device/fake/fake.h"
#include "lib/manager/shard.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static void test_B12_attach_moves_the_bytes_with_the_tensor(void **state) {
    (void)state;
    nd_manager *from = manager_new(NULL, "from"), *to = manager_new(NULL, "to");
    nd_tensor *x = ones_in(from, 1000);
    assert_ok(nd_manager_attach(to, x));
    assert_int_equal(own_bytes(from), 0);
    assert_int_equal(own_bytes(to), 4000);
    assert_int_equal(close_and_release(from).escaped_objects, 0);
    nd_manager *guest = manager_new(NULL, "guest");
    assert_ok(nd_manager_lend(guest, x));
    assert_int_equal(own_bytes(guest), 4000);
    close_and_release(guest);
    assert_int_equal(own_bytes(to), 4000);
    assert_ptr_equal(nd_get_manager(x), to);
    nd_release(x);
    close_and_release(to);
}

static void test_storage_goes_with_its_last_view_wherever_that_is(void **state) {
    (void)state;
    nd_manager *home = manager_new(NULL, "home"), *away = manager_new(NULL, "away");
    nd_tensor *x = ones_in(home, 16);
    nd_tensor *view = NULL;
    // Made unrecorded, it has no edge to x.
    nd_with_manager(away) nd_no_grad view = nd_slice(x, 0, 4, 1, 0);
    assert_int_equal(stats_of(home).live_objects, 2);
    nd_release(x);
    assert_int_equal(stats_of(home).live_objects, 1); // the storage
    assert_int_equal(own_bytes(home), 64);
    assert_int_equal(own_bytes(away), 0);
    nd_release(view);
    assert_int_equal(stats_of(home).freed_objects, 2);
    assert_int_equal(stats_of(away).freed_objects, 1);
    assert_int_equal(own_bytes(home), 0);
    assert_int_equal(own_bytes(home), 0);
    close_and_release(home);
    close_and_release(away);
}

static void test_B15_tensor_that_a_cap_refuses_leaves_no_storage(void **state) {
    (void)state;
    nd_manager *capped = manager_new(NULL, "capped");
    nd_tensor *x = ones_in(capped, 16);
    assert_ok(nd_manager_set_cap(capped, 1));
    for (int64_t size = 16; size <= 1600; size *= 10) { // within the tensor's block, and beside it
        nd_tensor *refused = NULL;
        nd_with_manager(capped) refused = nd_empty(1, &size, ND_F32);
        assert_null(refused);
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
        nd_error_clear();
    }
    assert_int_equal(stats_of(capped).live_objects, nd_test_objects_of(x));
    assert_int_equal(own_bytes(capped), 64);
    nd_release(x);
    close_and_release(capped);
}

static void test_B15_view_that_a_cap_refuses_leaves_no_storage(void **state) {
    (void)state;
    nd_manager *home = manager_new(NULL, "home"), *full = manager_new(NULL, "full");
    nd_tensor *x = ones_in(home, 16), *there = ones_in(full, 16);
    assert_ok(nd_manager_set_cap(full, 1));
    const nd_manager_stats home_before = stats_of(home), full_before = stats_of(full);
    for (int i = 0; i < 4; i++) {
        const nd_tensor *of = i % 2 ? there : x;
        nd_with_manager(full) {
            nd_tensor *view = i < 2 ? nd_slice(of, 0, 4, 1, 0) : nd_detach(of);
            assert_null(view);
        }
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
        nd_error_clear();
        assert_int_equal(stats_of(home).created_objects, home_before.created_objects);
        assert_int_equal(stats_of(full).created_objects, full_before.created_objects);
        assert_int_equal(stats_of(full).live_objects, full_before.live_objects);
    }
    nd_release(x);
    nd_release(there);
    close_and_release(home);
    close_and_release(full);
}

static void *make_large(void *manager) {
    nd_tensor *x = NULL;
    nd_with_manager(manager) x = nd_empty(ND_SHAPE(1000), ND_F32);
    return x;
}

static void test_B15_cap_leaves_out_storages_that_several_threads_have_made(void **state) {
    (void)state;
    enum { THREADS = 6 };
    nd_manager *capped = manager_new(NULL, "capped");
    nd__shard_spread(capped); // as threads do that meet there
    nd_tensor *made[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, make_large, capped), 0);
        assert_int_equal(pthread_join(thread, (void **)&made[i]), 0);
        assert_non_null(made[i]);
    }
    assert_ok(nd_manager_set_cap(capped, THREADS + 1));
    assert_ok(nd_debug_check());
    nd_with_manager(capped) {
        nd_auto nd_tensor *last = nd_empty(ND_SHAPE(1000), ND_F32);
        assert_non_null(last);
        assert_null(nd_empty(ND_SHAPE(1000), ND_F32));
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    }
    nd_error_clear();
    for (int i = 0; i < THREADS; i++)
        nd_release(made[i]);
    close_and_release(capped);
}

// B34: another thread closes the manager that a tensor comes from while another one refuses it.

typedef struct mover {
    nd_manager *home, *others[4];
    atomic_int asked, done; // the round
    int rounds;
} mover;

static void *close_homes(void *data) {
    mover *m = data;
    for (int round = 1; round <= m->rounds; round++) {
        while (atomic_load(&m->asked) != round)
            sched_yield();
        nd_manager_close(m->home, NULL);
        nd_release(m->home);
        for (int i = 0; i < 4; i++) // in its memory, perhaps
            m->others[i] = nd_manager_new(NULL, "another");
        atomic_store(&m->done, round);
    }
    return NULL;
}

static void test_B34_refused_attach_moves_nothing_beside_a_close(void **state) {
    (void)state;
    mover m = {.rounds = 3000 / ND_TEST_SCALE};
    nd_manager *small = manager_new(NULL, "small");
    nd_tensor *resident = ones_in(small, 1);
    assert_ok(nd_manager_set_cap(small, 1));
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_homes, &m), 0);
    for (int round = 1; round <= m.rounds; round++) {
        m.home = manager_new(NULL, "home");
        nd_tensor *x = ones_in(m.home, 100);
        atomic_store(&m.asked, round);
        do {
            assert_int_equal(nd_manager_attach(small, x), ND_ERROR_QUOTA);
            nd_error_clear();
        } while (atomic_load(&m.done) != round);
        assert_ptr_equal(nd_get_manager(x), nd_manager_get_root());
        assert_int_equal(own_bytes(small), 4);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(own_bytes(m.others[i]), 0);
            nd_release(m.others[i]);
        }
        nd_release(x);
    }
    pthread_join(closer, NULL);
    assert_int_equal(stats_of(small).arrived_objects, 0);
    nd_release(resident);
    close_and_release(small);
}

static void test_B27_lent_tensor_comes_home_with_its_bytes(void **state) {
    (void)state;
    nd_manager *home = manager_new(NULL, "home"), *guest = manager_new(NULL, "guest");
    nd_tensor *x = ones_in(home, 1000);
    for (int i = 0; i < 3; i++) {
        assert_ok(nd_manager_lend(guest, x));
        assert_int_equal(own_bytes(guest), 4000);
        assert_int_equal(own_bytes(home), 0);
        assert_ok(nd_manager_lend(home, x));
        assert_int_equal(own_bytes(home), 4000);
    }
    assert_ok(nd_manager_lend(guest, x));
    // A tensor is one object that returns; its storage comes along.
    assert_int_equal(close_and_release(guest).returned_objects, 1);
    assert_int_equal(own_bytes(home), 4000);
    nd_release(x);
    assert_int_equal(close_and_release(home).escaped_objects, 0);
}

static void test_B16_refused_attach_leaves_tensor_and_bytes_in_place(void **state) {
    (void)state;
    nd_manager *home = manager_new(NULL, "home"), *small = manager_new(NULL, "small");
    nd_tensor *x = ones_in(home, 1000);
    assert_ok(nd_manager_set_quota(small, nd_test_device().kind, 100));
    assert_int_equal(nd_manager_attach(small, x), ND_ERROR_QUOTA);
    assert_ok(nd_manager_set_quota(small, nd_test_device().kind, 0));
    nd_tensor *resident = ones_in(small, 1);
    assert_ok(nd_manager_set_cap(small, 1));
    assert_int_equal(nd_manager_attach(small, x), ND_ERROR_QUOTA);
    nd_release(resident);
    assert_ok(nd_manager_close(small, NULL));
    assert_int_equal(nd_manager_attach(small, x), ND_ERROR_CLOSED);
    assert_ptr_equal(nd_get_manager(x), home);
    assert_int_equal(own_bytes(home), 4000);
    nd_release(x);
    nd_release(small);
    assert_int_equal(close_and_release(home).escaped_objects, 0);
}

static void test_B17_quota_refuses_a_tensor_and_names_the_manager(void **state) {
    (void)state;
    nd_manager *m = manager_new(NULL, "budget");
    assert_ok(nd_manager_set_quota(m, nd_test_device().kind, 10000));
    nd_tensor *x = ones_in(m, 2000);
    nd_error_clear();
    assert_null(nd_add(x, x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_non_null(strstr(nd_error_get_message(), "budget"));
    assert_int_equal(own_bytes(m), 8000);
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false); // the program goes on
    assert_true(nd_get_item(sum) == 2000.0);
    nd_release(x);
    nd_release(nd_steal(&sum));
    close_and_release(m);
}

// --------------------------------------------------------------------------------------------- B21

enum { WORKERS = 24, ROUNDS = 2000 / ND_TEST_SCALE, BLOCK = 2 << 20, MOST = 8 };

typedef struct worker {
    nd_manager *manager;
    int held, rounds;
    uint32_t seed;
    uint32_t failures;
} worker;

static void *churn(void *data) {
    worker *w = data;
    nd_tensor *kept[MOST] = {NULL};
    uint32_t random = w->seed;
    w->failures += nd_test_use_device() != ND_OK;
    for (int i = 0; i < w->rounds; i++) {
        random = random * 1664525u + 1013904223u;
        nd_tensor **slot = &kept[(random >> 16) % (uint32_t)w->held];
        nd_release(*slot);
        nd_with_manager(w->manager) {
            *slot = nd_empty(ND_SHAPE(BLOCK), ND_U8);
        }
        if (!*slot) {
            w->failures++;
            continue;
        }
        nd_tensor *view = nd_slice(*slot, 0, 10, 1, 0), *again = nd_retain(*slot);
        w->failures += nd_fill_(view, 1) != ND_OK;
        nd_release(again);
        nd_release(view);
    }
    for (int i = 0; i < MOST; i++)
        nd_release(kept[i]);
    return NULL;
}

/// Blocks per thread so that all together take at most a quarter of the machine's memory.
static int affordable_blocks(void) {
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t blocks = memory / 4 / WORKERS / BLOCK;
    return blocks < 1 ? 1 : blocks > MOST ? MOST : (int)blocks;
}

static void test_B21_24_threads_of_2_mb_tensors_under_a_quota(void **state) {
    (void)state;
    nd_manager *m = manager_new(NULL, "m");
    int held = affordable_blocks();
    // The fake runtime fills with poison what is made and what goes.
    const int rounds = nd_test_device().kind == ND_CPU ? ROUNDS : (ROUNDS + 19) / 20;
    uint64_t quota = (uint64_t)WORKERS * (uint64_t)held * BLOCK;
    assert_ok(nd_manager_set_quota(m, nd_test_device().kind, quota));
    pthread_t threads[WORKERS];
    worker workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){m, held, rounds, i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(m, &stats));
    assert_int_equal(stats.live_objects, 0);
    assert_int_equal(stats.subtree_bytes[nd_test_device().kind], 0);
    assert_int_equal(stats.created_objects, stats.freed_objects);
    assert_true(stats.peak_bytes[nd_test_device().kind] <= quota);
    close_and_release(m);
}

static void test_B33_what_is_kept_for_reuse_can_be_read_and_given_back(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    static nd_tensor *made[COUNT];
    nd_memory_trim(ND_CPU);
    for (int i = 0; i < COUNT; i++)
        assert_handle(made[i] = nd_zeros(ND_SHAPE(16), ND_F32));
    uint64_t before = nd_memory_get_cached(ND_CPU);
    for (int i = 0; i < COUNT; i++)
        nd_release(made[i]);
    uint64_t kept = nd_memory_get_cached(ND_CPU);
    assert_true(kept > before);
    nd_memory_trim(ND_CPU);
    assert_true(nd_memory_get_cached(ND_CPU) <= kept);
    assert_int_equal(nd_memory_get_cached((nd_device_kind)-1), 0);
    assert_int_equal(nd_memory_trim((nd_device_kind)ND_MAX_DEVICE_KINDS), 0);

    assert_ok(nd_set_default_device((nd_device){ND_FAKE, 0}));
    nd_tensor *x = nd_zeros(ND_SHAPE(4096), ND_F32);
    assert_handle(x);
    nd_release(x);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    assert_ok(nd_synchronize((nd_device){ND_FAKE, 0}));
    nd_memory_trim(ND_FAKE);
    assert_int_equal(nd_memory_get_cached(ND_FAKE), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B12_attach_moves_the_bytes_with_the_tensor),
        ND_TEST(test_storage_goes_with_its_last_view_wherever_that_is),
        ND_TEST(test_B15_tensor_that_a_cap_refuses_leaves_no_storage),
        ND_TEST(test_B15_cap_leaves_out_storages_that_several_threads_have_made),
        ND_TEST(test_B15_view_that_a_cap_refuses_leaves_no_storage),
        ND_TEST(test_B16_refused_attach_leaves_tensor_and_bytes_in_place),
        ND_TEST(test_B27_lent_tensor_comes_home_with_its_bytes),
        ND_TEST(test_B34_refused_attach_moves_nothing_beside_a_close),
        ND_TEST(test_B17_quota_refuses_a_tensor_and_names_the_manager),
        ND_TEST(test_B21_24_threads_of_2_mb_tensors_under_a_quota),
        ND_TEST(test_B33_what_is_kept_for_reuse_can_be_read_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
