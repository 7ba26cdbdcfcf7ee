// Coverage for libFuzzer that the thread sanitizer lets be. The counters that clang 14 puts into
// the code are themselves races to it, so the fuzz_threads configuration has the code call here
// instead, and nothing here is instrumented. Elsewhere nobody calls.
#include <stdint.h>

#ifdef __clang__
#define BARE __attribute__((no_sanitize("thread", "coverage")))
#else
#define BARE __attribute__((no_sanitize("thread")))
#endif

enum { COUNTERS = 1 << 16 };
static uint8_t counters[COUNTERS];

/// Called where a path through the code begins: the linker turns the calls to here, away from the
/// answer of libFuzzer that it no longer takes them.
void __wrap___sanitizer_cov_trace_pc(void);
/// Where libFuzzer takes counters from; not there in a replay.
void __sanitizer_cov_8bit_counters_init(uint8_t *start, uint8_t *stop) __attribute__((weak));

BARE __attribute__((constructor)) static void begin(void) {
    if (__sanitizer_cov_8bit_counters_init)
        __sanitizer_cov_8bit_counters_init(counters, counters + COUNTERS);
}

/// Two places that share a counter are rare; a count that another thread's overwrites is not
/// missed.
BARE void __wrap___sanitizer_cov_trace_pc(void) {
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    counters[(place ^ place >> 16) % COUNTERS]++;
}
