// Kernels that find no working memory, on a device of the test's own.
//
// Its memory is the host's, and its kernels are the CPU's, but for the first ones that a test has it
// refuse.
#include "kernels/cpu/cpu.h"
#include "lib/device/registry.h"
#include "tests/testing.h"
#include <stdlib.h>
#include <string.h>

static const nd_device scarce = {(nd_device_kind)ND_DEVICE_KIND_COUNT, 0};
/// Launches that are still refused, those that were, and what the sparing way answers.
static int refusals, refused;
static nd_status sparing_answer;
static int spared;

static int device_count(void) {
    return 1;
}

static nd_status allocate(int index, size_t bytes, void **ret_pointer) {
    (void)index;
    *ret_pointer = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *ret_pointer ? ND_OK : ND_ERROR_OUT_OF_MEMORY;
}

static void release(int index, void *pointer, size_t bytes) {
    (void)index;
    (void)bytes;
    free(pointer);
}

static nd_status copy(int index, void *destination, const void *source, size_t bytes) {
    (void)index;
    if (bytes > 0)
        memcpy(destination, source, bytes);
    return ND_OK;
}

static nd_status synchronize(int index) {
    (void)index;
    return ND_OK;
}

static nd_status launch(int index, const nd_kernel_call *call) {
    (void)index;
    if (refusals == 0)
        return nd__cpu_launch(call);
    refusals--;
    refused++;
    return ND_ERROR_OUT_OF_MEMORY;
}

static nd_status launch_sparing(int index, const nd_kernel_call *call) {
    (void)index;
    spared++;
    return sparing_answer == ND_OK ? nd__cpu_launch(call) : sparing_answer;
}

static nd_status call(int index, void (*function)(void *data), void *data) {
    (void)index;
    function(data);
    return ND_OK;
}

static const nd_backend backend = {
    .name = "scarce",
    .host_accessible = true,
    .device_count = device_count,
    .allocate = allocate,
    .release = release,
    .copy_from_host = copy,
    .copy_to_host = copy,
    .synchronize = synchronize,
    .launch = launch,
    .launch_sparing = launch_sparing,
    .call = call,
};

__attribute__((constructor)) static void add_backend(void) {
    nd__registry_add(&backend);
}

/// From now on.
static void refuse(int launches, nd_status sparing) {
    refusals = launches;
    refused = spared = 0;
    sparing_answer = sparing;
}

/// 1 + 2 on the device, in a manager of its own that ends as it began but for the result.
static nd_tensor *sum_below(nd_manager *manager) {
    nd_tensor *sum = NULL;
    nd_with_manager(manager) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), 1, ND_F32);
        nd_auto nd_tensor *y = nd_to(x, scarce);
        assert_handle(y);
        refuse(refusals, sparing_answer);
        sum = nd_add_scalar(y, 2);
    }
    return sum;
}

static void assert_three(const nd_tensor *sum) {
    assert_handle(sum);
    for (int i = 0; i < 3; i++)
        assert_true(((const float *)nd_get_data(sum))[i] == 3);
    assert_int_equal(nd_error_get_status(), ND_OK);
}

#if !ND_COLLECT_EVERYWHERE // else the garbage is collected before the kernel is refused
/// A list that nothing holds but itself.
static void make_garbage(void) {
    nd_auto nd_list *list = nd_list_new();
    assert_handle(list);
    assert_ok(nd_list_append(list, list));
}

static void test_a_kernel_runs_again_when_the_collector_has_freed_something(void **state) {
    (void)state;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "short");
    nd_gc_set_mode(ND_GC_ON);
    make_garbage();
    refuse(1, ND_ERROR_OUT_OF_MEMORY);
    nd_auto nd_tensor *sum = sum_below(manager);
    assert_three(sum);
    assert_int_equal(refused, 1);
    assert_int_equal(spared, 0);
}
#endif

static void test_the_way_that_takes_less_is_the_last(void **state) {
    (void)state;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "short");
    refuse(1000, ND_OK);
    nd_auto nd_tensor *sum = sum_below(manager);
    assert_three(sum);
    assert_in_range(refused, 1, 999);
    assert_int_equal(spared, 1);
}

static void test_a_kernel_without_memory_says_who_holds_it(void **state) {
    (void)state;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "short");
    nd_auto nd_tensor *held = nd_full(ND_SHAPE(5), 1, ND_F32);
    nd_auto nd_tensor *there = nd_to(held, scarce);
    assert_handle(there);
    refuse(1000, ND_ERROR_OUT_OF_MEMORY);
    assert_null(sum_below(manager));
    assert_int_equal(spared, 1);
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    const char *parts[] = {"add_scalar: no memory on scarce:0 to run the kernel; ",
                           " scarce bytes are live",
                           "manager \"short\"",
                           "without a quota",
                           "largest holders: ",
                           "tried: "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(nd_error_get_message(), parts[i]))
            fail_msg("no \"%s\" in: %s", parts[i], nd_error_get_message());
    assert_int_equal(nd_manager_get_total_objects(manager), 0);
    assert_int_equal(nd_manager_get_total_bytes(manager), 0);
    nd_error_clear();
    refuse(0, ND_OK);
    nd_auto nd_tensor *sum = sum_below(manager);
    assert_three(sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#if !ND_COLLECT_EVERYWHERE
        ND_TEST(test_a_kernel_runs_again_when_the_collector_has_freed_something),
#endif
        ND_TEST(test_the_way_that_takes_less_is_the_last),
        ND_TEST(test_a_kernel_without_memory_says_who_holds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
