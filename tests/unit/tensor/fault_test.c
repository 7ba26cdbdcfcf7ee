// Every allocation fails once: each function answers NULL with ND_ERROR_OUT_OF_MEMORY, and nothing
// is lost.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/alloc.h"
#include "lib/device/fake/fake.h"
#include "lib/tensor/join.h"
#include "lib/tensor/tensor.h"
#include "tests/unit/tensor/values.h"

static _Atomic long allocations_left;
static bool one_fails(size_t bytes) {
    (void)bytes;
    return atomic_fetch_sub(&allocations_left, 1) == 0;
}
static bool all_fail_from_here(size_t bytes) {
    (void)bytes;
    return atomic_fetch_sub(&allocations_left, 1) <= 0;
}

/// Uses every function of creation, views, copies and joining on one device. False when one failed.
static bool work(nd_device device) {
    bool done = false;
    nd_tensor *t[16] = {NULL};
    nd_no_grad {
        t[0] = nd_zeros(ND_SHAPE(4, 6), ND_F32);
        t[1] = nd_to(t[0], device);
    }
    if (t[1] && nd_set_requires_grad(t[1], true) == ND_OK) {
        t[2] = nd_transpose(t[1], 0, 1);
        t[3] = nd_reshape(t[2], ND_SHAPE(24));
        t[4] = nd_slice(t[3], 1, 20, 3, 0);
        t[5] = nd_stack(2, (const nd_tensor *const[]){t[4], t[4]}, 0);
        t[6] = nd_cast(t[5], ND_F64);
        t[7] = nd_clone(t[2]);
        t[8] = nd_to(t[2], (nd_device){ND_FAKE, 0});
        t[9] = nd_select(t[7], 1, 1);
        t[10] = t[9] ? nd__join_unslice(t[9], ND_SHAPE(50), 0, 2, 7) : NULL;
        t[11] = nd_linspace(0, 1, 1000, ND_F32);
        t[12] = nd_randperm(nd_key_new(1), 100);
        t[13] = nd_detach(t[12]);
        done = t[6] && t[8] && t[10] && t[11] && t[13] && nd_format(t[6], NULL, 0) > 0;
    }
    for (int i = 0; i < 16; i++)
        nd_release(t[i]);
    return done;
}

static void fail_each(nd_device device, bool (*hook)(size_t bytes)) {
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_with_manager(manager) {
        // Ends when the allocation to fail is one that is never made.
        long n = 0;
        for (bool reached = true; reached && n < 1000; n++) {
            nd_error_clear();
            atomic_store(&allocations_left, n);
            nd__alloc_should_fail = hook;
            bool done = work(device);
            nd__alloc_should_fail = NULL;
            reached = atomic_load(&allocations_left) < 0;
            assert_true(done || reached);
            // The ladder gets over some failures; then there is no error either.
            assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
            assert_int_equal(nd_manager_get_total_objects(manager), 0);
            assert_int_equal(nd_manager_get_total_bytes(manager), 0);
        }
        assert_in_range(n, 20, 999);
    }
    nd_release(manager);
}

static void test_F01_every_allocation_fails_once(void **state) {
    (void)state;
    fail_each(on_cpu, one_fails);
}

static void test_F02_every_allocation_fails_once_on_the_device(void **state) {
    (void)state;
    fail_each(on_fake, one_fails);
}

static void test_F03_memory_stays_exhausted(void **state) {
    (void)state;
    fail_each(on_cpu, all_fail_from_here);
    fail_each(on_fake, all_fail_from_here);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F01_every_allocation_fails_once),
        ND_TEST(test_F02_every_allocation_fails_once_on_the_device),
        ND_TEST(test_F03_memory_stays_exhausted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
