// ATTENTION in one kernel: no tensor of scores is written.
//
// A block attends with a run of queries. Keys come by tiles through shared memory; of each query the
// largest score so far, the sum of the powers below it and the values weighted with them are kept, and
// scaled when a larger score comes (Milakov, Gimelshein 2018; Dao et al. 2022). A thread makes every
// 16th row and every 16th key of a tile's scores, and every 16th row of the result by packs of columns.
// f16 and bf16 are computed in f32.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// Numbers 16 bytes long.
template <class Number> using Quad = Pack<Number, 16 / (int)sizeof(Number)>;

/// A matrix of a batch: where its first row is, and how its rows lie.
template <class Stored> struct Matrix {
    const Stored *data;
    int64_t stride;
    int rows, columns;
    bool packed; ///< every row begins at a multiple of 16 bytes and is whole packs long
};

/// `head_` is at least the queries' and the values' length.
template <class Format, int head_, int rows_, int keys_> struct Attention {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    static constexpr int threads = 256, phases = 5, least_blocks = 2;
    static constexpr int head = head_, rows = rows_, keys = keys_;
    static constexpr int side = 16; ///< of the square of threads
    static constexpr int quad = 16 / (int)sizeof(Number);
    static constexpr int pitch = head + quad, score_pitch = keys + quad;
    static constexpr int my_rows = rows / side, my_keys = keys / side;
    static constexpr int width =
        head / side < quad ? head / side : quad; ///< of a piece of the result
    static constexpr int pieces = head / side / width;
    static constexpr int row_threads =
        threads / rows; ///< that find a row's largest score and its sum
    typedef Pack<Number, width> Piece;

    struct alignas(16) Shared {
        Number queries[rows * pitch];
        Number others[keys * pitch]; ///< keys, then values
        Number scores[rows * score_pitch];
        Number fall[rows];    ///< what is left of what was added up before
        Number largest[rows]; ///< score
        Number sums[threads];
    };
    struct Own {
        Piece result[my_rows][pieces];
        Number largest, old, sum;
    };

    Format format;
    Walk<6> batches; ///< out, log_sums, query, key, value, mask
    void *out;
    Number *log_sums;
    const Stored *query, *key, *value;
    const void *mask; ///< or NULL
    bool mask_is_bool, causal, packed;
    int queries, all_keys, length, value_length;
    int64_t query_stride, key_stride, value_stride, out_stride, mask_row, mask_column;
    Number scale;
    int runs; ///< of queries in a batch

    ND_BOTH int64_t steps(int64_t block) const {
        int last = ((int)(block % runs) + 1) * rows;
        return divide_up(causal && last < all_keys ? last : all_keys, keys);
    }
    ND_BOTH void begin(int64_t, int, Own &own) const {
        own.largest = -(Number)INFINITY;
        own.old = own.sum = 0;
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int p = 0; p < pieces; p++)
            ND_UNROLL
        for (int e = 0; e < width; e++)
            own.result[i][p].element[e] = 0;
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own) const {
        int64_t offset[6];
        int first_row = (int)(block % runs) * rows, first_key = (int)step * keys;
        if (number < 3)
            batches.offsets(block / runs, offset);
        if (number == 0) {
            if (step == 0)
                load<rows>({query + offset[2] + first_row * query_stride, query_stride,
                            queries - first_row, length, packed},
                           thread, shared.queries);
            load<keys>({key + offset[3] + first_key * key_stride, key_stride, all_keys - first_key,
                        length, packed},
                       thread, shared.others);
        } else if (number == 1) {
            score(thread, first_row, first_key, offset[5], shared);
        } else if (number == 2) {
            load<keys>({value + offset[4] + first_key * value_stride, value_stride,
                        all_keys - first_key, value_length, packed},
                       thread, shared.others);
            find_largest(thread, shared, own);
        } else if (number == 3) {
            raise(thread, shared, own);
        } else {
            add_values(thread, shared, own);
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Shared &shared, const Own &own) const {
        int64_t offset[6];
        batches.offsets(block / runs, offset);
        int first_row = (int)(block % runs) * rows;
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            int row = thread / side + i * side;
            if (first_row + row >= queries)
                continue;
            Number sum = 0;
            ND_UNROLL
            for (int part = 0; part < row_threads; part++)
                sum += shared.sums[row * row_threads + part];
            if (thread % side == 0) {
                Number log_sum = log_of(sum) + shared.largest[row];
                log_sums[offset[1] + first_row + row] =
                    log_sum == -(Number)INFINITY ? (Number)INFINITY : log_sum;
            }
            Number divisor = sum == 0 ? (Number)1 : sum;
            Stored *to = (Stored *)out + offset[0] + (first_row + row) * out_stride;
            ND_UNROLL
            for (int p = 0; p < pieces; p++) {
                int column = (p * side + thread % side) * width;
                ND_UNROLL
                for (int e = 0; e < width; e++)
                    if (column + e < value_length)
                        to[column + e] = format.store(own.result[i][p].element[e] / divisor);
            }
        }
    }

  private:
    /// A tile of `tile_rows` rows, with zeros beyond the matrix.
    template <int tile_rows>
    ND_BOTH void load(const Matrix<Stored> &from, int thread, Number *tile) const {
        constexpr int pack = 16 / (int)sizeof(Stored);
        constexpr int row_packs = head / pack;
        ND_UNROLL
        for (int i = thread; i < tile_rows * row_packs; i += threads) {
            int row = i / row_packs, column = i % row_packs * pack;
            Pack<Stored, pack> moved = {};
            if (row < from.rows && from.packed) {
                if (column < from.columns)
                    moved = *(const Pack<Stored, pack> *)(from.data + row * from.stride + column);
            } else if (row < from.rows) {
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    if (column + e < from.columns)
                        moved.element[e] = from.data[row * from.stride + column + e];
            }
            ND_UNROLL
            for (int q = 0; q < pack / quad; q++) {
                Quad<Number> wide;
                ND_UNROLL
                for (int e = 0; e < quad; e++)
                    wide.element[e] = format.load(moved.element[q * quad + e]);
                *(Quad<Number> *)(tile + row * pitch + column + q * quad) = wide;
            }
        }
    }

    ND_BOTH Number masked(Number score, int64_t offset, int row, int key_number) const {
        if (row >= queries || key_number >= all_keys || (causal && key_number > row))
            return -(Number)INFINITY;
        if (!mask)
            return score;
        int64_t at = offset + row * mask_row + key_number * mask_column;
        if (mask_is_bool)
            return ((const uint8_t *)mask)[at] ? score : -(Number)INFINITY;
        return score + ((const Number *)mask)[at];
    }

    ND_BOTH void score(int thread, int first_row, int first_key, int64_t mask_offset,
                       Shared &shared) const {
        Number dot[my_rows][my_keys];
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_keys; j++)
            dot[i][j] = 0;
        ND_UNROLL_4
        for (int column = 0; column < head; column += quad) {
            Quad<Number> q[my_rows], k[my_keys];
            ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                q[i] = *(const Quad<Number> *)(shared.queries + (thread / side + i * side) * pitch +
                                               column);
            ND_UNROLL
            for (int j = 0; j < my_keys; j++)
                k[j] = *(const Quad<Number> *)(shared.others + (thread % side + j * side) * pitch +
                                               column);
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                ND_UNROLL
            for (int j = 0; j < my_keys; j++)
                dot[i][j] += q[i].element[e] * k[j].element[e];
        }
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_keys; j++) {
            int row = thread / side + i * side, column = thread % side + j * side;
            shared.scores[row * score_pitch + column] =
                masked(dot[i][j] * scale, mask_offset, first_row + row, first_key + column);
        }
    }

    /// All threads of a row find the same.
    ND_BOTH void find_largest(int thread, const Shared &shared, Own &own) const {
        const Number *row = shared.scores + thread / row_threads * score_pitch;
        own.old = own.largest;
        ND_UNROLL
        for (int i = 0; i < keys; i++)
            own.largest = row[i] > own.largest ? row[i] : own.largest;
    }

    /// A row's scores to their powers; a row that has seen nothing yet has nothing to subtract.
    ND_BOTH void raise(int thread, Shared &shared, Own &own) const {
        int row = thread / row_threads, part = thread % row_threads;
        Number base = own.largest == -(Number)INFINITY ? (Number)0 : own.largest;
        Number fall = exp_of(own.old - base);
        own.sum *= fall;
        ND_UNROLL
        for (int i = 0; i < keys / row_threads; i++) {
            Number *at = shared.scores + row * score_pitch + i * row_threads + part;
            *at = exp_of(*at - base);
            own.sum += *at;
        }
        shared.sums[thread] = own.sum;
        if (part == 0) {
            shared.fall[row] = fall;
            shared.largest[row] = own.largest;
        }
    }

    ND_BOTH void add_values(int thread, const Shared &shared, Own &own) const {
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            Number fall = shared.fall[thread / side + i * side];
            ND_UNROLL
            for (int p = 0; p < pieces; p++)
                ND_UNROLL
            for (int e = 0; e < width; e++)
                own.result[i][p].element[e] *= fall;
        }
        for (int k = 0; k < keys; k += quad) {
            Quad<Number> power[my_rows];
            ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                power[i] = *(const Quad<Number> *)(shared.scores +
                                                   (thread / side + i * side) * score_pitch + k);
            ND_UNROLL
            for (int n = 0; n < quad; n++)
                ND_UNROLL
            for (int p = 0; p < pieces; p++) {
                Piece v = *(const Piece *)(shared.others + (k + n) * pitch +
                                           (p * side + thread % side) * width);
                ND_UNROLL
                for (int i = 0; i < my_rows; i++)
                    ND_UNROLL
                for (int e = 0; e < width; e++)
                    own.result[i][p].element[e] += power[i].element[n] * v.element[e];
            }
        }
    }
};

