// MATMUL of integers of 8 bits, added up in 32: matmul_integer.
//
// Four bytes along k are one word, and __dp4a adds four products to a sum. It wants both factors with
// a sign: a byte of u8 has 128 taken away by turning its highest bit. Zero points are left out of the
// products: sums of the lines, which another kernel makes before, put that right where a result is
// stored. So everything is exact modulo 2^32. One row or one column is multiplied byte by byte, as it
// is read.
//
// The backend prefers cuBLAS, which has i8 by i8 without zero points alone.
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// Four bytes of a line, or a sum of products of those.
struct Quad {
    uint32_t word;

    Quad() = default;
    ND_BOTH Quad(int value) : word((uint32_t)value) {
    }
    struct Product {
        uint32_t a, b;
    };
    ND_BOTH Product operator*(const Quad &other) const {
        return Product{word, other.word};
    }
    ND_BOTH Quad &operator+=(const Product &factors) {
#ifdef __CUDA_ARCH__
        word = (uint32_t)__dp4a((int)factors.a, (int)factors.b, (int)word);
#else
        for (int byte = 0; byte < 4; byte++)
            word += (uint32_t)((int8_t)(factors.a >> 8 * byte) * (int8_t)(factors.b >> 8 * byte));
#endif
        return *this;
    }
    ND_BOTH Quad &operator+=(const Quad &part) {
        word += part.word;
        return *this;
    }
};

/// Lines of an operand, rows of a or columns of b: bytes, turned to have a sign, and zero points.
struct ByteLines {
    typedef Quad Element;
    const uint8_t *x, *zeros; ///< zeros may be NULL
    uint8_t turn;             ///< 0x80 for u8
    int64_t lines, k, line_stride, k_stride, zero_stride;
    bool by_words; ///< four bytes along k are aligned and whole

    ByteLines(const nd_kernel_call *call, int operand)
        : x((const uint8_t *)call->operand[operand].data),
          zeros((const uint8_t *)call->operand[operand + 2].data),
          turn(call->operand[operand].dtype == ND_U8 ? 0x80 : 0), lines(call->attrs.i[operand - 1]),
          k(call->attrs.i[2]), line_stride(call->attrs.i[operand == 1 ? 3 : 6]),
          k_stride(call->attrs.i[operand == 1 ? 4 : 5]), zero_stride(call->attrs.i[8 + operand]),
          by_words(k_stride == 1 && k % 4 == 0 && (uintptr_t)x % 4 == 0) {
        by_words = by_words && (lines == 1 || line_stride % 4 == 0);
        for (int axis = 0; axis < call->ndim; axis++)
            by_words = by_words && call->operand[operand].strides[axis] % 4 == 0;
    }
    /// Whether zeros need no sums of the other operand's lines.
    bool is_plain() const {
        return !zeros && turn == 0;
    }
    ND_BOTH int byte(int64_t at) const {
        return (int8_t)(x[at] ^ turn);
    }
    ND_BOTH int zero(int64_t offset, int64_t line) const {
        return (int8_t)((zeros ? zeros[offset + line * zero_stride] : 0) ^ turn);
    }
    /// Four bytes from k on, zeros behind the end; `at` is the first one's place.
    ND_BOTH Quad quad(int64_t at, int64_t from) const {
        if (by_words)
            return Quad((int)(*(const uint32_t *)(const void *)(x + at) ^ turn * 0x01010101u));
        uint32_t word = 0;
        ND_UNROLL
        for (int i = 0; i < 4; i++)
            if (from + i < k)
                word |= (uint32_t)(uint8_t)byte(at + i * k_stride) << 8 * i;
        return Quad((int)word);
    }

    template <int width, int slice> struct Reader : GatheredValues<Quad, width, slice> {
        typedef GatheredValues<Quad, width, slice> Base;
        using Base::count, Base::k_of, Base::value;
        int64_t at;   ///< of the line
        int64_t quad; ///< number of the slice's first one
        int64_t end;  ///< of a line that is there

        ND_BOTH void begin(const ByteLines &source, int64_t offset, int64_t first_line,
                           const Tile &tile, int number) {
            this->thread = number;
            const int64_t line = first_line + Base::line();
            at = offset + line * source.line_stride;
            quad = tile.first_k;
            end = line < source.lines ? tile.end_k : 0;
        }
        ND_BOTH void fetch(const ByteLines &source) {
            ND_UNROLL
            for (int i = 0; i < count; i++) {
                const int64_t from = 4 * (quad + k_of(i));
                value[i] =
                    from < 4 * end ? source.quad(at + from * source.k_stride, from) : Quad(0);
            }
            quad += slice;
        }
    };
};

/// Neighbouring threads take what lies closer: bytes of a line, or lines.
static GroupShape shape_for(const ByteLines &read) {
    const int lanes = lanes_for(read.k);
    const bool along = read.k_stride == 1 || read.lines == 1;
    return GroupShape{!along && lanes > 8 ? 8 : lanes, along};
}

/// The sum of the bytes of each line of an operand, of each entry.
template <int operand> struct LineSums {
    typedef uint32_t State;
    ByteLines of;
    Walk<5> batch;
    uint32_t *out;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        const int64_t entry = group / of.lines, line = group - entry * of.lines;
        int64_t offsets[5];
        batch.offsets(entry, offsets);
        const int64_t first = offsets[operand] + line * of.line_stride;
        State sum = 0;
        for (int64_t k = lane; k < of.k; k += lanes)
            sum += (uint32_t)of.byte(first + k * of.k_stride);
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t group, int lane, int, State sum) const {
        if (lane == 0)
            out[group] = sum;
    }
};

