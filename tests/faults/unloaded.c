// A program opens libnd.so, uses it on a thread, and closes it before the thread ends (F32).
//
// Arguments: libnd.so. It stays mapped (-z nodelete): the thread's end runs its code.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>

static sem_t used, closed;
static void *library;

static void *use(void *data) {
    void *(*ones)(int, const int64_t *, int) =
        (void *(*)(int, const int64_t *, int))(uintptr_t)dlsym(library, "nd_ones");
    void (*release)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "nd_object_release");
    int64_t shape = 3;
    enum { F32 = 4 };
    if (!ones || !release)
        return &used;
    release(ones(1, &shape, F32));
    sem_post(&used);
    sem_wait(&closed);
    return data;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 3 && argc > 1; i++) {
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return fprintf(stderr, "%s\n", dlerror()), 2;
        pthread_t thread;
        void *failed = NULL;
        sem_init(&used, 0, 0);
        sem_init(&closed, 0, 0);
        if (pthread_create(&thread, NULL, use, NULL) != 0)
            return 3;
        sem_wait(&used);
        if (dlclose(library) != 0)
            return 4;
        sem_post(&closed);
        pthread_join(thread, &failed);
        if (failed)
            return 5;
    }
    return argc > 1 ? 0 : 1;
}
