// Memory of the checked program: an arena that hands out the same addresses in every execution and
// never reuses a block, and a shadow that knows of every byte whether it is alive, and who touched
// it when.
//
// Two accesses of one place by different threads, one of them a plain write or a free, must be
// ordered by the synchronisation that the memory orders of the code promise (happens-before of
// C11, by vector clocks). Programs for which that holds in every explored execution need no
// scheduling point at plain accesses: they cannot tell.
#ifndef ND_TESTS_MODEL_MEMORY_H
#define ND_TESTS_MODEL_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Simulated threads: the program's, and the main one that sets up and finishes.
enum { MODEL_THREADS = 4, MODEL_MAIN = 3 };

typedef struct model_clock {
    uint32_t time[MODEL_THREADS];
} model_clock;

static inline void model_clock_join(model_clock *clock, const model_clock *other) {
    for (int i = 0; i < MODEL_THREADS; i++)
        if (other->time[i] > clock->time[i])
            clock->time[i] = other->time[i];
}

/// What the memory looks like now is what every execution begins with.
void memory_take_snapshot(void);
void memory_restore_snapshot(void);
/// Number of blocks that are allocated and not freed.
size_t memory_live_blocks(void);
/// Checks an access by thread with its clock; reports an error when the place is freed, or when
/// the access races with one before.
void memory_access(const volatile void *place, size_t size, int thread, const model_clock *clock,
                   bool write, bool atomic);
/// The same for all of a block that is freed.
void memory_free(void *block, size_t size, int thread, const model_clock *clock);
/// False: races are not reported, only wrong behaviour is.
extern bool memory_races_reported;
#endif
