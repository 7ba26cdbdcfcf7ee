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
        if constexpr (rows > 1 && lean) {
            // What a thread has room for and not, it computes all the same.
            if (length <= 32 * (elements + elements / 2))
                return run(RowShape<32, 128, 4, elements + elements / 2, true>{});
            if (few < elements && length <= 256 * few)
                return run(RowShape<256, 256, block_blocks, few, true>{});
        }
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

    /// How many elements of a pack one access moves, of elements of this type.
    template <class Element>
    static constexpr int moved_at_once = pack *(int)sizeof(Element) > 16 ? 16 / (int)sizeof(Element)
                                                                         : pack;

    /// `empty` in the place of elements behind the end. The row may be of another format, with numbers
    /// in the same places.
    template <class From>
    static ND_BOTH void load(const From &format, const typename From::Stored *row, int length,
                             int lane, Number empty, Number *ret_x) {
        constexpr int step = moved_at_once<typename From::Stored>;
        typedef Pack<typename From::Stored, step> Moved;
        ND_UNROLL
        for (int i = 0; i < packs; i++) {
            int position = (i * Shape::lanes + lane) * pack;
            if (position < length) {
                ND_UNROLL
                for (int first = 0; first < pack; first += step) {
                    Moved moved = *(const Moved *)(row + position + first);
                    ND_UNROLL
                    for (int e = 0; e < step; e++)
                        ret_x[i * pack + first + e] = format.load(moved.element[e]);
                }
            } else {
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    ret_x[i * pack + e] = empty;
            }
        }
    }

    /// What `value` makes of each element's number in the thread and its position.
    template <class Into, class Value>
    static ND_BOTH void store(const Into &format, typename Into::Stored *row, int length, int lane,
                              const Value &value) {
        ND_UNROLL
        for (int i = 0; i < packs; i++) {
            int position = (i * Shape::lanes + lane) * pack;
            if (position < length)
                store_pack(format, row + position,
                           [&](int e) { return value(i * pack + e, position + e); });
        }
    }
    /// A pack of what `value` makes of each place in it.
    template <class Into, class Value>
    static ND_BOTH void store_pack(const Into &format, typename Into::Stored *to,
                                   const Value &value) {
        constexpr int step = moved_at_once<typename Into::Stored>;
        typedef Pack<typename Into::Stored, step> Moved;
        ND_UNROLL
        for (int first = 0; first < pack; first += step) {
            Moved moved;
            ND_UNROLL
            for (int e = 0; e < step; e++)
                moved.element[e] = format.store(value(first + e));
            *(Moved *)(to + first) = moved;
        }
    }
};

} // namespace nd_cuda
#endif
