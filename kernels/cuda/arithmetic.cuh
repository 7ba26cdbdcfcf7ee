// Arithmetic of one element for every dtype: what kernels/ops.inc asks of a backend, and
// conversion between dtypes.
//
// Invariant: nothing here is undefined for any operand. Integers wrap; a float outside an integer's
// range is taken to its nearest end, NaN to 0.
#ifndef ND_KERNELS_CUDA_ARITHMETIC_CUH
#define ND_KERNELS_CUDA_ARITHMETIC_CUH
#include "kernels/cuda/grid.cuh"
#include <float.h>
#include <math.h>

namespace nd_cuda {

/// The type of an ND_BOOL element: a byte that is 0 or 1.
struct Bool {
    uint8_t value;
};

template <class T> struct Wide { typedef T type; };
template <> struct Wide<uint8_t> { typedef uint32_t type; };
template <> struct Wide<int32_t> { typedef uint32_t type; };
template <> struct Wide<int64_t> { typedef uint64_t type; };

template <class T> inline constexpr bool is_float = false;
template <> inline constexpr bool is_float<float> = true;
template <> inline constexpr bool is_float<double> = true;

template <class T> ND_BOTH bool is_nan(T x) {
    (void)x;
    if constexpr (is_float<T>)
        return x != x;
    return false;
}

template <class T> struct Limits;
template <> struct Limits<uint8_t> { static constexpr uint8_t lowest = 0, highest = UINT8_MAX; };
template <> struct Limits<int32_t> {
    static constexpr int32_t lowest = INT32_MIN, highest = INT32_MAX;
};
template <> struct Limits<int64_t> {
    static constexpr int64_t lowest = INT64_MIN, highest = INT64_MAX;
};

/// x as a Target; the rules stand at the top.
template <class Target, class Source> struct Convert {
    static ND_BOTH Target of(Source x) {
        if constexpr (is_float<Source> && !is_float<Target>) {
            if (x != x)
                return 0;
            // (Source)highest rounds up to 2^31 or 2^63 where it is not exact: at or above it,
            // saturate.
            if (x >= (Source)Limits<Target>::highest)
                return Limits<Target>::highest;
            if (x <= (Source)Limits<Target>::lowest)
                return Limits<Target>::lowest;
        }
        return (Target)x;
    }
};
template <class Source> struct Convert<Bool, Source> {
    static ND_BOTH Bool of(Source x) {
        return Bool{(uint8_t)(x != (Source)0)};
    }
};
template <class Target> struct Convert<Target, Bool> {
    static ND_BOTH Target of(Bool x) {
        return (Target)x.value;
    }
};
template <> struct Convert<Bool, Bool> {
    static ND_BOTH Bool of(Bool x) {
        return x;
    }
};
template <class Target, class Source> ND_BOTH Target convert(Source x) {
    return Convert<Target, Source>::of(x);
}

/// Number `which` of a call (kernels/kernel.h).
template <class T> T number(const nd_kernel_call *call, int which) {
    if constexpr (sizeof(T) == sizeof(int64_t) && !is_float<T>)
        return call->attrs.i[which];
    else
        return convert<T>(call->attrs.f[which]);
}

// The functions of <math.h> by overload, so that f32 is never computed in f64.
#define ND_FLOAT_FUNCTION(name, f32_name, f64_name) \
    ND_BOTH float name##_of(float x) {              \
        return f32_name(x);                         \
    }                                               \
    ND_BOTH double name##_of(double x) {            \
        return f64_name(x);                         \
    }
ND_FLOAT_FUNCTION(exp, expf, exp)
ND_FLOAT_FUNCTION(log, logf, log)
ND_FLOAT_FUNCTION(sqrt, sqrtf, sqrt)
ND_FLOAT_FUNCTION(sin, sinf, sin)
ND_FLOAT_FUNCTION(cos, cosf, cos)
ND_FLOAT_FUNCTION(tanh, tanhf, tanh)
ND_FLOAT_FUNCTION(erf, erff, erf)
ND_FLOAT_FUNCTION(erfc, erfcf, erfc)
ND_FLOAT_FUNCTION(fabs, fabsf, fabs)
#undef ND_FLOAT_FUNCTION

template <class T> ND_BOTH T sigmoid_of(T x) {
    // For negative x as e^x / (1 + e^x), so that nothing overflows.
    T e = exp_of(-fabs_of(x));
    return (x < (T)0 ? e : (T)1) / ((T)1 + e);
}

template <class T> ND_BOTH T gelu_of(T x) {
    // 1 + erf(z) as erfc(-z), which keeps its digits where it is small; far out 0 x infinity lurks.
    return x < (T)-40 ? (T)-0.0 : (T)0.5 * x * erfc_of(x * (T)-0.70710678118654752440);
}

template <class T> ND_BOTH T absolute_of(T x) {
    if constexpr (is_float<T>)
        return fabs_of(x);
    else if constexpr (Limits<T>::lowest == 0)
        return x;
    else
        return x < 0 ? (T)(0 - (typename Wide<T>::type)x) : x;
}

template <class T> ND_BOTH T sign_of(T x) {
    if (is_nan(x))
        return x;
    if (x > (T)0)
        return (T)1;
    return x == (T)0 ? (T)0 : (T)-1;
}

/// base^exponent by squaring, wrapping.
template <class T> ND_BOTH_CALLED T integer_power(T base, T exponent) {
    typedef typename Wide<T>::type W;
    if constexpr (Limits<T>::lowest < 0) {
        if (exponent < 0) {
            if (base == 1)
                return 1;
            if (base == -1)
                return (exponent & 1) ? -1 : 1;
            return 0;
        }
    }
    W result = 1, square = (W)base;
    for (W rest = (W)exponent; rest != 0; rest >>= 1) {
        if (rest & 1)
            result *= square;
        square *= square;
    }
    return (T)result;
}

ND_BOTH_CALLED float power_of(float base, float exponent) {
    return powf(base, exponent);
}
ND_BOTH_CALLED double power_of(double base, double exponent) {
    return pow(base, exponent);
}
template <class T> ND_BOTH T power_of(T base, T exponent) {
    return integer_power(base, exponent);
}

} // namespace nd_cuda

#define ND_ISNAN(x) (::nd_cuda::is_nan(x))
#define ND_ABS(x) (::nd_cuda::absolute_of(x))
#define ND_SIGN(x) (::nd_cuda::sign_of(x))
#define ND_POW(a, b) (::nd_cuda::power_of(a, b))
#define ND_EXP(x) (::nd_cuda::exp_of(x))
#define ND_LOG(x) (::nd_cuda::log_of(x))
#define ND_SQRT(x) (::nd_cuda::sqrt_of(x))
#define ND_SIN(x) (::nd_cuda::sin_of(x))
#define ND_COS(x) (::nd_cuda::cos_of(x))
#define ND_TANH(x) (::nd_cuda::tanh_of(x))
#define ND_SIGMOID(x) (::nd_cuda::sigmoid_of(x))
#define ND_GELU(x) (::nd_cuda::gelu_of(x))
#define ND_ERF(x) (::nd_cuda::erf_of(x))
#endif
