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
template <> struct Wide<uint16_t> { typedef uint32_t type; };
template <> struct Wide<uint32_t> { typedef uint32_t type; };
template <> struct Wide<uint64_t> { typedef uint64_t type; };
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
template <> struct Limits<uint16_t> { static constexpr uint16_t lowest = 0, highest = UINT16_MAX; };
template <> struct Limits<uint32_t> { static constexpr uint32_t lowest = 0, highest = UINT32_MAX; };
template <> struct Limits<int8_t> {
    static constexpr int8_t lowest = INT8_MIN, highest = INT8_MAX;
};
template <> struct Limits<int16_t> {
    static constexpr int16_t lowest = INT16_MIN, highest = INT16_MAX;
};
template <> struct Limits<int32_t> {
    static constexpr int32_t lowest = INT32_MIN, highest = INT32_MAX;
};
template <> struct Limits<int64_t> {
    static constexpr int64_t lowest = INT64_MIN, highest = INT64_MAX;
};
template <> struct Limits<uint64_t> { static constexpr uint64_t lowest = 0, highest = UINT64_MAX; };

/// x as a Target; the rules stand at the top.
template <class Target, class Source> struct Convert {
    static ND_BOTH Target of(Source x) {
        if constexpr (is_float<Source> && !is_float<Target>) {
            if (x != x)
                return 0;
            // (Source)highest rounds up to a power of two where it is not exact: at or above it,
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
        return (T)call->attrs.i[which];
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
ND_FLOAT_FUNCTION(expm1, expm1f, expm1)
ND_FLOAT_FUNCTION(log1p, log1pf, log1p)
ND_FLOAT_FUNCTION(log2, log2f, log2)
ND_FLOAT_FUNCTION(log10, log10f, log10)
ND_FLOAT_FUNCTION(tan, tanf, tan)
ND_FLOAT_FUNCTION(asin, asinf, asin)
ND_FLOAT_FUNCTION(acos, acosf, acos)
ND_FLOAT_FUNCTION(atan, atanf, atan)
ND_FLOAT_FUNCTION(sinh, sinhf, sinh)
ND_FLOAT_FUNCTION(cosh, coshf, cosh)
ND_FLOAT_FUNCTION(asinh, asinhf, asinh)
ND_FLOAT_FUNCTION(acosh, acoshf, acosh)
ND_FLOAT_FUNCTION(atanh, atanhf, atanh)
ND_FLOAT_FUNCTION(floor, floorf, floor)
ND_FLOAT_FUNCTION(ceil, ceilf, ceil)
ND_FLOAT_FUNCTION(rint, rintf, rint)
ND_FLOAT_FUNCTION(trunc, truncf, trunc)
#undef ND_FLOAT_FUNCTION

#define ND_FLOAT_FUNCTION(name)                    \
    ND_BOTH float name##_of(float a, float b) {    \
        return name##f(a, b);                      \
    }                                              \
    ND_BOTH double name##_of(double a, double b) { \
        return name(a, b);                         \
    }
ND_FLOAT_FUNCTION(atan2)
ND_FLOAT_FUNCTION(hypot)
ND_FLOAT_FUNCTION(copysign)
ND_FLOAT_FUNCTION(nextafter)
ND_FLOAT_FUNCTION(fmod)
#undef ND_FLOAT_FUNCTION

template <class T> ND_BOTH T sigmoid_of(T x) {
    // For negative x as e^x / (1 + e^x), so that nothing overflows.
    T e = exp_of(-fabs_of(x));
    return (x < (T)0 ? e : (T)1) / ((T)1 + e);
}

/// x sigmoid(t); -infinity times 0 would be NaN.
template <class T> ND_BOTH T gated_of(T x, T t) {
    T gate = sigmoid_of(t);
    return gate == (T)0 ? (T)-0.0 : x * gate;
}
template <class T> ND_BOTH T silu_of(T x) {
    return gated_of(x, x);
}
template <class T> ND_BOTH T silu_slope_of(T x) {
    T gate = sigmoid_of(x);
    return gate + silu_of(x) * ((T)1 - gate);
}
/// (1 + tanh(u)) / 2 is sigmoid(2 u), without cancellation.
template <class T> ND_BOTH T gelu_tanh_of(T x) {
    return gated_of(x, x * ((T)1.5957691216057307117 + (T)0.0713548162726002527 * x * x));
}
// Beyond 32 it is 0 or 1, and powers of x would overflow.
template <class T> ND_BOTH T gelu_tanh_slope_of(T operand) {
    T above = operand < (T)-32 ? (T)-32 : operand;
    T x = above > (T)32 ? (T)32 : above;
    T square = x * x;
    T gate = sigmoid_of(x * ((T)1.5957691216057307117 + (T)0.0713548162726002527 * square));
    T inner = (T)1.5957691216057307117 + (T)0.2140644488178007582 * square;
    return gate + x * inner * gate * ((T)1 - gate);
}
/// tanh(softplus(x)) as a quotient of e^-|x|: n / (n + 2) with n = e^x (e^x + 2).
template <class T> ND_BOTH T mish_gate_of(T x) {
    T e = exp_of(-fabs_of(x));
    T above = x < (T)0 ? e * (e + (T)2) : (T)1 + (T)2 * e;
    T below = above + (T)2 * (x < (T)0 ? (T)1 : e * e);
    return above / below;
}
template <class T> ND_BOTH T mish_of(T x) {
    T gate = mish_gate_of(x);
    return gate == (T)0 ? (T)-0.0 : x * gate;
}
template <class T> ND_BOTH T mish_slope_of(T x) {
    T gate = mish_gate_of(x);
    return gate + x * sigmoid_of(x) * ((T)1 - gate * gate);
}
/// max(x, 0) + log(1 + e^-|x|)
template <class T> ND_BOTH T softplus_of(T x) {
    return (x > (T)0 ? x : (T)0) + log1p_of(exp_of(-fabs_of(x)));
}
/// log(e^a + e^b); equal operands, infinite ones too, have no difference to look at.
template <class T> ND_BOTH T logaddexp_of(T a, T b) {
    if (a == b)
        return a + (T)0.69314718055994530942;
    return (a > b ? a : b) + log1p_of(exp_of(-fabs_of(a - b)));
}

/// 1 / x of a normal number whose inverse is one, within 1 ulp.
ND_BOTH float inverse_of(float x) {
#ifdef __CUDA_ARCH__
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
#else
    return 1.0f / x;
#endif
}

/// x times the normal distribution's share below x, with a = |x| as max(x, 0) - a share(-a): so it keeps
/// its digits where it is small. share(-a) is e^(-a^2/2) times what a polynomial of 1 / (a + 2.5) gives
/// (minimax of the relative error, 1.6e-8). The exponent is larger than its last digit may be: what
/// rounding takes of a^2 and of its product is made good by a factor. Half as many instructions as
/// by erfcf.
ND_BOTH float gelu_of(float x) {
    float a = fabsf(x);
    a = a > 15.0f ? 15.0f : a; // share(-15) is 0, and infinity times 0 would be NaN
    float m = inverse_of(a + 2.5f);
    float p = 308.011261f;
    p = fmaf(p, m, -676.147766f);
    p = fmaf(p, m, 584.830566f);
    p = fmaf(p, m, -229.024384f);
    p = fmaf(p, m, 29.3933182f);
    p = fmaf(p, m, -2.66307545f);
    p = fmaf(p, m, 3.57273746f);
    p = fmaf(p, m, 2.07995343f);
    p = fmaf(p, m, 0.997685671f);
    p = fmaf(p, m, 0.39893952f);
    float square = a * a, exponent = square * -0.721347511f;
    float lost = fmaf(square, -0.721347511f, -exponent);
    lost = fmaf(square, -9.62981496e-9f, lost);
    lost = fmaf(fmaf(a, a, -square), -0.721347511f, lost);
    float share = a * m * p;
    share = fmaf(share, lost * 0.693147181f, share);
    float above = x < 0.0f ? -0.0f : x;
    return fmaf(-share, exp2f(exponent), above);
}
ND_BOTH double gelu_of(double x) {
    // 1 + erf(z) as erfc(-z), which keeps its digits where it is small; far out 0 x infinity lurks.
    return x < -40.0 ? -0.0 : 0.5 * x * erfc_of(x * -0.70710678118654752440);
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

/// x rounded; integers are whole.
#define ND_ROUNDING(name, function)               \
    template <class T> ND_BOTH T name##_of(T x) { \
        if constexpr (is_float<T>)                \
            return function##_of(x);              \
        else                                      \
            return x;                             \
    }
ND_ROUNDING(rounded_down, floor)
ND_ROUNDING(rounded_up, ceil)
ND_ROUNDING(rounded, rint)
ND_ROUNDING(cut, trunc)
#undef ND_ROUNDING

template <class T> ND_BOTH bool is_infinite(T x) {
    if constexpr (is_float<T>)
        return fabs_of(x) == (T)INFINITY;
    return (void)x, false;
}
template <class T> ND_BOTH bool is_finite(T x) {
    if constexpr (is_float<T>)
        return fabs_of(x) < (T)INFINITY;
    return (void)x, true;
}
template <class T> ND_BOTH bool has_sign(T x) {
    return copysign_of((T)1, x) < (T)0;
}

/// As in Python: of the sign of b. Integers: 0 where b is.
template <class T> ND_BOTH_CALLED T remainder_of(T a, T b) {
    if constexpr (is_float<T>) {
        T rest = fmod_of(a, b);
        if (rest == (T)0)
            return copysign_of((T)0, b);
        return (rest < (T)0) != (b < (T)0) ? rest + b : rest;
    } else {
        if (b == 0)
            return 0;
        if constexpr (Limits<T>::lowest < 0) {
            if (b == -1) // the quotient of the smallest number has no room
                return 0;
            T rest = (T)(a % b);
            return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;
        } else {
            return (T)(a % b);
        }
    }
}

/// Rounded down; floats as NumPy: the whole number next to (a - remainder) / b.
template <class T> ND_BOTH_CALLED T floor_divide_of(T a, T b) {
    if constexpr (is_float<T>) {
        if (b == (T)0)
            return a / b;
        T rest = fmod_of(a, b);
        T quotient = (a - rest) / b;
        if (rest != (T)0 && (rest < (T)0) != (b < (T)0))
            quotient -= (T)1;
        if (quotient == (T)0)
            return copysign_of((T)0, a / b);
        T whole = floor_of(quotient);
        return quotient - whole > (T)0.5 ? whole + (T)1 : whole;
    } else {
        if (b == 0)
            return 0;
        if constexpr (Limits<T>::lowest < 0) {
            if (b == -1)
                return (T)(0 - (typename Wide<T>::type)a);
            return (T)(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
        } else {
            return (T)(a / b);
        }
    }
}

// A number of bits that a type does not have, a negative one too, moves out all but the sign.
template <class T> ND_BOTH T shifted_left(T a, T b) {
    typedef typename Wide<T>::type W;
    return (uint64_t)b < 8 * sizeof(T) ? (T)((W)a << b) : (T)0;
}
template <class T> ND_BOTH T shifted_right(T a, T b) {
    if ((uint64_t)b < 8 * sizeof(T))
        return (T)(a >> b);
    if constexpr (Limits<T>::lowest < 0)
        return (T)(a >> (8 * sizeof(T) - 1));
    return 0;
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
#define ND_EXPM1(x) (::nd_cuda::expm1_of(x))
#define ND_LOG1P(x) (::nd_cuda::log1p_of(x))
#define ND_LOG2(x) (::nd_cuda::log2_of(x))
#define ND_LOG10(x) (::nd_cuda::log10_of(x))
#define ND_TAN(x) (::nd_cuda::tan_of(x))
#define ND_ASIN(x) (::nd_cuda::asin_of(x))
#define ND_ACOS(x) (::nd_cuda::acos_of(x))
#define ND_ATAN(x) (::nd_cuda::atan_of(x))
#define ND_SINH(x) (::nd_cuda::sinh_of(x))
#define ND_COSH(x) (::nd_cuda::cosh_of(x))
#define ND_ASINH(x) (::nd_cuda::asinh_of(x))
#define ND_ACOSH(x) (::nd_cuda::acosh_of(x))
#define ND_ATANH(x) (::nd_cuda::atanh_of(x))
#define ND_SILU(x) (::nd_cuda::silu_of(x))
#define ND_SILU_SLOPE(x) (::nd_cuda::silu_slope_of(x))
#define ND_MISH(x) (::nd_cuda::mish_of(x))
#define ND_MISH_SLOPE(x) (::nd_cuda::mish_slope_of(x))
#define ND_SOFTPLUS(x) (::nd_cuda::softplus_of(x))
#define ND_GELU_TANH(x) (::nd_cuda::gelu_tanh_of(x))
#define ND_GELU_TANH_SLOPE(x) (::nd_cuda::gelu_tanh_slope_of(x))
#define ND_FLOOR(x) (::nd_cuda::rounded_down_of(x))
#define ND_CEIL(x) (::nd_cuda::rounded_up_of(x))
#define ND_ROUND(x) (::nd_cuda::rounded_of(x))
#define ND_TRUNC(x) (::nd_cuda::cut_of(x))
#define ND_ISINF(x) (::nd_cuda::is_infinite(x))
#define ND_ISFINITE(x) (::nd_cuda::is_finite(x))
#define ND_SIGNBIT(x) (::nd_cuda::has_sign(x))
#define ND_ATAN2(a, b) (::nd_cuda::atan2_of(a, b))
#define ND_HYPOT(a, b) (::nd_cuda::hypot_of(a, b))
#define ND_COPYSIGN(a, b) (::nd_cuda::copysign_of(a, b))
#define ND_NEXTAFTER(a, b) (::nd_cuda::nextafter_of(a, b))
#define ND_LOGADDEXP(a, b) (::nd_cuda::logaddexp_of(a, b))
#define ND_REMAINDER(a, b) (::nd_cuda::remainder_of(a, b))
#define ND_FLOOR_DIVIDE(a, b) (::nd_cuda::floor_divide_of(a, b))
#define ND_LEFT_SHIFT(a, b) (::nd_cuda::shifted_left(a, b))
#define ND_RIGHT_SHIFT(a, b) (::nd_cuda::shifted_right(a, b))
#endif
