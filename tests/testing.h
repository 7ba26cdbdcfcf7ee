// What every test uses: cmocka, the whole library, and the promise that nothing is left behind.
//
//   int main(void)
//   {
//       const struct CMUnitTest tests[] = {
//           ND_TEST(test_B01_inner_temporary_dies_with_inner_scope),
//       };
//       return cmocka_run_group_tests(tests, NULL, NULL);
//   }
//
// With ND_TEST_DEVICE=cuda in the environment the tensors of a test are on the first CUDA device
// (nd_test_device): tests/cudart/on_device runs tests of other folders so.
//
// ND_TEST runs a test between nd_test_begin and nd_test_end: error cleared, collector off (on in a
// build that collects everywhere), the root's policy its default;
// afterwards the root must hold as many objects and bytes as before, no host block of the library
// may be outstanding beyond those before, and nd_debug_check() must hold.
#ifndef ND_TESTS_TESTING_H
#define ND_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include <nd/nd.h>

// A test of the core alone links no devices; then there is nothing to wait for.
#pragma weak nd_get_device_count
#pragma weak nd_synchronize
#pragma weak nd_set_default_device

// In a build that collects everywhere (--config=everywhere) the collector is on, and looks at every
// point where it may run. A test of when it runs, or of what only one look at the right time finds,
// says so: nd_test_collects_by_policy() first, or for a whole file ND_TEST_COLLECTS_BY_POLICY
// before this header.
static inline void nd_test_collects_by_policy(void);
#if ND_COLLECT_EVERYWHERE
extern bool nd__policy_everywhere;
#endif

static uint64_t nd_test_objects_before;
static uint64_t nd_test_bytes_before;

static inline void nd_test_collects_by_policy(void) {
    nd_gc_set_mode(ND_GC_OFF);
#if ND_COLLECT_EVERYWHERE
    nd__policy_everywhere = false;
#endif
}

/// Where tensors that name no device are made: on the CPU, or with ND_TEST_DEVICE=cuda in the
/// environment on the first CUDA device.
static inline nd_device nd_test_device(void) {
    const char *device = getenv("ND_TEST_DEVICE");
    return (nd_device){device && strcmp(device, "cuda") == 0 ? ND_CUDA : ND_CPU, 0};
}

/// Makes that the default device of the calling thread: ND_TEST does for the test's own, which may
/// have changed it, and threads that a test starts do by themselves.
static inline nd_status nd_test_use_device(void) {
    return nd_set_default_device ? nd_set_default_device(nd_test_device()) : ND_OK;
}

/// Objects that a fresh tensor is: a small one on the CPU carries its data, others have a storage.
static inline uint64_t nd_test_objects_of(const nd_tensor *fresh) {
    return nd_get_device(fresh).kind == ND_CPU && nd_get_storage_bytes(fresh) <= 256 ? 1 : 2;
}

static inline int nd_test_begin(void **state) {
    (void)state;
    nd_error_clear();
    if (nd_test_use_device() != ND_OK) {
        fprintf(stderr, "ND_TEST_DEVICE: %s\n", nd_error_get_message());
        return -1;
    }
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    nd_manager_set_gc_policy(NULL, &policy);
    nd_test_collects_by_policy();
#if ND_COLLECT_EVERYWHERE && !defined(ND_TEST_COLLECTS_BY_POLICY)
    nd__policy_everywhere = true;
    nd_gc_set_mode(ND_GC_ON);
#endif
    nd_test_objects_before = nd_manager_get_total_objects(NULL);
    nd_test_bytes_before = nd_manager_get_total_bytes(NULL);
    return 0;
}

static inline void nd_test_wait_for_devices(void) {
    for (int kind = 0; nd_get_device_count && kind < ND_MAX_DEVICE_KINDS; kind++)
        for (int index = 0; index < nd_get_device_count((nd_device_kind)kind); index++)
            nd_synchronize((nd_device){(nd_device_kind)kind, index});
}

/// Runs the test that is the state, and waits for what it left to devices: behind it cmocka changes
/// the handlers of faults, which tests/cudart wants while a kernel runs.
static inline void nd_test_run(void **state) {
    CMUnitTestFunction function = *(CMUnitTestFunction *)state;
    *state = NULL;
    function(state);
    nd_test_wait_for_devices();
}

static inline int nd_test_end(void **state) {
    (void)state;
    nd_test_wait_for_devices();
    uint64_t objects = nd_manager_get_total_objects(NULL);
    uint64_t bytes = nd_manager_get_total_bytes(NULL);
    if (objects != nd_test_objects_before || bytes != nd_test_bytes_before) {
        fprintf(stderr, "left behind: %lld objects, %lld bytes\n",
                (long long)(objects - nd_test_objects_before),
                (long long)(bytes - nd_test_bytes_before));
        nd_debug_report_leaks(NULL, stderr, 20);
        return -1;
    }
    if (nd_debug_check() != ND_OK) {
        fprintf(stderr, "%s\n", nd_error_get_message());
        return -1;
    }
    return 0;
}

#define ND_TEST(function) \
    { #function, nd_test_run, nd_test_begin, nd_test_end, (void *)function }

/// Asserts that an expression is ND_OK, with the error's sentence when it is not.
#define assert_ok(expression)                                                   \
    do {                                                                        \
        nd_status nd_status_ = (expression);                                    \
        if (nd_status_ != ND_OK)                                                \
            fail_msg("%s: %s: %s", #expression, nd_status_get_name(nd_status_), \
                     nd_error_get_message());                                   \
    } while (0)

/// Asserts that a handle is not NULL, with the error's sentence when it is.
#define assert_handle(handle)                                            \
    do {                                                                 \
        if (!(handle))                                                   \
            fail_msg("%s is NULL: %s", #handle, nd_error_get_message()); \
    } while (0)

/// Sets one field of the root's collection policy: after how many bytes of a device kind the
/// collector is due.
static inline nd_status nd_test_set_threshold(nd_device_kind kind, uint64_t bytes) {
    static nd_gc_policy policy = ND_GC_POLICY_INIT; // with what was set before
    policy.allocated_bytes[kind] = bytes;
    return nd_manager_set_gc_policy(NULL, &policy);
}
#endif
