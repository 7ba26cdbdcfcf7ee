// Running a group of tests only where there is a CUDA device.
#ifndef ND_TESTS_GPU_GPU_H
#define ND_TESTS_GPU_GPU_H
#include "tests/testing.h"
#include <stdlib.h>

#define CUDA_DEVICE ((nd_device){ND_CUDA, 0})

/// True when the tests can run. Else says so; ret_exit is what main returns then.
static inline bool gpu_present(int *ret_exit) {
    if (nd_get_device_count(ND_CUDA) > 0)
        return true;
    const char *required = getenv("ND_REQUIRE_GPU");
    bool failure = required && *required && strcmp(required, "0") != 0;
    printf("SKIPPED: no CUDA device%s\n", failure ? ", and ND_REQUIRE_GPU asks for one" : "");
    *ret_exit = failure ? 1 : 0;
    return false;
}
#endif
