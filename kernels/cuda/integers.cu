// Elementwise rows of i8, i16, u16 and u32, computed as i64, and of u64.
//
// What a row makes of integers as i64 has the low bits that it has in the narrower type: arithmetic
// wraps, and quotients, comparisons, shifts by too much and powers are those of the numbers. So one
// kernel serves four dtypes, which it is told when it runs. One thread makes one element, found by
// strides: right, and not fast. u8, i32 and i64 have kernels of their own (unary.cu, binary.cu).
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/storage.cuh"
#include "kernels/cuda/walk.cuh"
#include <type_traits>

namespace nd_cuda {

/// Elements of i8, i16, u16 and u32.
struct Narrow {
    typedef int64_t Element;
    nd_dtype dtype;

    ND_BOTH int64_t load(const void *data, int64_t index) const {
        switch (dtype) {
        case ND_I8:
            return ((const int8_t *)data)[index];
        case ND_I16:
            return ((const int16_t *)data)[index];
        case ND_U16:
            return ((const uint16_t *)data)[index];
        default:
            return ((const uint32_t *)data)[index];
        }
    }
    ND_BOTH void store(void *data, int64_t index, int64_t value) const {
        switch (dtype) {
        case ND_I8:
            ((uint8_t *)data)[index] = (uint8_t)value;
            return;
        case ND_I16:
        case ND_U16:
            ((uint16_t *)data)[index] = (uint16_t)value;
            return;
        default:
            ((uint32_t *)data)[index] = (uint32_t)value;
        }
    }
    ND_BOTH void store(void *data, int64_t index, uint8_t truth) const {
        ((uint8_t *)data)[index] = truth;
    }
    int64_t number_of(const nd_kernel_call *call, int which) const {
        switch (dtype) {
        case ND_I8:
            return number<int8_t>(call, which);
        case ND_I16:
            return number<int16_t>(call, which);
        case ND_U16:
            return number<uint16_t>(call, which);
        default:
            return number<uint32_t>(call, which);
        }
    }
};

/// Elements of u64.
struct Unsigned64 {
    typedef uint64_t Element;

    ND_BOTH uint64_t load(const void *data, int64_t index) const {
        return ((const uint64_t *)data)[index];
    }
    ND_BOTH void store(void *data, int64_t index, uint64_t value) const {
        ((uint64_t *)data)[index] = value;
    }
    ND_BOTH void store(void *data, int64_t index, uint8_t truth) const {
        ((uint8_t *)data)[index] = truth;
    }
    uint64_t number_of(const nd_kernel_call *call, int which) const {
        return number<uint64_t>(call, which);
    }
};

template <class Row, class Storage, int inputs> struct IntegerElement {
    Row row;
    Storage storage;
    void *out;
    const void *a, *b;
    Walk<1 + inputs> walk;

    ND_BOTH void operator()(int64_t index) const {
        int64_t offset[1 + inputs];
        walk.offsets(index, offset);
        typename Storage::Element x = storage.load(a, offset[1]);
        if constexpr (inputs == 2)
            storage.store(out, offset[0], row(x, storage.load(b, offset[2])));
        else
            storage.store(out, offset[0], row(x));
    }
};

template <int inputs, class Storage>
static auto runner(const nd_cuda_queue *queue, const nd_kernel_call *call, Storage storage) {
    return [=](const auto &row) {
        Walk<1 + inputs> walk(call);
        const nd_operand *operand = call->operand;
        IntegerElement<std::decay_t<decltype(row)>, Storage, inputs> body{
            row, storage, operand[0].data, operand[1].data, operand[inputs].data, walk};
        return run_elements(queue, walk.count, body);
    };
}

/// run(storage) for the storage of a dtype.
template <class Run> static nd_status with_storage(nd_dtype dtype, const Run &run) {
    switch (dtype) {
    case ND_I8:
    case ND_I16:
    case ND_U16:
    case ND_U32:
        return run(Narrow{dtype});
    case ND_U64:
        return run(Unsigned64{});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

} // namespace nd_cuda

nd_status nd_cuda::integers_unary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_storage(call->operand[0].dtype, [=](auto storage) {
        return with_unary(call->op, storage.number_of(call, 0), storage.number_of(call, 1),
                          runner<1>(queue, call, storage));
    });
}

nd_status nd_cuda::integers_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_storage(call->operand[1].dtype, [=](auto storage) {
        typedef typename decltype(storage)::Element T;
        return with_predicate<T>(call->op, runner<1>(queue, call, storage));
    });
}

nd_status nd_cuda::integers_binary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_storage(call->operand[0].dtype, [=](auto storage) {
        return with_binary(call->op, storage.number_of(call, 0), storage.number_of(call, 1),
                           runner<2>(queue, call, storage));
    });
}

nd_status nd_cuda::integers_compare(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_storage(call->operand[1].dtype, [=](auto storage) {
        typedef typename decltype(storage)::Element T;
        return with_compare<T>(call->op, runner<2>(queue, call, storage));
    });
}
