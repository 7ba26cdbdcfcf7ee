// CREATE: values that depend on nothing but the number of the element, row-major.
//
// Random elements follow kernels/philox.h, so they are those of every other backend; a thread
// computes one Philox block and writes the two or four elements that it holds. A filled tensor is
// compiled per element size; the others learn their dtype when they run.
#include "kernels/cuda/erased.cuh"
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

struct Arange {
    void *out;
    nd_dtype dtype;
    Walk<1> walk;
    double start, step;

    ND_BOTH void operator()(int64_t index) const {
        store_converted(out, dtype, walk.offset(index), start + (double)index * step);
    }
};

/// Integers of 64 bits, whose bits are the same with a sign and without.
struct ArangeIntegers {
    int64_t *out;
    Walk<1> walk;
    uint64_t start, step;

    ND_BOTH void operator()(int64_t index) const {
        out[walk.offset(index)] = (int64_t)(start + (uint64_t)index * step);
    }
};

struct Eye {
    void *out;
    nd_dtype dtype;
    Walk<1> walk;
    int64_t size;

    ND_BOTH void operator()(int64_t index) const {
        store_as<int64_t>(out, dtype, walk.offset(index), index / size == index % size);
    }
};

/// What the random kernels share: how many elements, and which sequence.
struct RandomSequence {
    Walk<1> walk;
    uint64_t seed, stream;

    RandomSequence(const nd_kernel_call *call, const Walk<1> &over)
        : walk(over), seed((uint64_t)call->attrs.i[0]), stream((uint64_t)call->attrs.i[1]) {
    }
    ND_BOTH nd__philox_block block(int64_t number) const {
        return nd__philox_at(seed, stream, (uint64_t)number);
    }
};

template <class T> struct RandomOutput : RandomSequence {
    T *out;

    RandomOutput(const nd_kernel_call *call, const Walk<1> &over)
        : RandomSequence(call, over), out((T *)call->operand[0].data) {
    }
    ND_BOTH void write(int64_t index, T value) const {
        if (index < walk.count)
            out[walk.offset(index)] = value;
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

/// 16-bit floats, from the words of f32.
struct RandomHalf : RandomOutput<uint16_t> {
    static constexpr int elements = 4;
    bool brain, normal;

    RandomHalf(const nd_kernel_call *call, const Walk<1> &over)
        : RandomOutput<uint16_t>(call, over), brain(call->operand[0].dtype == ND_BF16),
          normal(call->op == ND_OP_randn) {
    }
    ND_BOTH void operator()(int64_t number) const {
        nd__philox_block words = block(number);
        float value[elements];
        if (normal)
            nd__normal_f32(words, value);
        ND_UNROLL
        for (int e = 0; e < elements; e++) {
            if (!normal)
                value[e] = brain ? nd__uniform_bf16(words.word[e]) : nd__uniform_f16(words.word[e]);
            write(number * elements + e,
                  brain ? nd__f32_to_bf16(value[e]) : nd__f32_to_f16(value[e]));
        }
    }
};

struct UniformInteger : RandomSequence {
    static constexpr int elements = 2;
    void *out;
    nd_dtype dtype;
    int64_t low, high;

    UniformInteger(const nd_kernel_call *call, const Walk<1> &over)
        : RandomSequence(call, over), out(call->operand[0].data), dtype(call->operand[0].dtype),
          low(call->attrs.i[2]), high(call->attrs.i[3]) {
    }
    ND_BOTH void operator()(int64_t number) const {
        nd__philox_block words = block(number);
        ND_UNROLL
        for (int e = 0; e < elements; e++) {
            int64_t index = number * elements + e;
            if (index < walk.count)
                put(index, nd__uniform_i64(nd__philox_u64(words, e), low, high));
        }
    }

  private:
    /// As the CPU: all but the integers of 64 bits go through f64, so that they saturate.
    ND_BOTH void put(int64_t index, int64_t value) const {
        if (dtype == ND_I64 || dtype == ND_U64)
            ((int64_t *)out)[walk.offset(index)] = value;
        else
            store_converted(out, dtype, walk.offset(index), (double)value);
    }
};

template <class Body>
static nd_status run_random(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    Walk<1> walk(call);
    return run_elements(queue, divide_up(walk.count, Body::elements), Body(call, walk));
}

template <class T>
static nd_status run_fill(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    Walk<1> walk(call);
    nd_dtype dtype = call->operand[0].dtype;
    alignas(8) char element[8];
    if (dtype == ND_I64 || dtype == ND_U64)
        store_as(element, dtype, 0, call->attrs.i[0]);
    else
        store_converted(element, dtype, 0, call->attrs.f[0]);
    T value;
    memcpy(&value, element, sizeof value); // bits of any type: an assignment would alias
    return run_elements(queue, walk.count, Fill<T>{(T *)call->operand[0].data, walk, value});
}

static nd_status fill(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (dtype_bytes(call->operand[0].dtype)) {
    case 1:
        return run_fill<uint8_t>(queue, call);
    case 2:
        return run_fill<uint16_t>(queue, call);
    case 4:
        return run_fill<uint32_t>(queue, call);
    default:
        return run_fill<uint64_t>(queue, call);
    }
}

static nd_status arange(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const nd_operand &out = call->operand[0];
    const nd_op_attrs &attrs = call->attrs;
    Walk<1> walk(call);
    bool exact = (out.dtype == ND_I64 || out.dtype == ND_U64) && attrs.i[2] != 0;
    if (!exact)
        return run_elements(queue, walk.count,
                            Arange{out.data, out.dtype, walk, attrs.f[0], attrs.f[1]});
    return run_elements(
        queue, walk.count,
        ArangeIntegers{(int64_t *)out.data, walk, (uint64_t)attrs.i[0], (uint64_t)attrs.i[1]});
}

/// rand and randn.
static nd_status random_floats(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    bool normal = call->op == ND_OP_randn;
    switch (call->operand[0].dtype) {
    case ND_F32:
        return normal ? run_random<NormalF32>(queue, call) : run_random<UniformF32>(queue, call);
    case ND_F64:
        return normal ? run_random<NormalF64>(queue, call) : run_random<UniformF64>(queue, call);
    case ND_F16:
    case ND_BF16:
        return run_random<RandomHalf>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

} // namespace nd_cuda

nd_status nd__cuda_create(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->op) {
    case ND_OP_fill:
        return fill(queue, call);
    case ND_OP_arange:
        return arange(queue, call);
    case ND_OP_eye: {
        Walk<1> walk(call);
        const nd_operand &out = call->operand[0];
        return run_elements(queue, walk.count, Eye{out.data, out.dtype, walk, call->attrs.i[0]});
    }
    case ND_OP_rand:
    case ND_OP_randn:
        return random_floats(queue, call);
    case ND_OP_randint:
        return run_random<UniformInteger>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
