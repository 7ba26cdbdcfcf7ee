// Kinds of REDUCE and ARGREDUCE: what is computed of the elements of a result.
//
// A Kind has the State of a share of them, start(), add(state, x, position), join(state, state),
// result(state), and `flight`, how many packs a thread asks for at once: 8 where little is done with an
// element, so that memory is all it waits for, 4 where that is long code. It knows nothing of where
// elements lie.
#ifndef ND_KERNELS_CUDA_REDUCE_KINDS_CUH
#define ND_KERNELS_CUDA_REDUCE_KINDS_CUH
#include "kernels/cuda/arithmetic.cuh"
#include <type_traits>

namespace nd_cuda {

/// Sums of floats are kept in f64, those of integers in 64 bits, which wrap.
template <class T> using Wider = std::conditional_t<is_float<T>, double, uint64_t>;

template <class T> struct Sum {
    typedef Wider<T> State;
    static constexpr int flight = 8;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (State)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH State result(State state) const {
        return state;
    }
};

template <class T> struct Product {
    typedef Wider<T> State;
    static constexpr int flight = 8;

    ND_BOTH State start() const {
        return 1;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state * (State)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a * b;
    }
    ND_BOTH State result(State state) const {
        return state;
    }
};

template <class T> struct Mean {
    typedef double State;
    static constexpr int flight = 8;
    double count;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (double)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH double result(State state) const {
        return state / count;
    }
};

/// How many elements, their mean, and the sum of squared differences from it.
struct Moments {
    double count, mean, squares;
};

/// Variance in one pass (Welford 1962; joined as by Chan, Golub and LeVeque 1979), or its root.
template <class T> struct Variance {
    typedef Moments State;
    static constexpr int flight = 4;
    double divisor;
    bool root;

    ND_BOTH State start() const {
        return State{0, 0, 0};
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        double count = state.count + 1, difference = (double)x - state.mean;
        double mean = state.mean + difference / count;
        return State{count, mean, state.squares + difference * ((double)x - mean)};
    }
    ND_BOTH State join(State a, State b) const {
        if (a.count == 0 || b.count == 0)
            return a.count == 0 ? b : a;
        double count = a.count + b.count, difference = b.mean - a.mean, part = b.count / count;
        return State{count, a.mean + difference * part,
                     a.squares + b.squares + difference * difference * a.count * part};
    }
    ND_BOTH double result(State state) const {
        double variance = state.squares / divisor;
        return root ? sqrt_of(variance) : variance;
    }
};

/// Sum of |x|^order, and its root of that order.
template <class T> struct Norm {
    typedef double State;
    static constexpr int flight = 4;
    double order;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        double value = fabs_of((double)x);
        return state + (order == 2 ? value * value : order == 1 ? value : power_of(value, order));
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH double result(State state) const {
        return order == 2 ? sqrt_of(state) : order == 1 ? state : power_of(state, 1 / order);
    }
};

/// Largest element so far, and sum of exp(x - largest).
template <class T> struct Logarithm {
    T largest;
    double sum;
};

/// log(sum(exp(x))). An infinite or NaN maximum is the result.
template <class T> struct LogSumExp {
    typedef Logarithm<T> State;
    static constexpr int flight = 4;

    static ND_BOTH bool is_finite(T x) {
        return x - x == (T)0;
    }
    ND_BOTH State start() const {
        return State{-(T)INFINITY, 0};
    }
    ND_BOTH State join(State a, State b) const {
        bool first = a.largest > b.largest || is_nan(a.largest);
        State high = first ? a : b, low = first ? b : a;
        if (!is_finite(high.largest))
            return high;
        return State{high.largest, high.sum + low.sum * (double)exp_of(low.largest - high.largest)};
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return join(state, State{x, 1});
    }
    ND_BOTH double result(State state) const {
        double largest = (double)state.largest;
        return is_finite(state.largest) ? largest + log_of(state.sum) : largest;
    }
};

/// How many elements are not 0; whether there is one; whether all are.
template <class T> struct Count {
    typedef int64_t State;
    static constexpr int flight = 8;
    nd_op op;
    int64_t elements;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (x != (T)0);
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH State result(State state) const {
        if (op == ND_OP_count_nonzero)
            return state;
        return op == ND_OP_any ? state > 0 : state == elements;
    }
};

/// The largest element, or the smallest; NaN wins over any number.
template <class T, bool largest> struct Extremum {
    typedef T State;
    static constexpr int flight = 8;

    ND_BOTH State start() const {
        if constexpr (is_float<T>)
            return largest ? -(T)INFINITY : (T)INFINITY;
        else
            return largest ? Limits<T>::lowest : Limits<T>::highest;
    }
    ND_BOTH State join(State a, State b) const {
        return ((largest ? a > b : a < b) || is_nan(a)) ? a : b;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return join(state, x);
    }
    ND_BOTH T result(State state) const {
        return state;
    }
};

template <class T> struct Found {
    T value;
    int64_t position; ///< -1: none yet
};

/// Position of the first extremum; the first NaN, where there is one.
template <class T, bool largest> struct Position {
    typedef Found<T> State;
    static constexpr int flight = 4;

    static ND_BOTH bool better(T a, T b) {
        return (largest ? a > b : a < b) || (is_nan(a) && !is_nan(b));
    }
    ND_BOTH State start() const {
        return State{(T)0, -1};
    }
    ND_BOTH State join(State a, State b) const {
        if (a.position < 0 || b.position < 0)
            return a.position < 0 ? b : a;
        if (better(a.value, b.value))
            return a;
        if (better(b.value, a.value))
            return b;
        return a.position < b.position ? a : b;
    }
    ND_BOTH State add(State state, T x, int64_t position) const {
        return state.position < 0 || better(x, state.value) ? State{x, position} : state;
    }
    ND_BOTH int64_t result(State state) const {
        return state.position;
    }
};

} // namespace nd_cuda
#endif
