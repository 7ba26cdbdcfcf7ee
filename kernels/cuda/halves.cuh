// 16-bit floats under the elementwise kernels: a row is computed in f32 and rounded once.
//
// Elements are moved as their bits, so packs are what they are for other types of 16 bits. Which of
// the two formats they are is known when the kernel runs, the same for all threads: one kernel for
// both. Rows that ask the math library are called, not inlined once per element of a pack.
#ifndef ND_KERNELS_CUDA_HALVES_CUH
#define ND_KERNELS_CUDA_HALVES_CUH
#include "kernels/cuda/elementwise.cuh"
#include "kernels/half.h"

namespace nd_cuda {

/// The conversions of half.h. Where a GPU has an instruction it gives the same bits, but for those of
/// a NaN.
struct HalfFormat {
    bool brain; ///< bf16, else f16

    explicit HalfFormat(nd_dtype dtype) : brain(dtype == ND_BF16) {
    }

    ND_BOTH float load(uint16_t x) const {
#ifdef __CUDA_ARCH__
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
        return brain ? nd__bf16_to_f32(x) : wide;
#else
        return brain ? nd__bf16_to_f32(x) : nd__f16_to_f32(x);
#endif
    }
    ND_BOTH uint16_t store(float y) const {
#ifdef __CUDA_ARCH__
        uint16_t half, bfloat;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(y));
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bfloat) : "f"(y));
        return brain ? bfloat : half;
#else
        return brain ? nd__f32_to_bf16(y) : nd__f32_to_f16(y);
#endif
    }
    /// A truth value is what it is.
    ND_BOTH uint8_t store(uint8_t y) const {
        return y;
    }
};

template <class Row, class... T>
ND_BOTH_CALLED auto called(Row row, T... x) -> decltype(row(x...)) {
    return row(x...);
}

/// A row of f32 on the bits of 16-bit floats.
template <class Row> struct OnHalves {
    Row row;
    HalfFormat format;

    template <class... T> ND_BOTH auto operator()(T... x) const {
        if constexpr (Row::cost >= 8)
            return format.store(called(row, format.load(x)...));
        else
            return format.store(row(format.load(x)...));
    }
};
template <class Row> OnHalves<Row> on_halves(const Row &row, HalfFormat format) {
    return OnHalves<Row>{row, format};
}

} // namespace nd_cuda
#endif
