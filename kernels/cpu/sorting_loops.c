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

#if defined(__AVX512F__)
#define NUMBER int64_t
#define WIDTH 8
#define LANES 8
#define FIRST_NUMBERS \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#include "kernels/cpu/order.inc"
#define NUMBER int32_t
#define WIDTH 16
#define LANES 16
#define FIRST_NUMBERS \
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
#include "kernels/cpu/order.inc"
#elif defined(__AVX2__)
#define NUMBER int64_t
#define WIDTH 4
#define LANES 8
#define FIRST_NUMBERS \
    { 0, 1, 2, 3 }
#include "kernels/cpu/order.inc"
#define NUMBER int32_t
#define WIDTH 8
#define LANES 16
#define FIRST_NUMBERS \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#include "kernels/cpu/order.inc"
#else
#define order_int64_t NULL
#define order_int32_t NULL
#endif

const nd__sorting_loops ND_ISA_NAME(nd__cpu_sorting_loops) = {
    .keys =
        {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = keys_##name,
#include "kernels/dtypes.inc"
#undef ND_DTYPE
        },
    .order = order_int64_t,
    .order_narrow = order_int32_t,
};
