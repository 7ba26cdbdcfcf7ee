// For how long: ND_STRESS in the environment says how many times as long as usual.
//
//   ./bazelw test --config=tsan --test_env=ND_STRESS=100 --test_timeout=3600 //tests/stress/...
#ifndef ND_TESTS_STRESS_TIMES_H
#define ND_TESTS_STRESS_TIMES_H
#include "tests/testing.h"
#include <stdlib.h>

/// At least 1.
static inline int stress_times(void) {
    const char *asked = getenv("ND_STRESS");
    int times = asked ? atoi(asked) : 1;
    return times > 1 ? times : 1;
}

/// So many as often; a tenth of them on a device of the fake CUDA runtime, which fills memory with
/// poison and notes every touch of it.
static inline int stress_rounds(int rounds) {
    return (nd_test_device().kind == ND_CPU ? rounds : (rounds + 9) / 10) * stress_times();
}
#endif
