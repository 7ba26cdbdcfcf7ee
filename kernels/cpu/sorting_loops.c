// The keys of rows that are sorted, and the order of short rows (sorting.c decides which).
#include "kernels/cpu/isa.h"
#include "kernels/sorting.h"

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
/// Each element's place is the number of those before it, which no branch depends on.
static void order_of_keys(const uint64_t *keys, int64_t n, int64_t *ret_positions) {
    enum { LANES = 8 };
    const uint64_t middle = (uint64_t)1 << 63;
    // Compared as numbers with a sign, which vectors can be; behind the last stand the largest.
    int64_t compared[ND__ORDERED];
    int64_t padded = (n + LANES - 1) / LANES * LANES;
    for (int64_t i = 0; i < padded; i++)
        compared[i] = i < n ? (int64_t)(keys[i] ^ middle) : INT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        int64_t key = compared[i], place = 0;
        for (int64_t j = 0; j < padded; j++)
            place += (compared[j] < key) | ((compared[j] == key) & (j < i));
        ret_positions[place] = i;
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
