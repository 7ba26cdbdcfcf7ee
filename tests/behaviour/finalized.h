// Cells that count how often they were finalized, by number; what tests of finalizers and of weak
// references share.
#ifndef ND_TESTS_BEHAVIOUR_FINALIZED_H
#define ND_TESTS_BEHAVIOUR_FINALIZED_H
#include "tests/behaviour/helpers.h"

static uint32_t finalized[40];

static inline void count_finalized(nd_object *self) {
    finalized[cell_of(self)->number]++;
}

static inline void begin(uint32_t numbers) {
    cell_begin(numbers);
    memset(finalized, 0, sizeof finalized);
    cell_on_finalize = count_finalized;
}

/// A ring of finalized cells with numbers from 0 on; the caller owns all handles.
static inline void finalized_ring(nd_object **cells, uint32_t count, uint32_t edges) {
    for (uint32_t i = 0; i < count; i++)
        cells[i] = cell_new_of(&cell_finalized_type, i, edges);
    cell_ring(cells, count);
}

static inline void release_all(nd_object *const *cells, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        nd_release(cells[i]);
}
#endif
