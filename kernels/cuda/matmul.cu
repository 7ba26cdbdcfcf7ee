// MATMUL without cuBLAS: any strides, any batch axes.
//
// A block computes a tile of 64 x 64 results; a thread keeps 4 x 4 of them in registers, sixteen
// rows and columns apart, so that neighbouring threads read neighbouring columns. Operands come
// through the cache. The backend prefers cuBLAS; this kernel is for where that is missing and for
// strides that cuBLAS cannot express.
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

template <class T> struct Matmul {
    static constexpr int tile = 64, side = 16, own = tile / side;
    const T *a, *b;
    T *out;
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
        const T *rows[own], *columns[own];
        ND_UNROLL
        for (int i = 0; i < own; i++) {
            int64_t row = first_row + i * side, column = first_column + i * side;
            rows[i] = a + offset[1] + (row < m ? row : m - 1) * a_row;
            columns[i] = b + offset[2] + (column < n ? column : n - 1) * b_column;
        }
        T sum[own][own] = {};
        for (int64_t inner = 0; inner < k; inner++) {
            T x[own], y[own];
            ND_UNROLL
            for (int i = 0; i < own; i++) {
                x[i] = rows[i][inner * a_column];
                y[i] = columns[i][inner * b_row];
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
                    T *to = out + offset[0] + row * out_row + column;
                    *to = accumulate ? *to + sum[i][j] : sum[i][j];
                }
            }
        }
    }
};

template <class T>
static nd_status run_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    Matmul<T> body{(const T *)call->operand[1].data,
                   (const T *)call->operand[2].data,
                   (T *)call->operand[0].data,
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

} // namespace nd_cuda

nd_status nd__cuda_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_matmul<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_matmul<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
