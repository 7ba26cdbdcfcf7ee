// Opening libraries that pictures need.
#include "lib/io/codec.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool nd__codec_open(const char *variable, const char *file, size_t count, const char *const *names,
                    void *ret_functions) {
    const char *chosen = secure_getenv(variable);
    void *library = dlopen(chosen && *chosen ? chosen : file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, names[i]);
        if (!function) {
            dlclose(library);
            return false;
        }
        memcpy((char *)ret_functions + i * sizeof function, &function, sizeof function);
    }
    return true;
}
