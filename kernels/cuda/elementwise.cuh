// The one elementwise kernel: out[i] = operation(a[i], b[i], c[i]) for any types and strides.
//
// When all operands are contiguous and aligned, a thread moves one pack, so that the widest operand
// travels 16 bytes at a time (two packs of a thread were 3 % slower on an H200: what lies far apart is
// asked for at once). Else every element is found by its strides. out may be exactly one of the inputs: a thread reads
// all it will overwrite before it writes.
#ifndef ND_KERNELS_CUDA_ELEMENTWISE_CUH
#define ND_KERNELS_CUDA_ELEMENTWISE_CUH
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

template <class T, int elements> struct alignas(sizeof(T) * elements) Pack { T element[elements]; };

/// Type of an input that an operation does not have.
struct None {};
template <class T> inline constexpr bool present = true;
template <> inline constexpr bool present<None> = false;

constexpr int larger(int a, int b) {
    return a > b ? a : b;
}

/// What both kernels share: the operands, and how the operation takes them.
template <class Operation, class Out, class A, class B, class C> struct Elementwise {
    static constexpr int operands = 2 + present<B> + present<C>;
    static constexpr int least_blocks = sizeof(Out) == 8 || sizeof(A) == 8 ? 3 : 4;
    Operation operation;
    Out *out;
    const A *a;
    const B *b;
    const C *c;
    int64_t count;

    Elementwise(const nd_kernel_call *call, const Operation &with, int64_t elements)
        : operation(with), out((Out *)call->operand[0].data), a((const A *)call->operand[1].data),
          b(present<B> ? (const B *)call->operand[2].data : nullptr),
          c(present<C> ? (const C *)call->operand[3].data : nullptr), count(elements) {
    }

    ND_BOTH Out apply(const A &x, const B &y, const C &z) const {
        if constexpr (present<C>)
            return operation(x, y, z);
        else if constexpr (present<B>)
            return operation(x, y);
        else
            return operation(x);
    }
};

template <class Operation, class Out, class A, class B, class C>
struct PackedElementwise : Elementwise<Operation, Out, A, B, C> {
    using Base = Elementwise<Operation, Out, A, B, C>;
    using Base::a, Base::b, Base::c, Base::count, Base::out;
    static constexpr int widest =
        larger(larger((int)sizeof(Out), (int)sizeof(A)), larger((int)sizeof(B), (int)sizeof(C)));
    static constexpr int pack = 16 / widest;

    using Base::Base;

    int64_t blocks() const {
        return divide_up(count, (int64_t)block_threads * pack);
    }

    /// True when every operand starts where its packs may.
    bool aligned() const {
        return is_aligned(out) && is_aligned(a) && (!present<B> || is_aligned(b)) &&
               (!present<C> || is_aligned(c));
    }

    ND_BOTH void operator()(int64_t block, int thread) const {
        const int64_t number = block * block_threads + thread;
        if ((number + 1) * pack > count) {
            remainder(number * pack);
            return;
        }
        Pack<A, pack> x = ((const Pack<A, pack> *)a)[number];
        Pack<B, pack> y;
        Pack<C, pack> z;
        if constexpr (present<B>)
            y = ((const Pack<B, pack> *)b)[number];
        if constexpr (present<C>)
            z = ((const Pack<C, pack> *)c)[number];
        Pack<Out, pack> result;
        ND_UNROLL
        for (int e = 0; e < pack; e++)
            result.element[e] = this->apply(x.element[e], y.element[e], z.element[e]);
        ((Pack<Out, pack> *)out)[number] = result;
    }

  private:
    template <class T> static bool is_aligned(const T *pointer) {
        return (uintptr_t)pointer % sizeof(Pack<T, pack>) == 0;
    }

    /// The last elements, fewer than a pack; nothing for a pack beyond the end.
    ND_BOTH void remainder(int64_t begin) const {
        for (int64_t index = begin; index < count; index++) {
            A x = a[index];
            B y = B();
            C z = C();
            if constexpr (present<B>)
                y = b[index];
            if constexpr (present<C>)
                z = c[index];
            out[index] = this->apply(x, y, z);
        }
    }
};

template <class Operation, class Out, class A, class B, class C>
struct StridedElementwise : Elementwise<Operation, Out, A, B, C> {
    using Base = Elementwise<Operation, Out, A, B, C>;
    using Base::a, Base::b, Base::c, Base::count, Base::operands, Base::out;
    static constexpr int elements = 4; ///< per thread
    Walk<operands> walk;

    StridedElementwise(const nd_kernel_call *call, const Operation &with,
                       const Walk<operands> &over)
        : Base(call, with, over.count), walk(over) {
    }

    int64_t blocks() const {
        return divide_up(count, (int64_t)block_threads * elements);
    }

    ND_BOTH void operator()(int64_t block, int thread) const {
        A x[elements];
        B y[elements];
        C z[elements];
        int64_t place[elements];
        int64_t first = block * block_threads * elements + thread;
        ND_UNROLL
        for (int i = 0; i < elements; i++) {
            int64_t index = first + i * block_threads;
            if (index >= count)
                continue;
            int64_t offset[operands];
            walk.offsets(index, offset);
            place[i] = offset[0];
            x[i] = a[offset[1]];
            if constexpr (present<B>)
                y[i] = b[offset[2]];
            if constexpr (present<C>)
                z[i] = c[offset[3]];
        }
        ND_UNROLL
        for (int i = 0; i < elements; i++)
            if (first + i * block_threads < count)
                out[place[i]] = this->apply(x[i], y[i], z[i]);
    }
};

/// Runs an operation on a call's operands.
template <class Out, class A, class B = None, class C = None, class Operation>
nd_status run_elementwise(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Operation &operation) {
    Walk<2 + present<B> + present<C>> walk(call);
    if (walk.contiguous()) {
        PackedElementwise<Operation, Out, A, B, C> body(call, operation, walk.count);
        if (body.aligned())
            return run_threads(queue, body.blocks(), body);
    }
    StridedElementwise<Operation, Out, A, B, C> body(call, operation, walk);
    return run_threads(queue, body.blocks(), body);
}

} // namespace nd_cuda
#endif