template <class Format, int head, int rows, int keys>
static nd_status run_tiles(const nd_cuda_queue *queue, const nd_kernel_call *call,
                           const Format &format) {
    typedef Attention<Format, head, rows, keys> Body;
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    constexpr int64_t pack = 16 / (int64_t)sizeof(Stored);
    const nd_operand *operand = call->operand;
    const int64_t *i = call->attrs.i;
    int runs = (int)divide_up(i[0], rows);
    Body body = {format,
                 Walk<6>(call),
                 operand[0].data,
                 (Number *)operand[1].data,
                 (const Stored *)operand[2].data,
                 (const Stored *)operand[3].data,
                 (const Stored *)operand[4].data,
                 operand[5].data,
                 operand[5].dtype == ND_BOOL,
                 i[10] != 0,
                 i[2] % pack == 0 && i[3] % pack == 0,
                 (int)i[0],
                 (int)i[1],
                 (int)i[2],
                 (int)i[3],
                 i[4],
                 i[5],
                 i[6],
                 i[7],
                 i[8],
                 i[9],
                 (Number)call->attrs.f[0],
                 runs};
    for (int which = 2; which < 5; which++) {
        bool fits = (uintptr_t)operand[which].data % 16 == 0 && i[2 + which] % pack == 0;
        for (int axis = 0; axis < call->ndim; axis++)
            fits = fits && operand[which].strides[axis] % pack == 0;
        body.packed = body.packed && fits;
    }
    return run_phases(queue, body.batches.count * runs, body);
}

