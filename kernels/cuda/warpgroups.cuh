// Products of 16-bit floats by four warps together, from shared memory into registers, beside which the
// warps go on (wgmma, PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").
//
// Operands lie in rows of 128 bytes as ring_tile.cuh says, from a multiple of 1,024 bytes on. wgmma exists
// in code for sm_90a alone: elsewhere these kernels trap, and are not launched. A host has no such units:
// there products come at the two worst times at once. A thread reads its operands when they begin and when
// they are waited for, by the addresses that the hardware would make of the descriptors; where these two
// differ, sums become NaN.
#ifndef ND_KERNELS_CUDA_WARPGROUPS_CUH
#define ND_KERNELS_CUDA_WARPGROUPS_CUH
#include "kernels/cuda/tensor.cuh"
#include <math.h>

#if defined(__CUDACC__) && !defined(CUDART_FAKE)
#ifndef ND_CODE_FOR_SM_90A
#define ND_CODE_FOR_SM_90A \
    0 // bazel/cuda_library.bzl says it of the files that it compiles for sm_90a
#endif
#else
#define ND_CODE_FOR_SM_90A 1
#endif

namespace nd_cuda {

constexpr int warpgroup_threads = 128;
/// Lines that a warpgroup multiplies of the left operand, and k of one instruction.
constexpr int warpgroup_lines = 64, warpgroup_depth = 16;

/// A matrix in shared memory as a descriptor says it (PTX ISA, "Matrix Descriptor Format"): 16 bytes are
/// the unit of its numbers.
template <bool along_k> struct SharedMatrix {
    /// Bytes between panels of 64 lines (unused with k along the rows), and between groups of 8 rows.
    static constexpr uint32_t leading = along_k ? 16 : 8192, stride = 1024;
    /// Bytes to the next 16 k.
    static constexpr uint32_t further = along_k ? 32 : 2048;

    static ND_BOTH uint64_t descriptor(uint32_t address) {
        constexpr uint64_t swizzle_of_128_bytes = 1;
        return (uint64_t)(address >> 4) | (uint64_t)(leading >> 4) << 16 |
               (uint64_t)(stride >> 4) << 32 | swizzle_of_128_bytes << 62;
    }
#ifndef __CUDA_ARCH__
    /// An element of the matrix of 16 k that begins there.
    static uint16_t element(uintptr_t begin, int line, int k) {
        const uint32_t inside =
            along_k ? (uint32_t)(line / 8) * stride + (uint32_t)(line % 8 * 128 + k * 2)
                    : (uint32_t)(line / 64) * leading + (uint32_t)(line % 64 * 2) +
                          (uint32_t)(k / 8) * stride + (uint32_t)(k % 8 * 128);
        const uintptr_t address = begin + inside;
        uint16_t found;
        memcpy(&found, (const void *)(address ^ (address >> 7 & 7) << 4), sizeof found);
        return found;
    }
#endif
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The names of 64 or 128 registers, and the sums that they are.
#define ND_NAMES_OF_TEN(tens)                                                               \
    "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens \
    "6, %" #tens "7, %" #tens "8, %" #tens "9, "
#define ND_NAMES_BELOW_60                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " ND_NAMES_OF_TEN(1) ND_NAMES_OF_TEN(2) \
        ND_NAMES_OF_TEN(3) ND_NAMES_OF_TEN(4) ND_NAMES_OF_TEN(5)
#define ND_64_NAMES ND_NAMES_BELOW_60 "%60, %61, %62, %63"
#define ND_128_NAMES                                                                              \
    ND_NAMES_BELOW_60 ND_NAMES_OF_TEN(6) ND_NAMES_OF_TEN(7) ND_NAMES_OF_TEN(8) ND_NAMES_OF_TEN(9) \
        ND_NAMES_OF_TEN(10) ND_NAMES_OF_TEN(11) "%120, %121, %122, %123, "                        \
                                                "%124, %125, %126, %127"
#define ND_4_SUMS(j) "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
#define ND_16_SUMS(j) ND_4_SUMS(j), ND_4_SUMS(j + 1), ND_4_SUMS(j + 2), ND_4_SUMS(j + 3)
#define ND_64_SUMS(j) ND_16_SUMS(j), ND_16_SUMS(j + 4), ND_16_SUMS(j + 8), ND_16_SUMS(j + 12)

// sum += 64 lines of a times those of b for 16 k; operands with lines along their rows are turned.
#define ND_WGMMA(shape, type, names, a, b, plus, a_turned, b_turned, ...)                         \
    asm volatile("{\n.reg .pred plus;\nsetp.ne.b32 plus, %" #plus ", 0;\n"                        \
                 "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" names "}, %" #a \
                 ", %" #b ", plus, 1, 1, %" #a_turned ", %" #b_turned ";\n}"                      \
                 : __VA_ARGS__                                                                    \
                 : "l"(of_a), "l"(of_b), "r"(1), "n"(a_along_k ? 0 : 1), "n"(b_along_k ? 0 : 1))

template <bool brain, bool a_along_k, bool b_along_k>
__device__ __forceinline__ void multiply_matrices(float (&sum)[16][4], uint64_t of_a,
                                                  uint64_t of_b) {
    if constexpr (brain)
        ND_WGMMA("m64n128k16", "bf16", ND_64_NAMES, 64, 65, 66, 67, 68, ND_64_SUMS(0));
    else
        ND_WGMMA("m64n128k16", "f16", ND_64_NAMES, 64, 65, 66, 67, 68, ND_64_SUMS(0));
}
template <bool brain, bool a_along_k, bool b_along_k>
__device__ __forceinline__ void multiply_matrices(float (&sum)[32][4], uint64_t of_a,
                                                  uint64_t of_b) {
    if constexpr (brain)
        ND_WGMMA("m64n256k16", "bf16", ND_128_NAMES, 128, 129, 130, 131, 132, ND_64_SUMS(0),
                 ND_64_SUMS(16));
    else
        ND_WGMMA("m64n256k16", "f16", ND_128_NAMES, 128, 129, 130, 131, 132, ND_64_SUMS(0),
                 ND_64_SUMS(16));
}

#undef ND_NAMES_OF_TEN
#undef ND_NAMES_BELOW_60
#undef ND_64_NAMES
#undef ND_128_NAMES
#undef ND_4_SUMS
#undef ND_16_SUMS
#undef ND_64_SUMS
#undef ND_WGMMA

#endif

/// A thread's sums of a warpgroup's 64 lines by `columns`, and the products that are on their way to them, in
/// groups of `depth` k, `most` at a time. From start() up to the wait for the last group nobody touches
/// the sums.
template <bool brain, bool a_along_k, bool b_along_k, int columns, int depth, int most>
struct ProductsUnderWay {
    float sum[columns / 8][4];
#ifndef __CUDA_ARCH__
    struct Group {
        const uint16_t *a, *b;
        uint64_t read; ///< what it was that lay there when it began
    } group[most];
    int count, thread;
#endif

    ND_BOTH void begin(int of_thread) {
        ND_UNROLL
        for (int j = 0; j < columns / 8; j++) {
            ND_UNROLL
            for (int of = 0; of < 4; of++)
                sum[j][of] = 0;
        }
#ifndef __CUDA_ARCH__
        count = 0;
        thread = of_thread;
#else
        (void)of_thread;
#endif
    }
    /// What the thread has copied to shared memory, and waited for, is there for products behind the next
    /// barrier: what reads for wgmma sees only what was fenced so.
    ND_BOTH void show_operands() const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    }
    /// A group: the products of a's 64 lines and b's `columns`, which begin there.
    ND_BOTH void start(const uint16_t *a, const uint16_t *b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        typedef SharedMatrix<a_along_k> Left;
        typedef SharedMatrix<b_along_k> Right;
        const uint64_t of_a = Left::descriptor((uint32_t)__cvta_generic_to_shared(a));
        const uint64_t of_b = Right::descriptor((uint32_t)__cvta_generic_to_shared(b));
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        ND_UNROLL
        for (int step = 0; step < depth / warpgroup_depth; step++)
            multiply_matrices<brain, a_along_k, b_along_k>(sum, of_a + step * (Left::further >> 4),
                                                           of_b + step * (Right::further >> 4));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif defined(__CUDA_ARCH__)
        (void)a, (void)b;
        __trap();
#else
        if (count == most)
            abort();
        Operands operands;
        group[count++] = Group{a, b, read(a, b, &operands)};
#endif
    }
    /// Until no more than the last `pending` groups are on their way.
    template <int pending> ND_BOTH void wait() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
        if constexpr (pending == 0) {
            // Nothing is made of the sums before.
            ND_UNROLL
            for (int j = 0; j < columns / 8; j++)
                asm volatile(""
                             : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                             :
                             : "memory");
        }
#elif !defined(__CUDA_ARCH__)
        for (; count > pending; count--) {
            add(group[0]);
            memmove(group, group + 1, (size_t)(count - 1) * sizeof *group);
        }
#endif
    }

#ifndef __CUDA_ARCH__
    /// What a thread's products are made of: two rows, and of every 8 columns two.
    struct Operands {
        float a[2][depth], b[columns / 4][depth];
    };
    uint64_t read(const uint16_t *a, const uint16_t *b, Operands *ret_operands) const {
        const int lane = thread % warp_threads;
        const int row = thread % warpgroup_threads / warp_threads * 16 + lane / 4;
        uint64_t all = 0;
        const auto number = [&all](uint16_t bits) {
            all = (all ^ bits) * 0x100000001b3u;
            return half_of<brain>(bits, 0);
        };
        for (int k = 0; k < depth; k++) {
            const unsigned step = (unsigned)(k / warpgroup_depth);
            const uintptr_t from_a = (uintptr_t)a + step * SharedMatrix<a_along_k>::further;
            const uintptr_t from_b = (uintptr_t)b + step * SharedMatrix<b_along_k>::further;
            for (int lower = 0; lower < 2; lower++)
                ret_operands->a[lower][k] = number(
                    SharedMatrix<a_along_k>::element(from_a, row + 8 * lower, k % warpgroup_depth));
            for (int column = 0; column < columns / 4; column++)
                ret_operands->b[column][k] = number(SharedMatrix<b_along_k>::element(
                    from_b, column / 2 * 8 + lane % 4 * 2 + column % 2, k % warpgroup_depth));
        }
        return all;
    }
    void add(const Group &of) {
        Operands operands;
        const bool same = read(of.a, of.b, &operands) == of.read;
        for (int j = 0; j < columns / 8; j++)
            for (int i = 0; i < 4; i++) {
                float products = same ? 0 : NAN;
                for (int k = 0; k < depth; k++)
                    products += operands.a[i / 2][k] * operands.b[2 * j + i % 2][k];
                sum[j][i] += products;
            }
    }
#endif
};

} // namespace nd_cuda
#endif
