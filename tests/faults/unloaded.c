// A program opens libnd.so, uses it on a thread, and closes it before the thread ends (F32).
//
// It stays mapped (-z nodelete): the thread's end runs its code. The program itself has nothing of
// the library in it, so not ND_TEST either.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants some of the above first.
#include <cmocka.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>

static sem_t used, closed;
static void *library;

static void *use(void *data) {
    void *(*ones)(int, const int64_t *, int) =
        (void *(*)(int, const int64_t *, int))(uintptr_t)dlsym(library, "nd_ones");
    void (*release)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "nd_object_release");
    int64_t shape = 3;
    enum { F32 = 4 };
    bool found = ones && release;
    if (found)
        release(ones(1, &shape, F32));
    sem_post(&used);
    sem_wait(&closed);
    return found ? data : &used;
}

static void test_F32_thread_ends_after_the_library_was_closed(void **state) {
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/libnd.so", getenv("TEST_SRCDIR"), getenv("TEST_WORKSPACE"));
    for (int i = 0; i < 3; i++) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            fail_msg("%s", dlerror());
        pthread_t thread;
        void *failed = NULL;
        sem_init(&used, 0, 0);
        sem_init(&closed, 0, 0);
        assert_int_equal(pthread_create(&thread, NULL, use, NULL), 0);
        sem_wait(&used);
        assert_int_equal(dlclose(library), 0);
        sem_post(&closed);
        pthread_join(thread, &failed);
        assert_null(failed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_F32_thread_ends_after_the_library_was_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
