// SCAN along the last axis of the iteration space.
//
// A row is cut into chunks. One kernel finds what each chunk does to what comes before it, one
// joins that chunk by chunk along each row, and one walks each chunk again and writes. Rows that
// are many or short are one chunk each, which only the last kernel walks. The cut depends on the
// sizes alone, so the same call gives the same bits.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/walk.cuh"
#include <type_traits>

namespace nd_cuda {

// A Kind is a state, start(), at(row offsets, place) of one element, join(before, behind) and
// value(state).

/// Operands of a call, any dtype.
struct ScanOperand {
    void *data;
    nd_dtype dtype;
    int64_t stride; ///< along the axis, in the direction of the scan
};

/// State is double, int64_t or uint64_t.
template <class T, int op> struct Running {
    typedef T State;
    ScanOperand x;

    static ND_BOTH State start() {
        if constexpr (op == ND_OP_cumprod)
            return 1;
        else if constexpr (op == ND_OP_cumsum)
            return 0;
        else if constexpr (is_float<T>)
            return op == ND_OP_cummax ? -(T)INFINITY : (T)INFINITY;
        else
            return op == ND_OP_cummax ? Limits<T>::lowest : Limits<T>::highest;
    }
    ND_BOTH State at(const int64_t *offset, int64_t place) const {
        return load_as<T>(x.data, x.dtype, offset[1] + place * x.stride);
    }
    static ND_BOTH State join(State before, State behind) {
        if constexpr (op == ND_OP_cumsum)
            return before + behind;
        else if constexpr (op == ND_OP_cumprod)
            return before * behind;
        else
            return (op == ND_OP_cummax ? behind > before : behind < before) || is_nan(behind)
                       ? behind
                       : before;
    }
    static ND_BOTH T value(State state) {
        return state;
    }
};

/// y -> factor y + summand
struct Line {
    double factor, summand;
};

struct Recurrence {
    typedef Line State;
    ScanOperand a, b;

