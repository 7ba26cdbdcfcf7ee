// CREATE: values that depend on nothing but the number of the element, row-major.
//
// Random elements follow kernels/philox.h, so they are those of every other backend; a thread
// computes one Philox block and writes the two or four elements that it holds.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/philox.h"

namespace nd_cuda {

template <class T> struct Fill {
    T *out;
    Walk<1> walk;
    T value;

    ND_BOTH void operator()(int64_t index) const {
        out[walk.offset(index)] = value;
    }
};

template <class T> struct Arange {
    T *out;
    Walk<1> walk;
    double start, step;

    ND_BOTH void operator()(int64_t index) const {
        out[walk.offset(index)] = convert<T>(start + (double)index * step);
    }
};

struct ArangeIntegers {
    int64_t *out;
    Walk<1> walk;
    uint64_t start, step;

    ND_BOTH void operator()(int64_t index) const {
        out[walk.offset(index)] = (int64_t)(start + (uint64_t)index * step);
    }
};

template <class T> struct Eye {
    T *out;
    Walk<1> walk;
    int64_t size;

    ND_BOTH void operator()(int64_t index) const {
        out[walk.offset(index)] = convert<T>((uint8_t)(index / size == index % size));
    }
};

/// What the random kernels share: where to write, and which sequence.
template <class T> struct RandomOutput {
    T *out;
    Walk<1> walk;
    uint64_t seed, stream;

    RandomOutput(const nd_kernel_call *call, const Walk<1> &over)
        : out((T *)call->operand[0].data), walk(over), seed((uint64_t)call->attrs.i[0]),
          stream((uint64_t)call->attrs.i[1]) {
    }
    ND_BOTH void write(int64_t index, T value) const {
        if (index < walk.count)
            out[walk.offset(index)] = value;
    }
    ND_BOTH nd__philox_block block(int64_t number) const {
        return nd__philox_at(seed, stream, (uint64_t)number);
    }
};

struct UniformF32 : RandomOutput<float> {
    static constexpr int elements = 4;
    using RandomOutput<float>::RandomOutput;

    ND_BOTH void operator()(int64_t number) const {
        nd__philox_block words = block(number);
        ND_UNROLL
        for (int e = 0; e < elements; e++)
            write(number * elements + e, nd__uniform_f32(words.word[e]));
    }
};

struct UniformF64 : RandomOutput<double> {
    static constexpr int elements = 2;
    using RandomOutput<double>::RandomOutput;

    ND_BOTH void operator()(int64_t number) const {
        nd__philox_block words = block(number);
        ND_UNROLL
        for (int e = 0; e < elements; e++)
            write(number * elements + e, nd__uniform_f64(nd__philox_u64(words, e)));
    }
};

struct NormalF32 : RandomOutput<float> {
    static constexpr int elements = 4;
    using RandomOutput<float>::RandomOutput;

    ND_BOTH void operator()(int64_t number) const {
        float value[elements];
        nd__normal_f32(block(number), value);
        ND_UNROLL
        for (int e = 0; e < elements; e++)
            write(number * elements + e, value[e]);
    }
};

struct NormalF64 : RandomOutput<double> {
    static constexpr int elements = 2;
    using RandomOutput<double>::RandomOutput;

    ND_BOTH void operator()(int64_t number) const {
        double value[elements];
        nd__normal_f64(block(number), value);
        ND_UNROLL
        for (int e = 0; e < elements; e++)
            write(number * elements + e, value[e]);
    }
};

template <class T> struct UniformInteger : RandomOutput<T> {
    static constexpr int elements = 2;
    int64_t low, high;

    UniformInteger(const nd_kernel_call *call, const Walk<1> &over)
        : RandomOutput<T>(call, over), low(call->attrs.i[2]), high(call->attrs.i[3]) {
    }
    /// What the CPU makes of it: every dtype but i64 goes through f64, so that it saturates.
    static ND_BOTH T value_of(int64_t value) {
        if constexpr (sizeof(T) == sizeof(int64_t) && !is_float<T>)
            return value;
        else
            return convert<T>((double)value);
    }
    ND_BOTH void operator()(int64_t number) const {
        nd__philox_block words = this->block(number);
        ND_UNROLL
        for (int e = 0; e < elements; e++)
            this->write(number * elements + e,
                        value_of(nd__uniform_i64(nd__philox_u64(words, e), low, high)));
    }
};

template <class Body>
static nd_status run_random(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    Walk<1> walk(call);
    return run_elements(queue, divide_up(walk.count, Body::elements), Body(call, walk));
}

/// The creations that exist for every dtype.
template <class T>
static nd_status run_create(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    Walk<1> walk(call);
    T *out = (T *)call->operand[0].data;
    switch (call->op) {
    case ND_OP_fill:
        return run_elements(queue, walk.count, Fill<T>{out, walk, number<T>(call, 0)});
    case ND_OP_arange:
        if constexpr (sizeof(T) == sizeof(int64_t) && !is_float<T>)
            if (call->attrs.i[2] != 0)
                return run_elements(queue, walk.count,
                                    ArangeIntegers{out, walk, (uint64_t)call->attrs.i[0],
                                                   (uint64_t)call->attrs.i[1]});
        return run_elements(queue, walk.count,
                            Arange<T>{out, walk, call->attrs.f[0], call->attrs.f[1]});
    case ND_OP_eye:
        return run_elements(queue, walk.count, Eye<T>{out, walk, call->attrs.i[0]});
    case ND_OP_randint:
        return run_random<UniformInteger<T>>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

} // namespace nd_cuda

nd_status nd__cuda_create(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    nd_dtype dtype = call->operand[0].dtype;
    if (call->op == ND_OP_rand || call->op == ND_OP_randn) {
        bool normal = call->op == ND_OP_randn;
        if (dtype == ND_F32)
            return normal ? run_random<NormalF32>(queue, call)
                          : run_random<UniformF32>(queue, call);
        if (dtype == ND_F64)
            return normal ? run_random<NormalF64>(queue, call)
                          : run_random<UniformF64>(queue, call);
        return ND_ERROR_UNSUPPORTED;
    }
    switch (dtype) {
    case ND_BOOL:
        return run_create<Bool>(queue, call);
    case ND_U8:
        return run_create<uint8_t>(queue, call);
    case ND_I32:
        return run_create<int32_t>(queue, call);
    case ND_I64:
        return run_create<int64_t>(queue, call);
    case ND_F32:
        return run_create<float>(queue, call);
    case ND_F64:
        return run_create<double>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
