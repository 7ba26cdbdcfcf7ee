// Rows whose exponentials are added up, less their largest element: what softmax and cross entropy share.
//
// A row that fits in registers is kept there (held.cuh): its largest element and the sum of
// exp(x - largest) come from one reading. Of any other row one pass finds both together, correcting
// the sum whenever the largest changes. NaN and infinities give what the textbook formula gives: NaN
// and +inf make the whole row NaN, -inf becomes 0.
#ifndef ND_KERNELS_CUDA_EXPONENTIALS_CUH
#define ND_KERNELS_CUDA_EXPONENTIALS_CUH
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/held.cuh"

namespace nd_cuda {

/// Largest element so far, and sum of exp(x - largest).
template <class T> struct Exponentials {
    T largest;
    T sum;

    static ND_BOTH Exponentials none() {
        return Exponentials{-(T)INFINITY, (T)0};
    }
    ND_BOTH void add(T x) {
        if (x > largest) {
            // x - x is 0, or NaN for +inf, whose row has no softmax.
            sum = sum * exp_of(largest - x) + (T)1 + (x - x);
            largest = x;
        } else if (!(x == -(T)INFINITY)) {
            sum += exp_of(x - largest);
        }
    }
    /// Many at once: the sum is corrected once.
    template <int count> ND_BOTH void add_all(const T *x) {
        T most = x[0];
        bool numbers = true;
        ND_UNROLL
        for (int i = 0; i < count; i++) {
            most = x[i] > most ? x[i] : most;
            numbers = numbers && x[i] == x[i];
        }
        if (!numbers || !(most < (T)INFINITY)) {
            sum += (T)NAN;
            return;
        }
        if (most > largest) {
            sum *= exp_of(largest - most);
            largest = most;
        }
        if (largest == -(T)INFINITY)
            return;
        ND_UNROLL
        for (int i = 0; i < count; i++)
            sum += exp_of(x[i] - largest);
    }
    static ND_BOTH Exponentials join(const Exponentials &a, const Exponentials &b) {
        if (a.largest == b.largest)
            return Exponentials{a.largest, a.sum + b.sum};
        if (a.largest > b.largest)
            return Exponentials{a.largest, a.sum + b.sum * exp_of(b.largest - a.largest)};
        return Exponentials{b.largest, b.sum + a.sum * exp_of(a.largest - b.largest)};
    }
};

/// The largest element and the sum of exp(x - largest) of a row that is kept.
template <class Format, class Shape> struct ExponentialRow : Shape {
    typedef typename Format::Number Number;
    typedef Number State;
    typedef HeldRow<Format, Shape> Row;
    struct Kept {
        Number x[Shape::elements];
    };
    static constexpr int rounds = 2;

    /// Round 1 leaves x - largest in x, or with `powers` its exponential.
    template <int round, bool powers>
    static ND_BOTH State share_of(Kept &kept, const State &largest) {
        State state = round == 0 ? -(Number)INFINITY : (Number)0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++) {
            Number &x = kept.x[i];
            if (round == 0) {
                state = x > state ? x : state;
            } else {
                x -= largest;
                Number power = exp_of(x);
                state += power;
                if (powers)
                    x = power;
            }
        }
        return state;
    }
    template <int round> ND_BOTH State combine(State a, State b) const {
        return round == 1 ? a + b : a > b ? a : b;
    }
};

} // namespace nd_cuda
#endif