    static ND_BOTH State start() {
        return State{1, 0};
    }
    ND_BOTH State at(const int64_t *offset, int64_t place) const {
        return State{load_as<double>(a.data, a.dtype, offset[1] + place * a.stride),
                     load_as<double>(b.data, b.dtype, offset[2] + place * b.stride)};
    }
    static ND_BOTH State join(State before, State behind) {
        return State{behind.factor * before.factor,
                     behind.factor * before.summand + behind.summand};
    }
    /// What was before the first is 0.
    static ND_BOTH double value(State state) {
        return state.summand;
    }
};

template <class Kind> struct Scan {
    typedef typename Kind::State State;
    Kind kind;
    ScanOperand out;
    Walk<3> rows; ///< out, x or a, b
    int64_t size, chunk, chunks;
    State *carried; ///< [rows][chunks]; NULL: one chunk
};

/// What a chunk does.
template <class Kind> struct ScanChunks {
    Scan<Kind> scan;

    ND_BOTH void operator()(int64_t index) const {
        int64_t row = index / scan.chunks, place = index % scan.chunks * scan.chunk, offset[3];
        int64_t end = place + scan.chunk < scan.size ? place + scan.chunk : scan.size;
        scan.rows.offsets(row, offset);
        typename Kind::State state = Kind::start();
        for (; place < end; place++)
            state = Kind::join(state, scan.kind.at(offset, place));
        scan.carried[index] = state;
    }
};

/// What all chunks before one do.
template <class Kind> struct ScanCarries {
    Scan<Kind> scan;

    ND_BOTH void operator()(int64_t row) const {
        typename Kind::State state = Kind::start();
        for (int64_t chunk = 0; chunk < scan.chunks; chunk++) {
            typename Kind::State own = scan.carried[row * scan.chunks + chunk];
            scan.carried[row * scan.chunks + chunk] = state;
            state = Kind::join(state, own);
        }
    }
};

template <class Kind> struct ScanWrite {
    Scan<Kind> scan;

    ND_BOTH void operator()(int64_t index) const {
        int64_t row = index / scan.chunks, place = index % scan.chunks * scan.chunk, offset[3];
        int64_t end = place + scan.chunk < scan.size ? place + scan.chunk : scan.size;
        scan.rows.offsets(row, offset);
        typename Kind::State state = scan.carried ? scan.carried[index] : Kind::start();
        for (; place < end; place++) {
            state = Kind::join(state, scan.kind.at(offset, place));
            store_as(scan.out.data, scan.out.dtype, offset[0] + place * scan.out.stride,
                     Kind::value(state));
        }
    }
};

static ScanOperand operand_of(const nd_kernel_call *call, int which) {
    const nd_operand &operand = call->operand[which];
    int last = call->ndim - 1;
    int64_t stride = last < 0 ? 1 : operand.strides[last];
    return ScanOperand{operand.data, operand.dtype, call->attrs.i[0] ? -stride : stride};
}

template <class Kind>
static nd_status run_scan(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Kind &kind) {
    typedef typename Kind::State State;
    int last = call->ndim - 1;
    Scan<Kind> scan{kind,   operand_of(call, 0), Walk<3>(), last < 0 ? 1 : call->shape[last], 0, 1,
                    nullptr};
    for (int axis = 0; axis < last; axis++) {
        int64_t stride[3] = {0, 0, 0};
        for (int i = 0; i < call->noperands; i++)
            stride[i] = call->operand[i].strides[axis];
        scan.rows.add_axis(call->shape[axis], stride);
    }
    int64_t rows = scan.rows.count;
    if (rows == 0 || scan.size == 0)
        return ND_OK;
    int64_t wanted = divide_up((int64_t)queue->multiprocessors * 1024, rows);
    scan.chunk = divide_up(scan.size, wanted);
    scan.chunk = scan.chunk < 32 ? 32 : scan.chunk;
    scan.chunks = divide_up(scan.size, scan.chunk);
    if (scan.chunks == 1)
        return run_elements(queue, rows, ScanWrite<Kind>{scan});
    Scratch scratch(queue, rows * scan.chunks * (int64_t)sizeof(State));
    if (scratch.status != ND_OK)
        return scratch.status;
    scan.carried = (State *)scratch.data;
    nd_status status = run_elements(queue, rows * scan.chunks, ScanChunks<Kind>{scan});
    if (status == ND_OK)
        status = run_elements(queue, rows, ScanCarries<Kind>{scan});
    if (status == ND_OK)
        status = run_elements(queue, rows * scan.chunks, ScanWrite<Kind>{scan});
    return status;
}

template <int op>
static nd_status run_running(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    ScanOperand x = operand_of(call, 1);
    if (is_float_dtype(x.dtype))
        return run_scan(queue, call, Running<double, op>{x});
    if (op == ND_OP_cumsum || op == ND_OP_cumprod || x.dtype == ND_U64)
        return run_scan(queue, call, Running<uint64_t, op>{x});
    return run_scan(queue, call, Running<int64_t, op>{x});
}

} // namespace nd_cuda

nd_status nd__cuda_scan(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    nd_kernel_call from_end = *call;
    int last = call->ndim - 1;
    if (call->attrs.i[0] && last >= 0)
        for (int i = 0; i < call->noperands; i++) {
            nd_operand *operand = &from_end.operand[i];
            int64_t bytes = dtype_bytes(operand->dtype);
            operand->data =
                (char *)operand->data + (call->shape[last] - 1) * operand->strides[last] * bytes;
        }
    switch (call->op) {
    case ND_OP_cumsum:
        return run_running<ND_OP_cumsum>(queue, &from_end);
    case ND_OP_cumprod:
        return run_running<ND_OP_cumprod>(queue, &from_end);
    case ND_OP_cummax:
        return run_running<ND_OP_cummax>(queue, &from_end);
    case ND_OP_cummin:
        return run_running<ND_OP_cummin>(queue, &from_end);
    case ND_OP_recurrence:
        return run_scan(queue, &from_end,
                        Recurrence{operand_of(&from_end, 1), operand_of(&from_end, 2)});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
