// A program opens libnd.so, queues work on a CUDA device and closes the library with the work queued
// and a tensor alive (C11): the library stays mapped (-z nodelete), so what the device still does, a
// thread that ends and the process that exits find it there. The program itself has nothing of the
// library in it, so not ND_TEST either.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants some of the above first.
#include <cmocka.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

// What is asked of it, as include/nd declares it.
enum { CUDA = 1, F32 = 4 };
typedef struct device {
    int kind;
    int index;
} device;
static struct {
    int (*get_device_count)(int kind);
    int (*set_default_device)(device device);
    void *(*ones)(int ndim, const int64_t *shape, int dtype);
    void *(*add)(const void *a, const void *b);
    int (*copy_to_host)(const void *x, void *destination, size_t bytes);
    void (*release)(void *object);
} nd;

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

static void *open_library(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/libnd.so", getenv("TEST_SRCDIR"), getenv("TEST_WORKSPACE"));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    *(void **)(void *)&nd.get_device_count = find(library, "nd_get_device_count");
    *(void **)(void *)&nd.set_default_device = find(library, "nd_set_default_device");
    *(void **)(void *)&nd.ones = find(library, "nd_ones");
    *(void **)(void *)&nd.add = find(library, "nd_add");
    *(void **)(void *)&nd.copy_to_host = find(library, "nd_copy_to_host");
    *(void **)(void *)&nd.release = find(library, "nd_object_release");
    return library;
}

/// A tensor of 1,000 times 1,024, or the work that makes it.
static void *queue_work(void) {
    const int64_t shape = 1000;
    nd.set_default_device((device){CUDA, 0});
    void *x = nd.ones(1, &shape, F32);
    for (int i = 0; i < 10 && x; i++) {
        void *twice = nd.add(x, x);
        nd.release(x);
        x = twice;
    }
    return x;
}

static void *queue_and_leave(void *data) {
    *(void **)data = queue_work();
    return NULL;
}

static void test_C11_unload_with_work_queued(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        void *library = open_library();
        void *here = queue_work(), *there = NULL;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, queue_and_leave, &there), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_non_null(here);
        assert_non_null(there);
        assert_int_equal(dlclose(library), 0);
        library = open_library();
        float found[2][1000] = {{0}};
        assert_int_equal(nd.copy_to_host(here, found[0], sizeof found[0]), 0);
        assert_int_equal(nd.copy_to_host(there, found[1], sizeof found[1]), 0);
        for (int i = 0; i < 2; i++)
            assert_true(found[i][0] == 1024 && found[i][999] == 1024);
        nd.release(here);
        nd.release(there);
        // The last round leaves work and a tensor to the exit.
        if (round == 2)
            assert_non_null(queue_work());
        assert_int_equal(dlclose(library), 0);
    }
}

int main(void) {
    void *library = open_library();
    const int count = nd.get_device_count(CUDA);
    dlclose(library);
    if (count == 0) {
        const char *required = getenv("ND_REQUIRE_GPU");
        const bool failure = required && *required && strcmp(required, "0") != 0;
        printf("SKIPPED: no CUDA device\n");
        return failure ? 1 : 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_C11_unload_with_work_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
