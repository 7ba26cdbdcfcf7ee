// The registry: which devices there are, and what is said about those there are not.
#include "lib/device/backends.h"
#include "lib/device/fake/fake.h"
#include "lib/device/registry.h"
#include "tests/testing.h"

static void test_counts(void **state) {
    (void)state;
    assert_int_equal(nd_get_device_count(ND_CPU), 1);
    assert_int_equal(nd_get_device_count(ND_FAKE), 2);
    assert_true(nd_get_device_count(ND_CUDA) >= 0);
    assert_int_equal(nd_get_device_count((nd_device_kind)77), 0);
    assert_int_equal(nd_error_get_status(), ND_OK);
}

static void test_a_kind_that_is_not_there_refuses_everything(void **state) {
    (void)state;
    const nd_backend *absent = nd__registry_backend((nd_device_kind)77);
    void *pointer = NULL;
    assert_false(absent->host_accessible);
    assert_int_equal(absent->allocate(0, 8, &pointer), ND_ERROR_DEVICE);
    assert_null(pointer);
    assert_int_equal(absent->copy_from_host(0, NULL, NULL, 0), ND_ERROR_DEVICE);
    assert_int_equal(absent->copy_to_host(0, NULL, NULL, 0), ND_ERROR_DEVICE);
    assert_int_equal(absent->synchronize(0), ND_ERROR_DEVICE);
    assert_int_equal(absent->call(0, NULL, NULL), ND_ERROR_DEVICE);
    assert_int_equal(absent->launch(0, NULL), ND_ERROR_DEVICE);
    absent->release(0, NULL, 0);
    assert_null(absent->memory);
}

static void test_default_device_belongs_to_the_thread(void **state) {
    (void)state;
    nd_device device = nd_get_default_device();
    assert_int_equal(device.kind, ND_CPU);
    assert_int_equal(device.index, 0);
    assert_ok(nd_set_default_device((nd_device){ND_FAKE, 1}));
    device = nd_get_default_device();
    assert_int_equal(device.kind, ND_FAKE);
    assert_int_equal(device.index, 1);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
}

static void test_F13_a_missing_device_is_named(void **state) {
    (void)state;
    assert_int_equal(nd_set_default_device((nd_device){ND_CPU, 3}), ND_ERROR_DEVICE);
    assert_string_equal(nd_error_get_message(), "set_default_device: cpu:3: there is 1 cpu device");
    assert_int_equal(nd_synchronize((nd_device){ND_FAKE, -1}), ND_ERROR_DEVICE);
    assert_string_equal(nd_error_get_message(), "synchronize: fake:-1: there are 2 fake devices");
    assert_int_equal(nd_synchronize((nd_device){(nd_device_kind)77, 0}), ND_ERROR_DEVICE);
    assert_string_equal(nd_error_get_message(), "synchronize: there is no device kind 77");
    if (nd_get_device_count(ND_CUDA) == 0) {
        assert_int_equal(nd_synchronize((nd_device){ND_CUDA, 0}), ND_ERROR_DEVICE);
        assert_string_equal(nd_error_get_message(), "synchronize: cuda:0: no CUDA device");
    }
    assert_int_equal(nd_get_default_device().kind, ND_CPU);
}

static void test_device_texts_live_side_by_side(void **state) {
    (void)state;
    const char *first = nd__registry_device_text((nd_device){ND_FAKE, 0});
    const char *second = nd__registry_device_text((nd_device){ND_CUDA, 5});
    assert_string_equal(first, "fake:0");
    assert_string_equal(second, "cuda:5");
    assert_string_equal(nd__registry_device_text((nd_device){ND_CPU, 0}), "cpu:0");
}

static void test_the_cpu_needs_no_waiting(void **state) {
    (void)state;
    const nd_backend *cpu = nd__registry_backend(ND_CPU);
    assert_true(cpu->host_accessible);
    void *pointer = NULL;
    assert_ok(cpu->allocate(0, 100, &pointer));
    assert_int_equal((uintptr_t)pointer % 64, 0);
    char text[6] = "abcde", back[6] = "";
    assert_ok(cpu->copy_from_host(0, pointer, text, 6));
    assert_ok(cpu->copy_to_host(0, back, pointer, 6));
    assert_string_equal(back, text);
    assert_ok(cpu->synchronize(0));
    assert_true(!cpu->memory->retire && !cpu->memory->wait);
    cpu->memory->trim(0);
    cpu->release(0, pointer, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_counts),
        ND_TEST(test_a_kind_that_is_not_there_refuses_everything),
        ND_TEST(test_default_device_belongs_to_the_thread),
        ND_TEST(test_F13_a_missing_device_is_named),
        ND_TEST(test_device_texts_live_side_by_side),
        ND_TEST(test_the_cpu_needs_no_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
