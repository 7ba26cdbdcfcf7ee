// MATMUL without cuBLAS: any strides, any batch axes.
//
// A block computes a tile of 64 x 64 results; a thread keeps 4 x 4 of them in registers, sixteen
// rows and columns apart, so that neighbouring threads read neighbouring columns. Operands come
// through the cache. The backend prefers cuBLAS; this kernel is for where that is missing and for
// strides that cuBLAS cannot express.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

template <class Source> struct Matmul {
    typedef typename Source::Element T;
    static constexpr int tile = 64, side = 16, own = tile / side;
    Source a, b, old; ///< old: what out holds before
    void *out;
    nd_dtype dtype;
    Walk<3> batch; ///< out, a, b
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column, out_row;
    bool accumulate;

    int64_t blocks() const {
        return batch.count * divide_up(m, tile) * divide_up(n, tile);
    }

    ND_BOTH void operator()(int64_t block, int thread) const {
        int64_t tiles_across = divide_up(n, tile), tiles_down = divide_up(m, tile);
        int64_t rest = block / tiles_across;
        int64_t first_column = (block - rest * tiles_across) * tile + thread % side;
        int64_t number = rest / tiles_down;
        int64_t first_row = (rest - number * tiles_down) * tile + thread / side;
        int64_t offset[3];
        batch.offsets(number, offset);

        // Beyond the edge a thread computes the last row or column again, and does not store it.
        int64_t rows[own], columns[own];
        ND_UNROLL
        for (int i = 0; i < own; i++) {
            int64_t row = first_row + i * side, column = first_column + i * side;
            rows[i] = offset[1] + (row < m ? row : m - 1) * a_row;
            columns[i] = offset[2] + (column < n ? column : n - 1) * b_column;
        }
        T sum[own][own] = {};
        for (int64_t inner = 0; inner < k; inner++) {
            T x[own], y[own];
            ND_UNROLL
            for (int i = 0; i < own; i++) {
                x[i] = a.at(rows[i] + inner * a_column);
                y[i] = b.at(columns[i] + inner * b_row);
            }
            ND_UNROLL
            for (int i = 0; i < own; i++) {
                ND_UNROLL
                for (int j = 0; j < own; j++)
                    sum[i][j] += x[i] * y[j];
            }
        }
        ND_UNROLL
        for (int i = 0; i < own; i++) {
            ND_UNROLL
            for (int j = 0; j < own; j++) {
                int64_t row = first_row + i * side, column = first_column + j * side;
                if (row < m && column < n) {
                    int64_t to = offset[0] + row * out_row + column;
                    T value = accumulate ? old.at(to) + sum[i][j] : sum[i][j];
                    store_as(out, dtype, to, value);
                }
            }
        }
    }
};

template <class Source>
static nd_status run_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call, const Source &a,
                            const Source &b, const Source &old) {
    const int64_t *i = call->attrs.i;
    Matmul<Source> body{a,
                        b,
                        old,
                        call->operand[0].data,
                        call->operand[0].dtype,
                        Walk<3>(call),
                        i[0],
                        i[1],
                        i[2],
                        i[3],
                        i[4],
                        i[5],
                        i[6],
                        i[7],
                        call->attrs.f[0] != 0};
    return run_threads(queue, body.blocks(), body);
}

template <class T>
static nd_status run_direct(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return run_matmul(queue, call, Direct<T>{(const T *)call->operand[1].data},
                      Direct<T>{(const T *)call->operand[2].data},
                      Direct<T>{(const T *)call->operand[0].data});
}

/// Through a T that holds the dtype, or its low bits.
template <class T>
static nd_status run_erased(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    nd_dtype dtype = call->operand[0].dtype;
    return run_matmul(queue, call, Erased<T>{call->operand[1].data, dtype},
                      Erased<T>{call->operand[2].data, dtype},
                      Erased<T>{call->operand[0].data, dtype});
}

} // namespace nd_cuda

nd_status nd__cuda_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->operand[0].dtype) {
    case ND_F32:
        return run_direct<float>(queue, call);
    case ND_F64:
        return run_direct<double>(queue, call);
    case ND_F16:
    case ND_BF16:
        return run_erased<float>(queue, call);
    case ND_BOOL:
        return ND_ERROR_UNSUPPORTED;
    default:
        return run_erased<uint64_t>(queue, call);
    }
}
