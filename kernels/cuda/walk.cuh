// From the number of an element to its place in memory, for any strides.
//
// Walk<operands> is filled on the host from a call (or from some of its axes) and copied to the
// kernel with the body. Division by the sizes is the cost of a strided access, so when the numbers
// fit in 31 bits it is done by multiplication.
#ifndef ND_KERNELS_CUDA_WALK_CUH
#define ND_KERNELS_CUDA_WALK_CUH
#include "kernels/cuda/grid.cuh"

namespace nd_cuda {

/// Exact division of 0 <= n < 2^31 by 1 <= divisor < 2^31 (Granlund and Montgomery 1994): with
/// 2^shift the power of two at or above the divisor, q = (n + high word of n * multiplier) >>
/// shift.
struct Divider {
    uint32_t divisor;
    uint32_t multiplier;
    uint32_t shift;

    void set(uint32_t by) {
        divisor = by;
        shift = 0;
        while (((uint64_t)1 << shift) < by)
            shift++;
        multiplier = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << shift) - by)) / by + 1);
    }
    ND_BOTH uint32_t divide(uint32_t n) const {
        uint32_t high = (uint32_t)(((uint64_t)n * multiplier) >> 32);
        return (high + n) >> shift;
    }
};

template <int operands> struct Walk {
    int ndim;
    bool narrow; ///< every element's number is below 2^31
    int64_t count;
    int64_t shape[ND_MAX_DIMS];
    Divider dividers[ND_MAX_DIMS];
    int64_t strides[operands][ND_MAX_DIMS];

    Walk() : ndim(0), narrow(true), count(1), shape(), dividers(), strides() {
    }

    /// All axes of a call, operands `first` ... `first + operands - 1`.
    explicit Walk(const nd_kernel_call *call, int first = 0) : Walk() {
        for (int axis = 0; axis < call->ndim; axis++) {
            int64_t stride[operands];
            for (int operand = 0; operand < operands; operand++)
                stride[operand] = call->operand[first + operand].strides[axis];
            add_axis(call->shape[axis], stride);
        }
    }

    /// Axes are added from the outermost to the innermost.
    void add_axis(int64_t size, const int64_t stride[operands]) {
        shape[ndim] = size;
        for (int operand = 0; operand < operands; operand++)
            strides[operand][ndim] = stride[operand];
        count *= size;
        narrow = count < ((int64_t)1 << 31);
        if (size > 0 && size < ((int64_t)1 << 31))
            dividers[ndim].set((uint32_t)size);
        ndim++;
    }

    /// The same, but as one with the axis before where they are walked as one, and none of size 1.
    void join_axis(int64_t size, const int64_t stride[operands]) {
        bool joins = ndim > 0;
        for (int operand = 0; operand < operands; operand++)
            joins = joins && strides[operand][ndim - 1] == stride[operand] * size;
        if (size == 1)
            return;
        if (joins) {
            size *= shape[--ndim];
            count /= shape[ndim] != 0 ? shape[ndim] : 1;
        }
        add_axis(size, stride);
    }

    /// Offsets in elements of element `index`, one per operand.
    ND_BOTH void offsets(int64_t index, int64_t ret_offset[operands]) const {
        ND_UNROLL
        for (int operand = 0; operand < operands; operand++)
            ret_offset[operand] = 0;
        int64_t outermost;
        if (narrow) {
            uint32_t rest = (uint32_t)index;
            for (int axis = ndim - 1; axis > 0; axis--) {
                uint32_t quotient = dividers[axis].divide(rest);
                int64_t position = rest - quotient * dividers[axis].divisor;
                rest = quotient;
                ND_UNROLL
                for (int operand = 0; operand < operands; operand++)
                    ret_offset[operand] += position * strides[operand][axis];
            }
            outermost = rest;
        } else {
            int64_t rest = index;
            ND_ROLLED
            for (int axis = ndim - 1; axis > 0; axis--) {
                int64_t quotient = rest / shape[axis];
                int64_t position = rest - quotient * shape[axis];
                rest = quotient;
                ND_UNROLL
                for (int operand = 0; operand < operands; operand++)
                    ret_offset[operand] += position * strides[operand][axis];
            }
            outermost = rest;
        }
        // What is left is the position along the outermost axis: no division is needed for it.
        if (ndim > 0) {
            ND_UNROLL
            for (int operand = 0; operand < operands; operand++)
                ret_offset[operand] += outermost * strides[operand][0];
        }
    }

    ND_BOTH int64_t offset(int64_t index) const {
        static_assert(operands == 1, "offset() is for one operand");
        int64_t result[operands];
        offsets(index, result);
        return result[0];
    }

    /// True when the elements of every operand lie one after another.
    bool contiguous() const {
        int64_t expected = 1;
        for (int axis = ndim - 1; axis >= 0; axis--) {
            if (shape[axis] != 1)
                for (int operand = 0; operand < operands; operand++)
                    if (strides[operand][axis] != expected)
                        return false;
            expected *= shape[axis];
        }
        return true;
    }
};

} // namespace nd_cuda
#endif
