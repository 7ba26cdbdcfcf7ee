// See block_order.h. A bit for every place of a run where a block may begin sorts without comparing.
#include "lib/object/block_order.h"
#include "lib/object/slab.h"

/// MOST_RUNS: what ND__BLOCK_ORDER_MOST neighbours of the largest fine class lie in, and a few more.
enum {
    MOST_RUNS = 12,
    WORD_BITS = 64,
    WORDS = ND__SLAB_RUN_BYTES / ND__BLOCK_UNIT / WORD_BITS,
};

/// Which blocks of one run there are.
typedef struct ordered_run {
    uintptr_t begin;
    uint64_t places[WORDS]; ///< a bit for each ND__BLOCK_UNIT
} ordered_run;

/// That which begins there, found or added; NULL: there are too many.
static ordered_run *run_at(ordered_run *runs, size_t *count, uintptr_t begin) {
    for (size_t i = 0; i < *count; i++)
        if (runs[i].begin == begin)
            return &runs[i];
    if (*count == MOST_RUNS)
        return NULL;
    runs[*count] = (ordered_run){.begin = begin};
    return &runs[(*count)++];
}

/// False: too many runs, or what is no block.
static bool note_places(nd_object *const *objects, size_t count, ordered_run *runs,
                        size_t *ret_runs) {
    ordered_run *run = NULL;
    uintptr_t unaligned = 0;
    *ret_runs = 0;
    for (size_t i = 0; i < count; i++) {
        const uintptr_t address = (uintptr_t)objects[i], offset = address % ND__SLAB_RUN_BYTES;
        if (!run || run->begin != address - offset)
            run = run_at(runs, ret_runs, address - offset);
        if (!run)
            return false;
        const size_t place = offset / ND__BLOCK_UNIT;
        run->places[place / WORD_BITS] |= UINT64_C(1) << place % WORD_BITS;
        unaligned |= address % ND__BLOCK_UNIT;
    }
    return !unaligned;
}

static void order_runs(ordered_run *runs, size_t count, bool rising) {
    for (size_t i = 1; i < count; i++) {
        const ordered_run moved = runs[i];
        size_t at = i;
        for (; at > 0 && (runs[at - 1].begin > moved.begin) == rising; at--)
            runs[at] = runs[at - 1];
        runs[at] = moved;
    }
}

/// Returns where the next one goes.
static nd_object **write_run(const ordered_run *run, bool rising, nd_object **ret_ordered) {
    for (size_t i = 0; i < WORDS; i++) {
        const size_t word = rising ? i : WORDS - 1 - i;
        for (uint64_t left = run->places[word]; left;) {
            const int bit = rising ? __builtin_ctzll(left) : WORD_BITS - 1 - __builtin_clzll(left);
            left ^= UINT64_C(1) << bit;
            const size_t place = word * WORD_BITS + (size_t)bit;
            *ret_ordered++ = (nd_object *)(run->begin + place * ND__BLOCK_UNIT);
        }
    }
    return ret_ordered;
}

bool nd__block_order_by_address(nd_object *const *objects, size_t count, nd_object **ret_ordered) {
    size_t rises = 0;
    for (size_t i = 1; i < count; i++)
        rises += objects[i] > objects[i - 1];
    if (rises == 0 || rises == count - 1)
        return false;
    ordered_run runs[MOST_RUNS];
    size_t run_count;
    if (!note_places(objects, count, runs, &run_count))
        return false;
    const bool rising = objects[count - 1] > objects[0];
    order_runs(runs, run_count, rising);
    for (size_t i = 0; i < run_count; i++)
        ret_ordered = write_run(&runs[i], rising, ret_ordered);
    return true;
}