/// What becomes of sums of products without zero points. An entry's offset is its number here.
struct IntegerResult {
    typedef Quad Sum;
    uint32_t *out;
    int64_t out_row;
    Walk<5> batch; ///< out, a, b, and their zero points
    ByteLines a, b;
    const uint32_t *row_sums, *column_sums; ///< NULL: the other operand has no zero points

    ND_BOTH int64_t operand_offset(int64_t entry, int operand) const {
        int64_t offsets[5];
        batch.offsets(entry, offsets);
        return offsets[operand];
    }
    ND_BOTH int64_t offset(int64_t entry) const {
        return entry;
    }
    ND_BOTH int64_t left_offset(int64_t entry) const {
        return operand_offset(entry, 1);
    }
    ND_BOTH int64_t right_offset(int64_t entry) const {
        return operand_offset(entry, 2);
    }
    template <int count>
    ND_BOTH void put(int64_t entry, int64_t row, int64_t column, int64_t columns,
                     const Quad *sums) const {
        int64_t offsets[5];
        batch.offsets(entry, offsets);
        const uint32_t a_zero = (uint32_t)a.zero(offsets[3], row);
        const uint32_t row_sum = row_sums ? row_sums[entry * a.lines + row] : 0;
        ND_UNROLL
        for (int j = 0; j < count; j++) {
            const int64_t at = column + j;
            if (at >= columns)
                return;
            const uint32_t b_zero = (uint32_t)b.zero(offsets[4], at);
            const uint32_t column_sum = column_sums ? column_sums[entry * b.lines + at] : 0;
            out[offsets[0] + row * out_row + at] = sums[j].word - a_zero * column_sum -
                                                   b_zero * row_sum +
                                                   (uint32_t)a.k * a_zero * b_zero;
        }
    }
};

/// One row of a, or one column of b: a group of threads for each result.
struct IntegerVector {
    typedef uint32_t State;
    uint32_t *out;
    int64_t out_row;
    Walk<5> batch;
    ByteLines a, b;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t offsets[5];
        const int64_t line = group / b.lines, column = group - line * b.lines;
        const int64_t entry = line / a.lines, row = line - entry * a.lines;
        batch.offsets(entry, offsets);
        const int a_zero = a.zero(offsets[3], row), b_zero = b.zero(offsets[4], column);
        const int64_t a_at = offsets[1] + row * a.line_stride;
        const int64_t b_at = offsets[2] + column * b.line_stride;
        State sum = 0;
        for (int64_t k = lane; k < a.k; k += lanes)
            sum += (uint32_t)((a.byte(a_at + k * a.k_stride) - a_zero) *
                              (b.byte(b_at + k * b.k_stride) - b_zero));
        return sum;
    }
    ND_BOTH State combine(State x, State y) const {
        return x + y;
    }
    ND_BOTH void finish(int64_t group, int lane, int, State sum) const {
        int64_t offsets[5];
        const int64_t line = group / b.lines, column = group - line * b.lines;
        const int64_t entry = line / a.lines, row = line - entry * a.lines;
        batch.offsets(entry, offsets);
        if (lane == 0)
            out[offsets[0] + row * out_row + column] = sum;
    }
};

template <int operand>
static nd_status sum_lines(const nd_cuda_queue *queue, const ByteLines &of, const Walk<5> &batch,
                           uint32_t *out) {
    return run_groups(queue, batch.count * of.lines, shape_for(of),
                      LineSums<operand>{of, batch, out});
}

template <int own>
static nd_status run_tiles_of(const nd_cuda_queue *queue, const IntegerResult &result) {
    typedef FmaTile<ByteLines, ByteLines, IntegerResult, own, own, 8> Body;
    const TileGrid grid(result.batch.count, result.a.lines, result.b.lines,
                        divide_up(result.a.k, 4), Body::rows, Body::columns);
    return run_products<Body, Quad>(queue, grid, result.a, result.b, result);
}

} // namespace nd_cuda

nd_status nd__cuda_matmul_integer(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const ByteLines a(call, 1), b(call, 2);
    const Walk<5> batch(call);
    uint32_t *out = (uint32_t *)call->operand[0].data;
    const int64_t out_row = call->attrs.i[7], results = batch.count * a.lines * b.lines;
    if (a.lines == 1 || b.lines == 1)
        return run_groups(queue, results, shape_for(b.lines == 1 ? a : b),
                          IntegerVector{out, out_row, batch, a, b});
    const int64_t a_sums = b.is_plain() ? 0 : batch.count * a.lines;
    const int64_t b_sums = a.is_plain() ? 0 : batch.count * b.lines;
    Scratch sums(queue, (a_sums + b_sums + 1) * (int64_t)sizeof(uint32_t));
    if (sums.status != ND_OK)
        return sums.status;
    uint32_t *row_sums = (uint32_t *)sums.data, *column_sums = row_sums + a_sums;
    nd_status status = a_sums ? sum_lines<1>(queue, a, batch, row_sums) : ND_OK;
    if (status == ND_OK && b_sums)
        status = sum_lines<2>(queue, b, batch, column_sums);
    if (status != ND_OK)
        return status;
    const IntegerResult result = {
        out, out_row, batch, a, b, a_sums ? row_sums : nullptr, b_sums ? column_sums : nullptr};
    const bool large =
        TileGrid(batch.count, a.lines, b.lines, a.k, 128, 128).tiles() >= queue->multiprocessors;
    return large ? run_tiles_of<8>(queue, result) : run_tiles_of<4>(queue, result);
}
