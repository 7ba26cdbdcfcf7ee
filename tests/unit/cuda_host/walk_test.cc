// The arithmetic under every strided access: division by multiplication must be exact.
#include "kernels/cuda/walk.cuh"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first, and is C.
extern "C" {
#include <cmocka.h>
}

static void check(uint32_t divisor, uint32_t n) {
    nd_cuda::Divider divider;
    divider.set(divisor);
    if (divider.divide(n) != n / divisor)
        fail_msg("%u / %u gives %u", n, divisor, divider.divide(n));
}

extern "C" void test_division_by_multiplication(void **);

void test_division_by_multiplication(void **) {
    const uint32_t last = 0x7fffffff;
    uint64_t state = 7;
    // Every small divisor, the powers of two and their neighbours, and divisors all over the range.
    for (uint32_t round = 1; round < 6000; round++) {
        uint32_t divisor = round;
        if (round >= 4000) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            divisor = (uint32_t)(state >> 33) | 1;
        } else if (round >= 3900) {
            divisor = (1u << (round - 3900) / 4 % 31) + (round % 4) - 1;
            divisor = divisor == 0 || divisor > last ? last : divisor;
        }
        for (uint32_t edge = 0; edge < 4; edge++) {
            uint64_t multiple = (uint64_t)divisor * (edge + 1);
            uint64_t highest = last / divisor * (uint64_t)divisor;
            check(divisor, edge);
            check(divisor, last - edge);
            if (multiple <= last) {
                check(divisor, (uint32_t)multiple);
                check(divisor, (uint32_t)multiple - 1);
            }
            check(divisor, (uint32_t)highest);
            if (highest > 0)
                check(divisor, (uint32_t)highest - 1);
            state = state * 6364136223846793005u + 1442695040888963407u;
            check(divisor, (uint32_t)(state >> 33));
        }
    }
}
