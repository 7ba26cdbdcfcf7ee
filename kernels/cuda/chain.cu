// Chains: several elementwise operations over the same elements, for many tensors in one launch.
//
// An element's operands are read once and written once; in between they lie in shared memory, where
// each thread has places of its own, because which operands a step names is known only when it runs. All
// operands are on their way there together, and a step is looked up once for two packs.
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/warps.cuh"

namespace nd_cuda {

constexpr int most_chains = 24; ///< of a launch

/// How an operand's elements are in memory.
enum class ChainStorage : uint8_t { NUMBER, F16, BF16 };

template <class T> struct ChainStep {
    uint16_t op;
    int8_t out, a, b;
    T number;
};

template <class T> struct DeviceChain {
    int64_t count, end_block; ///< its blocks end before that one
    void *data[ND_CHAIN_OPERANDS];
    ChainStorage storage[ND_CHAIN_OPERANDS];
    uint8_t loads, stores; ///< operands, by bits
    bool packed;           ///< all begin at multiples of 16 bytes
    int steps;
    const T *numbers; ///< of the steps; NULL: their own
    ChainStep<T> step[ND_CHAIN_STEPS];
};

template <class T> struct Chains {
    static constexpr int threads = 128, phases = 1, least_blocks = 6;
    static constexpr int quad = 16 / (int)sizeof(T), packs = 2, turns = 4;
    static constexpr int64_t pack_elements = (int64_t)threads * quad;
    static constexpr int64_t block_elements = pack_elements * packs * turns;
    typedef Pack<T, quad> Quad;
    struct alignas(16) Shared {
        Quad room[ND_CHAIN_OPERANDS][packs][threads];
    };
    struct Own {};
    HalfFormat f16 = HalfFormat(ND_F16), bf16 = HalfFormat(ND_BF16);
    DeviceChain<T> chain[most_chains];

    ND_BOTH int64_t steps(int64_t) const {
        return 1;
    }
    ND_BOTH void begin(int64_t, int, Own &) const {
    }
    ND_BOTH void finish(int64_t, int, const Shared &, const Own &) const {
    }
    /// All turns in one, so that warps need not wait for each other.
    template <int>
    ND_BOTH void phase(int64_t block, int thread, int64_t, Shared &shared, Own &) const {
        int which = 0;
        while (block >= chain[which].end_block)
            which++;
        const DeviceChain<T> &of = chain[which];
        const int64_t inside = block - (which > 0 ? chain[which - 1].end_block : 0);
        int64_t first = inside * block_elements + (int64_t)thread * quad;
        ND_ROLLED
        for (int turn = 0; turn < turns && first < of.count; turn++) {
            for (int operand = 0; operand < ND_CHAIN_OPERANDS; operand++)
                if (of.loads >> operand & 1)
                    start(of, operand, first, thread, shared);
            wait_for_copies();
            for (int i = 0; i < of.steps; i++)
                run(of, of.step[i], of.numbers ? of.numbers[i] : of.step[i].number, shared, thread);
            for (int operand = 0; operand < ND_CHAIN_OPERANDS; operand++)
                if (of.stores >> operand & 1)
                    finish_operand(of, operand, first, thread, shared);
            first += pack_elements * packs;
        }
    }

  private:
    ND_BOTH const HalfFormat &format_of(ChainStorage storage) const {
        return storage == ChainStorage::BF16 ? bf16 : f16;
    }
    static ND_BOTH int elements_from(const DeviceChain<T> &of, int64_t at) {
        const int64_t left = of.count - at;
        return left < 0 ? 0 : left < quad ? (int)left : quad;
    }
    /// Begins to load a thread's packs; what is no pack of numbers arrives at once.
    ND_BOTH void start(const DeviceChain<T> &of, int operand, int64_t first, int thread,
                       Shared &shared) const {
        ND_UNROLL
        for (int pack = 0; pack < packs; pack++) {
            const int64_t at = first + pack * pack_elements;
            const int here = elements_from(of, at);
            Quad *to = &shared.room[operand][pack][thread];
            if (of.storage[operand] == ChainStorage::NUMBER && of.packed && here == quad)
                start_copy(to, (const T *)of.data[operand] + at, true);
            else
                *to = load(of, operand, at, here);
        }
    }
    ND_BOTH Quad load(const DeviceChain<T> &of, int operand, int64_t at, int here) const {
        Quad x = {};
        ND_UNROLL
        for (int e = 0; e < quad; e++) {
            if (e >= here)
                continue;
            if (of.storage[operand] == ChainStorage::NUMBER)
                x.element[e] = ((const T *)of.data[operand])[at + e];
            else
                x.element[e] = (T)format_of(of.storage[operand])
                                   .load(((const uint16_t *)of.data[operand])[at + e]);
        }
        return x;
    }
    ND_BOTH void finish_operand(const DeviceChain<T> &of, int operand, int64_t first, int thread,
                                const Shared &shared) const {
        ND_UNROLL
        for (int pack = 0; pack < packs; pack++) {
            const int64_t at = first + pack * pack_elements;
            store(of, operand, at, elements_from(of, at), shared.room[operand][pack][thread]);
        }
    }
    ND_BOTH void store(const DeviceChain<T> &of, int operand, int64_t first, int here,
                       const Quad &x) const {
        if (of.storage[operand] != ChainStorage::NUMBER) {
            uint16_t *to = (uint16_t *)of.data[operand] + first;
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                if (e < here)
                    to[e] = format_of(of.storage[operand]).store((float)x.element[e]);
        } else if (of.packed && here == quad) {
            *(Quad *)((T *)of.data[operand] + first) = x;
        } else {
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                if (e < here)
                    ((T *)of.data[operand])[first + e] = x.element[e];
        }
    }

    template <class Row> ND_BOTH static void unary(const Row &row, Quad (&a)[packs]) {
        ND_UNROLL
        for (int pack = 0; pack < packs; pack++)
            ND_UNROLL
        for (int e = 0; e < quad; e++)
            a[pack].element[e] = row(a[pack].element[e]);
    }
    template <class Row>
    ND_BOTH static void binary(const Row &row, Quad (&a)[packs], const Quad (&b)[packs]) {
        ND_UNROLL
        for (int pack = 0; pack < packs; pack++)
            ND_UNROLL
        for (int e = 0; e < quad; e++)
            a[pack].element[e] = row(a[pack].element[e], b[pack].element[e]);
    }
    ND_BOTH void run(const DeviceChain<T> &of, const ChainStep<T> &step, T p, Shared &shared,
                     int thread) const {
        const int second = step.b < 0 ? step.a : step.b;
        Quad a[packs], b[packs];
        ND_UNROLL
        for (int pack = 0; pack < packs; pack++) {
            a[pack] = shared.room[step.a][pack][thread];
            b[pack] = shared.room[second][pack][thread];
        }
        switch (step.op) {
#define ND_CHAIN_UNARY(name)                \
    case ND_OP_##name:                      \
        unary(unary_##name<T>{p, (T)0}, a); \
        break;
#define ND_CHAIN_BINARY(name)                    \
    case ND_OP_##name:                           \
        binary(binary_##name<T>{p, (T)0}, a, b); \
        break;
#define ND_CHAIN_ROWS          \
    ND_CHAIN_UNARY(add_scalar) \
    ND_CHAIN_UNARY(mul_scalar) \
    ND_CHAIN_UNARY(div_scalar) \
    ND_CHAIN_UNARY(square)     \
    ND_CHAIN_UNARY(sqrt)       \
    ND_CHAIN_UNARY(sign)       \
    ND_CHAIN_BINARY(add)       \
    ND_CHAIN_BINARY(sub)       \
    ND_CHAIN_BINARY(mul)       \
    ND_CHAIN_BINARY(div)       \
    ND_CHAIN_BINARY(add_scaled)
            ND_CHAIN_ROWS
        default: // a cast rounds where it is to 16 bits
            if (of.storage[step.out] != ChainStorage::NUMBER) {
                const HalfFormat &format = format_of(of.storage[step.out]);
                unary([&format](T x) { return (T)format.load(format.store((float)x)); }, a);
            }
        }
        ND_UNROLL
        for (int pack = 0; pack < packs; pack++)
            shared.room[step.out][pack][thread] = a[pack];
    }
};

static bool has_row(nd_op op) {
    switch (op) {
#undef ND_CHAIN_UNARY
#undef ND_CHAIN_BINARY
#define ND_CHAIN_UNARY(name) case ND_OP_##name:
#define ND_CHAIN_BINARY(name) case ND_OP_##name:
        ND_CHAIN_ROWS
    case ND_OP_cast:
        return true;
    default:
        return false;
    }
}

static bool is_half(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16;
}

/// Whether numbers are T, and 16-bit floats are only cast.
static bool is_of(const nd_chain *chain, nd_dtype number) {
    for (int i = 0; i < chain->steps; i++) {
        const nd_chain_step *step = &chain->step[i];
        const int8_t named[] = {step->out, step->a, step->b < 0 ? step->a : step->b};
        if (!has_row(step->op))
            return false;
        for (int8_t operand : named) {
            nd_dtype dtype = chain->dtype[operand];
            bool half = is_half(dtype) && step->op == ND_OP_cast && number == ND_F32;
            if (dtype != number && !half)
                return false;
        }
    }
    return true;
}

/// Operands at one address are one operand.
static int8_t place_of(const nd_chain *chain, int8_t operand) {
    for (int8_t earlier = 0; earlier < operand; earlier++)
        if (chain->data[operand] && chain->data[earlier] == chain->data[operand])
            return earlier;
    return operand;
}

template <class T> static void describe(const nd_chain *chain, DeviceChain<T> *ret_of) {
    unsigned written = 0;
    *ret_of = DeviceChain<T>();
    ret_of->count = chain->count;
    ret_of->steps = chain->steps;
    ret_of->numbers = (const T *)chain->numbers;
    ret_of->packed = true;
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++) {
        nd_dtype dtype = chain->dtype[i];
        ret_of->data[i] = chain->data[i];
        ret_of->storage[i] = dtype == ND_F16    ? ChainStorage::F16
                             : dtype == ND_BF16 ? ChainStorage::BF16
                                                : ChainStorage::NUMBER;
        ret_of->packed = ret_of->packed && (uintptr_t)chain->data[i] % 16 == 0;
    }
    for (int i = 0; i < chain->steps; i++) {
        const nd_chain_step *step = &chain->step[i];
        ChainStep<T> *to = &ret_of->step[i];
        *to = {(uint16_t)step->op, place_of(chain, step->out), place_of(chain, step->a),
               step->b < 0 ? step->b : place_of(chain, step->b), (T)step->number};
        unsigned read = 1u << to->a | (to->b < 0 ? 0 : 1u << to->b);
        ret_of->loads = (uint8_t)(ret_of->loads | (read & ~written));
        written |= 1u << to->out;
    }
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++)
        if (!chain->data[i]) {
            ret_of->loads = (uint8_t)(ret_of->loads & ~(1u << i));
            written &= ~(1u << i);
        }
    ret_of->stores = (uint8_t)written;
}

template <class T>
static nd_status run_chains(const nd_cuda_queue *queue, size_t count, const nd_chain *chains) {
    nd_status status = ND_OK;
    for (size_t first = 0; first < count && status == ND_OK; first += most_chains) {
        Chains<T> body;
        int64_t blocks = 0;
        for (size_t i = 0; i < most_chains; i++) {
            if (first + i < count) {
                describe(&chains[first + i], &body.chain[i]);
                blocks += divide_up(chains[first + i].count, Chains<T>::block_elements);
            } else {
                body.chain[i] = DeviceChain<T>();
            }
            body.chain[i].end_block = blocks;
        }
        status = run_phases(queue, blocks, body);
        if (status == ND_ERROR_OUT_OF_MEMORY && first > 0)
            status = ND_ERROR_DEVICE; // those before have run
    }
    return status;
}

} // namespace nd_cuda

nd_status nd__cuda_chains(const nd_cuda_queue *queue, size_t count, const nd_chain *chains) {
    using namespace nd_cuda;
    bool f32 = true, f64 = true;
    for (size_t i = 0; i < count; i++) {
        f32 = f32 && is_of(&chains[i], ND_F32);
        f64 = f64 && is_of(&chains[i], ND_F64);
    }
    if (f32)
        return run_chains<float>(queue, count, chains);
    if (f64)
        return run_chains<double>(queue, count, chains);
    // Of several kinds: one after the other.
    nd_status status = count > 1 ? ND_OK : ND_ERROR_UNSUPPORTED;
    for (size_t i = 0; i < count && status == ND_OK; i++)
        status = nd__cuda_chains(queue, 1, &chains[i]);
    const bool some_have_run = count > 1 && status == ND_ERROR_OUT_OF_MEMORY;
    return some_have_run ? ND_ERROR_DEVICE : status;
}