/// The tiles that fit in 48 KiB of shared memory.
template <class Format>
static nd_status run_attention(const nd_cuda_queue *queue, const nd_kernel_call *call,
                               const Format &format) {
    int64_t most = call->attrs.i[2] > call->attrs.i[3] ? call->attrs.i[2] : call->attrs.i[3];
    if constexpr (sizeof(typename Format::Number) == sizeof(float)) {
        if (most <= 32)
            return run_tiles<Format, 32, 64, 32>(queue, call, format);
        if (most <= 64)
            return run_tiles<Format, 64, 64, 32>(queue, call, format);
        if (most <= 128)
            return run_tiles<Format, 128, 32, 32>(queue, call, format);
    } else {
        if (most <= 64)
            return run_tiles<Format, 64, 32, 16>(queue, call, format);
        if (most <= 128)
            return run_tiles<Format, 128, 16, 16>(queue, call, format);
    }
    return ND_ERROR_UNSUPPORTED;
}

} // namespace nd_cuda

nd_status nd__cuda_attention(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const int64_t *i = call->attrs.i;
    if (i[0] > INT32_MAX / 2 || i[1] > INT32_MAX / 2)
        return ND_ERROR_UNSUPPORTED;
    switch (call->operand[0].dtype) {
    case ND_F32:
        return run_attention(queue, call, Plain<float>());
    case ND_F64:
        return run_attention(queue, call, Plain<double>());
    case ND_F16:
    case ND_BF16:
        return run_attention(queue, call, Halves(call->operand[0].dtype));
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
