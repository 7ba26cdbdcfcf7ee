// DROPOUT in one pass: a thread makes the random words of its elements and writes those that stay.
//
// The words are those of rand in f32 (kernels/philox.h), four elements to a block of the generator, so
// that the elements which are dropped are those of every other backend.
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/philox.h"

namespace nd_cuda {

/// dense: x lies as out does, and both may be moved by packs.
template <class Format, bool dense> struct Dropout {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    static constexpr int words = 4; ///< of a block of the generator
    static constexpr int pack = 16 / (int)sizeof(Stored);
    static constexpr int elements = dense && pack > words ? pack : words; ///< of a thread
    typedef Pack<Stored, pack> Moved;
    Format format;
    Stored *out;
    const Stored *x;
    Walk<1> walk; ///< x
    int64_t count;
    uint64_t seed, stream;
    float limit;
    Number scale;

    Dropout(const Format &of, const nd_kernel_call *call, const Walk<1> &over)
        : format(of), out((Stored *)call->operand[0].data),
          x((const Stored *)call->operand[1].data), walk(over), count(over.count),
          seed((uint64_t)call->attrs.i[0]), stream((uint64_t)call->attrs.i[1]),
          limit((float)call->attrs.f[0]), scale((Number)(1.0 / (1.0 - call->attrs.f[0]))) {
        // Where all are dropped no number is 1 / 0.
        if (call->attrs.f[0] >= 1.0)
            scale = 1;
    }
    int64_t threads() const {
        return divide_up(count, elements);
    }
    ND_BOTH void operator()(int64_t number) const {
        Number factor[elements];
        ND_UNROLL
        for (int first = 0; first < elements; first += words) {
            nd__philox_block block =
                nd__philox_at(seed, stream, (uint64_t)(number * elements + first) / words);
            ND_UNROLL
            for (int e = 0; e < words; e++)
                factor[first + e] = nd__uniform_f32(block.word[e]) >= limit ? scale : (Number)0;
        }
        int64_t start = number * elements;
        if (dense && start + elements <= count) {
            ND_UNROLL
            for (int first = 0; first < elements; first += pack) {
                Moved moved = *(const Moved *)(x + start + first);
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    moved.element[e] =
                        format.store(format.load(moved.element[e]) * factor[first + e]);
                *(Moved *)(out + start + first) = moved;
            }
            return;
        }
        ND_UNROLL
        for (int e = 0; e < elements; e++)
            if (start + e < count) {
                int64_t from = dense ? start + e : walk.offset(start + e);
                out[start + e] = format.store(format.load(x[from]) * factor[e]);
            }
    }
};

template <class Format>
static nd_status run_dropout(const nd_cuda_queue *queue, const nd_kernel_call *call,
                             const Format &format) {
    Walk<1> walk(call, 1);
    bool aligned = ((uintptr_t)call->operand[0].data | (uintptr_t)call->operand[1].data) % 16 == 0;
    if (walk.contiguous() && aligned) {
        Dropout<Format, true> body(format, call, walk);
        return run_elements(queue, body.threads(), body);
    }
    Dropout<Format, false> body(format, call, walk);
    return run_elements(queue, body.threads(), body);
}

} // namespace nd_cuda

nd_status nd__cuda_dropout(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    nd_dtype dtype = call->operand[0].dtype;
    switch (dtype) {
    case ND_F32:
        return run_dropout(queue, call, Plain<float>());
    case ND_F64:
        return run_dropout(queue, call, Plain<double>());
    case ND_F16:
    case ND_BF16:
        return run_dropout(queue, call, Halves(dtype));
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
