// Rows whose elements a warp or a block keeps in registers: each is read once and written once, by
// packs of 16 bytes where rows lie so.
//
// A Format says what elements are in memory and in registers; a RowShape, how many threads keep a row
// and how many elements each.
#ifndef ND_KERNELS_CUDA_HELD_CUH
#define ND_KERNELS_CUDA_HELD_CUH
#include "kernels/cuda/halves.cuh"

namespace nd_cuda {

/// Floats as they are.
template <class T> struct Plain {
    typedef T Stored;
    typedef T Number;
    ND_BOTH T load(T x) const {
        return x;
    }
    ND_BOTH T store(T y) const {
        return y;
    }
};

/// f16 and bf16, in f32.
struct Halves : HalfFormat {
    typedef uint16_t Stored;
    typedef float Number;
    using HalfFormat::HalfFormat;
};

template <int lanes_, int threads_, int least_blocks_, int elements_, bool packed_>
struct RowShape {
    static constexpr int lanes = lanes_;               ///< threads of a row
    static constexpr int threads = threads_;           ///< of a block
    static constexpr int least_blocks = least_blocks_; ///< of a multiprocessor
    static constexpr int elements = elements_;         ///< of a thread, at most
    static constexpr bool packed = packed_;
    static constexpr int longest = lanes * elements; ///< row
};

/// Rows shorter than this waste most lanes of a warp.
constexpr int64_t shortest_held = 64;

/// run(shape) for the shape whose threads keep `rows` rows of this length; ND_ERROR_UNSUPPORTED where
/// it is too short or too long. A thread keeps up to 32 numbers, of f64 8, whose functions take many
/// registers.
template <class Format, int rows, class Run>
nd_status with_row_shape(int64_t length, bool packed, const Run &run) {
    constexpr bool lean = sizeof(typename Format::Number) == sizeof(float);
    constexpr int elements = (lean ? 32 : 8) / rows;
    constexpr int few =
        elements / 4 * sizeof(typename Format::Stored) >= 16 ? elements / 4 : elements;
    constexpr int warp_blocks = lean ? 6 : 4, block_blocks = lean ? 3 : 2;
    if (length < shortest_held)
        return ND_ERROR_UNSUPPORTED;
    if (packed) {
        if (length <= 32 * few)
            return run(RowShape<32, 128, warp_blocks, few, true>{});
        if (length <= 32 * elements)
            return run(RowShape<32, 128, warp_blocks, elements, true>{});
        if (length <= 256 * elements)
            return run(RowShape<256, 256, block_blocks, elements, true>{});
        constexpr int threads = lean ? 1024 : 512;
        if (length <= threads * elements)
            return run(RowShape<threads, threads, 1, elements, true>{});
        return ND_ERROR_UNSUPPORTED;
    }
    if (length <= 32 * elements)
        return run(RowShape<32, 128, warp_blocks, elements, false>{});
    if (length <= 256 * elements)
        return run(RowShape<256, 256, 2, elements, false>{});
    if (length <= 512 * elements)
        return run(RowShape<512, 512, 1, elements, false>{});
    return ND_ERROR_UNSUPPORTED;
}

/// Whether rows of `length` elements, from an address on, by strides that are multiples of one, can be
/// moved by packs.
template <class Stored> bool rows_are_packed(const void *data, int64_t length, int64_t stride) {
    constexpr int64_t pack = 16 / (int64_t)sizeof(Stored);
    return (uintptr_t)data % 16 == 0 && length % pack == 0 && stride % pack == 0;
}

/// How a thread's elements lie in a row: pack number lane, lane + lanes, …
template <class Format, class Shape> struct HeldRow {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    static_assert(!Shape::packed || Shape::elements * sizeof(Stored) % 16 == 0, "whole packs");
    static constexpr int pack = Shape::packed ? 16 / (int)sizeof(Stored) : 1;
    static constexpr int packs = Shape::elements / pack;

    /// `empty` in the place of elements behind the end.
    static ND_BOTH void load(const Format &format, const Stored *row, int length, int lane,
                             Number empty, Number *ret_x) {
        ND_UNROLL
        for (int i = 0; i < packs; i++) {
            int position = (i * Shape::lanes + lane) * pack;
            if (position < length) {
                Pack<Stored, pack> moved = *(const Pack<Stored, pack> *)(row + position);
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    ret_x[i * pack + e] = format.load(moved.element[e]);
            } else {
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    ret_x[i * pack + e] = empty;
            }
        }
    }

    /// What `value` makes of each element's number in the thread and its position.
    template <class Value>
    static ND_BOTH void store(const Format &format, Stored *row, int length, int lane,
                              const Value &value) {
        ND_UNROLL
        for (int i = 0; i < packs; i++) {
            int position = (i * Shape::lanes + lane) * pack;
            if (position < length) {
                Pack<Stored, pack> moved;
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    moved.element[e] = format.store(value(i * pack + e, position + e));
                *(Pack<Stored, pack> *)(row + position) = moved;
            }
        }
    }
};

} // namespace nd_cuda
#endif
