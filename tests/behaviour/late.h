// Two devices that a test can keep from doing what is queued, to decide what is still in flight.
//
// They are the fake device's, or with ON_FAKE_RUNTIME CUDA's on the runtime of tests/cudart, which
// counts for both of its devices at once. While a device is paused, work, copies and releases pile
// up, and who waits for it waits until it is resumed.
#ifndef ND_TESTS_BEHAVIOUR_LATE_H
#define ND_TESTS_BEHAVIOUR_LATE_H
#ifdef ON_FAKE_RUNTIME
#include "tests/cudart/control.h"
#include "tests/testing.h"

/// Their kind, and how errors name it.
#define LATE ND_CUDA
#define LATE_NAME "cuda"

static uint64_t late_own_blocks; ///< that the backend has for itself

__attribute__((constructor)) static void late_begin(void) {
    cudart_statistics statistics;
    for (int i = 0; i < 2; i++)
        if (nd_synchronize((nd_device){LATE, i}) != ND_OK)
            abort();
    cudart_get_statistics(&statistics);
    late_own_blocks = statistics.live_blocks;
}

static inline void late_pause(int index) {
    (void)index;
    cudart_hold();
}
static inline void late_resume(int index) {
    (void)index;
    cudart_let_go();
}
static inline uint64_t late_pending(int index) {
    (void)index;
    cudart_statistics statistics;
    cudart_get_statistics(&statistics);
    return statistics.pending;
}
static inline uint64_t late_live_blocks(int index) {
    (void)index;
    cudart_statistics statistics;
    cudart_get_statistics(&statistics);
    return statistics.live_blocks - late_own_blocks;
}
#else
#include "lib/device/fake/fake.h"

#define LATE ND_FAKE
#define LATE_NAME "fake"
#define late_pause nd__fake_pause
#define late_resume nd__fake_resume
/// Commands that are queued or running.
#define late_pending nd__fake_pending
/// Blocks that are not given back.
#define late_live_blocks nd__fake_live_blocks
#endif
#endif
