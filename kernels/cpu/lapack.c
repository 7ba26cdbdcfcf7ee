#include "kernels/cpu/lapack.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    bool found;
    nd__lapack_functions f32, f64;
} lapack;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void *open_library(void) {
    const char *chosen = secure_getenv("ND_LAPACK");
    if (chosen && *chosen)
        return dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
    static const char *const names[] = {"liblapack.so.3", "libopenblas.so.0", "liblapack.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

/// A symbol of the library, or of what it is linked with, into a function pointer of any type.
static bool find(void *library, char letter, const char *name, void *ret_function) {
    char symbol[16];
    snprintf(symbol, sizeof symbol, "%c%s_", letter, name);
    *(void **)ret_function = dlsym(library, symbol);
    return *(void **)ret_function != NULL;
}

static bool find_all(void *library, char letter, nd__lapack_functions *ret_functions) {
    return true
#define ND__FIND(name, arguments) &&find(library, letter, #name, &ret_functions->name)
        ND__LAPACK_FUNCTIONS(ND__FIND)
#undef ND__FIND
            ;
}

static void open_once(void) {
    void *library = open_library();
    if (!library)
        return;
    lapack.found = find_all(library, 's', &lapack.f32) && find_all(library, 'd', &lapack.f64);
    if (!lapack.found)
        dlclose(library);
}

const nd__lapack_functions *nd__cpu_lapack(nd_dtype dtype) {
    pthread_once(&opened, open_once);
    return !lapack.found ? NULL : dtype == ND_F32 ? &lapack.f32 : &lapack.f64;
}
