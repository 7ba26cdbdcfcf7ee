// Division of integers that kernels/ops.inc names, for every dtype: it rounds down, wraps, and does
// not trap. What is divided by 0 gives 0, as in NumPy.
#ifndef ND_KERNELS_CPU_FUNCTIONS_INTEGER_H
#define ND_KERNELS_CPU_FUNCTIONS_INTEGER_H
#include <stdint.h>

static inline int64_t nd__floor_divide_signed(int64_t a, int64_t b) {
    if (b == 0)
        return 0;
    if (b == -1) // the quotient of the smallest number has no room
        return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
static inline uint64_t nd__floor_divide_unsigned(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : a / b;
}

static inline int64_t nd__remainder_signed(int64_t a, int64_t b) {
    if (b == 0 || b == -1)
        return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static inline uint64_t nd__remainder_unsigned(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : a % b;
}
#endif
