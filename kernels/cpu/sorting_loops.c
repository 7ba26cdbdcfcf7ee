// The keys of rows that are sorted, and the order of short rows (sorting.c decides which).
#include "kernels/cpu/isa.h"
#include "kernels/sorting.h"
#include <string.h>

#define KEYS(ENUMERATOR, step)                                                   \
    for (int64_t i = 0; i < n; i++) {                                            \
        uint64_t key = nd__sorting_key(x, ND_##ENUMERATOR, i * (step)) ^ turned; \
        ret_keys[i] = key;                                                       \
        least = key < least ? key : least;                                       \
    }
#define ND_DTYPE(ENUMERATOR, name, text, T, kind)                                  \
    static uint64_t keys_##name(const void *restrict x, int64_t stride, int64_t n, \
                                uint64_t turned, uint64_t *restrict ret_keys) {    \
        uint64_t least = UINT64_MAX;                                               \
        if (stride == 1)                                                           \
            KEYS(ENUMERATOR, 1)                                                    \
        else                                                                       \
            KEYS(ENUMERATOR, stride)                                               \
        return least;                                                              \
    }
#include "kernels/dtypes.inc"
#undef ND_DTYPE

#if defined(__AVX2__)
/// Keys that are compared with one at once, by one vector or by two: GCC takes vectors apart that the
/// processor does not have.
#if defined(__AVX512F__)
enum { LANES = 8, WIDTH = 8 };
#define FIRST_NUMBERS \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#else
enum { LANES = 8, WIDTH = 4 };
#define FIRST_NUMBERS \
    { 0, 1, 2, 3 }
#endif
typedef int64_t lanes __attribute__((vector_size(8 * WIDTH)));
_Static_assert(ND__ORDERED % LANES == 0, "a row of keys is whole vectors");

/// How many of n numbers come before each of the LANES that begin with number `first`: of equal ones
/// the earlier comes before. A comparison is -1 where it holds.
static inline void count_before(const int64_t *numbers, int64_t n, int64_t first,
                                int64_t ret_counts[LANES]) {
    int64_t own = n - first < LANES ? n - first : LANES;
    lanes others[LANES / WIDTH], count[LANES / WIDTH];
    memcpy(others, numbers + first, sizeof others);
    for (int v = 0; v < LANES / WIDTH; v++)
        count[v] = (lanes){0} + first;
    for (int64_t i = 0; i < first; i++)
        for (int v = 0; v < LANES / WIDTH; v++)
            count[v] += numbers[i] > others[v];
    for (int64_t i = 0; i < own; i++)
        for (int v = 0; v < LANES / WIDTH; v++) {
            const lanes index = (lanes)FIRST_NUMBERS + (int64_t)v * WIDTH;
            count[v] -= (numbers[first + i] < others[v]) |
                        ((numbers[first + i] == others[v]) & (i < index));
        }
    for (int64_t i = first + own; i < n; i++)
        for (int v = 0; v < LANES / WIDTH; v++)
            count[v] -= others[v] > numbers[i];
    memcpy(ret_counts, count, sizeof count);
}

/// Each element's place is the number of those before it, which no branch depends on.
static void order_of_keys(const uint64_t *keys, int64_t n, int64_t *ret_positions) {
    const uint64_t middle = (uint64_t)1 << 63;
    // Compared as numbers with a sign, which vectors can be. What is behind the last is not counted.
    int64_t numbers[ND__ORDERED], places[LANES];
    for (int64_t i = 0; i < n; i++)
        numbers[i] = (int64_t)(keys[i] ^ middle);
    for (int64_t i = n; i % LANES != 0; i++)
        numbers[i] = 0;
    for (int64_t first = 0; first < n; first += LANES) {
        count_before(numbers, n, first, places);
        for (int64_t i = 0; i < LANES && first + i < n; i++)
            ret_positions[places[i]] = first + i;
    }
}
#else
#define order_of_keys NULL
#endif

const nd__sorting_loops ND_ISA_NAME(nd__cpu_sorting_loops) = {
    .keys =
        {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = keys_##name,
#include "kernels/dtypes.inc"
#undef ND_DTYPE
        },
    .order = order_of_keys,
};
