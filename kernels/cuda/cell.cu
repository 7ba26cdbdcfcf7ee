// CELL: a step of a recurrent net, and its gradient; an element of the state is a thread's.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/grid.cuh"

namespace nd_cuda {

/// Where an element of the state stands among the gates of its row.
template <int gates> struct GatePlace {
    int64_t first, size; ///< of gate 0; to the next gate
    ND_BOTH GatePlace(int64_t index, int64_t of)
        : first(index / of * of * gates + index % of), size(of) {
    }
    ND_BOTH int64_t operator[](int gate) const {
        return first + gate * size;
    }
};

template <class T> struct Lstm {
    T *h, *c, *kept; ///< kept: or NULL
    const T *x, *u, *before;
    int64_t size;

    explicit Lstm(const nd_kernel_call *call)
        : h((T *)call->operand[0].data), c((T *)call->operand[1].data),
          kept((T *)call->operand[2].data), x((const T *)call->operand[3].data),
          u((const T *)call->operand[4].data), before((const T *)call->operand[5].data),
          size(call->attrs.i[2]) {
    }
    ND_BOTH void operator()(int64_t index) const {
        GatePlace<4> at(index, size);
        T input = sigmoid_of(x[at[0]] + u[at[0]]);
        T forget = sigmoid_of(x[at[1]] + u[at[1]]);
        T content = tanh_of(x[at[2]] + u[at[2]]);
        T output = sigmoid_of(x[at[3]] + u[at[3]]);
        T cell = forget * before[index] + input * content;
        c[index] = cell;
        h[index] = output * tanh_of(cell);
        if (kept) {
            kept[at[0]] = input;
            kept[at[1]] = forget;
            kept[at[2]] = content;
            kept[at[3]] = output;
        }
    }
};

template <class T> struct Gru {
    T *h, *kept; ///< kept: or NULL
    const T *x, *u, *before;
    int64_t size;

    explicit Gru(const nd_kernel_call *call)
        : h((T *)call->operand[0].data), kept((T *)call->operand[2].data),
          x((const T *)call->operand[3].data), u((const T *)call->operand[4].data),
          before((const T *)call->operand[5].data), size(call->attrs.i[2]) {
    }
    ND_BOTH void operator()(int64_t index) const {
        GatePlace<3> at(index, size);
        T reset = sigmoid_of(x[at[0]] + u[at[0]]);
        T update = sigmoid_of(x[at[1]] + u[at[1]]);
        T state = u[at[2]];
        T content = tanh_of(x[at[2]] + reset * state);
        h[index] = content + update * (before[index] - content);
        if (kept) {
            GatePlace<4> to(index, size);
            kept[to[0]] = reset;
            kept[to[1]] = update;
            kept[to[2]] = content;
            kept[to[3]] = state;
        }
    }
};

template <class T, bool relu> struct SimpleCell {
    T *h;
    const T *x, *u;

    explicit SimpleCell(const nd_kernel_call *call)
        : h((T *)call->operand[0].data), x((const T *)call->operand[3].data),
          u((const T *)call->operand[4].data) {
    }
    ND_BOTH void operator()(int64_t index) const {
        T sum = x[index] + u[index];
        h[index] = relu ? (sum < (T)0 ? (T)0 : sum) : tanh_of(sum);
    }
};

/// What came back to a step; each may be NULL.
template <class T> struct Returned {
    const T *g, *through, *carried;

    explicit Returned(const nd_kernel_call *call)
        : g((const T *)call->operand[3].data), through((const T *)call->operand[4].data),
          carried((const T *)call->operand[5].data) {
    }
    ND_BOTH T of_state(int64_t index) const {
        return (g ? g[index] : (T)0) + (through ? through[index] : (T)0);
    }
    ND_BOTH T past_gates(int64_t index) const {
        return carried ? carried[index] : (T)0;
    }
};

template <class T> struct LstmGrad {
    T *gates, *carried;
    Returned<T> returned;
    const T *kept, *before, *after;
    int64_t size;

    explicit LstmGrad(const nd_kernel_call *call)
        : gates((T *)call->operand[0].data), carried((T *)call->operand[2].data), returned(call),
          kept((const T *)call->operand[6].data), before((const T *)call->operand[7].data),
          after((const T *)call->operand[8].data), size(call->attrs.i[2]) {
    }
    ND_BOTH void operator()(int64_t index) const {
        GatePlace<4> at(index, size);
        T input = kept[at[0]], forget = kept[at[1]], content = kept[at[2]], output = kept[at[3]];
        T shown = tanh_of(after[index]);
        T of_h = returned.of_state(index);
        T of_c = of_h * output * ((T)1 - shown * shown) + returned.past_gates(index);
        gates[at[0]] = of_c * content * input * ((T)1 - input);
        gates[at[1]] = of_c * before[index] * forget * ((T)1 - forget);
        gates[at[2]] = of_c * input * ((T)1 - content * content);
        gates[at[3]] = of_h * shown * output * ((T)1 - output);
        carried[index] = of_c * forget;
    }
};

template <class T> struct GruGrad {
    T *of_x, *of_u, *carried;
    Returned<T> returned;
    const T *kept, *before;
    int64_t size;

    explicit GruGrad(const nd_kernel_call *call)
        : of_x((T *)call->operand[0].data), of_u((T *)call->operand[1].data),
          carried((T *)call->operand[2].data), returned(call),
          kept((const T *)call->operand[6].data), before((const T *)call->operand[7].data),
          size(call->attrs.i[2]) {
    }
    ND_BOTH void operator()(int64_t index) const {
        GatePlace<4> from(index, size);
        GatePlace<3> at(index, size);
        T reset = kept[from[0]], update = kept[from[1]];
        T content = kept[from[2]], state = kept[from[3]];
        T of_h = returned.of_state(index) + returned.past_gates(index);
        T of_content = of_h * ((T)1 - update) * ((T)1 - content * content);
        T of_reset = of_content * state * reset * ((T)1 - reset);
        T of_update = of_h * (before[index] - content) * update * ((T)1 - update);
        of_x[at[0]] = of_reset;
        of_u[at[0]] = of_reset;
        of_x[at[1]] = of_update;
        of_u[at[1]] = of_update;
        of_x[at[2]] = of_content;
        of_u[at[2]] = of_content * reset;
        carried[index] = of_h * update;
    }
};

template <class T, bool relu> struct SimpleCellGrad {
    T *gate;
    Returned<T> returned;
    const T *h;

    explicit SimpleCellGrad(const nd_kernel_call *call)
        : gate((T *)call->operand[0].data), returned(call), h((const T *)call->operand[8].data) {
    }
    ND_BOTH void operator()(int64_t index) const {
        T of_h = returned.of_state(index);
        // Where relu gives 0 nothing comes back, a NaN neither.
        gate[index] = relu ? (h[index] <= (T)0 ? (T)0 : of_h) : of_h * ((T)1 - h[index] * h[index]);
    }
};

template <class Body>
static nd_status run_cell(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return run_elements(queue, call->attrs.i[1] * call->attrs.i[2], Body(call));
}

template <class T>
static nd_status run_cells(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    bool forward = call->op == ND_OP_recurrent_cell;
    switch ((nd_cell)call->attrs.i[0]) {
    case ND_CELL_LSTM:
        return forward ? run_cell<Lstm<T>>(queue, call) : run_cell<LstmGrad<T>>(queue, call);
    case ND_CELL_GRU:
        return forward ? run_cell<Gru<T>>(queue, call) : run_cell<GruGrad<T>>(queue, call);
    case ND_CELL_TANH:
        return forward ? run_cell<SimpleCell<T, false>>(queue, call)
                       : run_cell<SimpleCellGrad<T, false>>(queue, call);
    case ND_CELL_RELU:
        return forward ? run_cell<SimpleCell<T, true>>(queue, call)
                       : run_cell<SimpleCellGrad<T, true>>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

} // namespace nd_cuda

nd_status nd__cuda_cell(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_cells<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_cells<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
