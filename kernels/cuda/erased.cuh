// Elements of a dtype that is known when the kernel runs, not when it is compiled: every dtype for
// the price of one kernel. The branch is the same for all threads.
#ifndef ND_KERNELS_CUDA_ERASED_CUH
#define ND_KERNELS_CUDA_ERASED_CUH
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/half.h"

namespace nd_cuda {

/// Element `index` as a T that holds every number of the dtype; u64 as i64 keeps its bits.
template <class T> ND_BOTH T load_as(const void *data, nd_dtype dtype, int64_t index) {
    switch (dtype) {
    case ND_BOOL:
    case ND_U8:
        return (T)((const uint8_t *)data)[index];
    case ND_I8:
        return (T)((const int8_t *)data)[index];
    case ND_I16:
        return (T)((const int16_t *)data)[index];
    case ND_U16:
        return (T)((const uint16_t *)data)[index];
    case ND_I32:
        return (T)((const int32_t *)data)[index];
    case ND_U32:
        return (T)((const uint32_t *)data)[index];
    case ND_I64:
        return (T)((const int64_t *)data)[index];
    case ND_U64:
        return (T)((const uint64_t *)data)[index];
    case ND_F32:
        return (T)((const float *)data)[index];
    case ND_F64:
        return (T)((const double *)data)[index];
    case ND_F16:
        return (T)nd__f16_to_f32(((const uint16_t *)data)[index]);
    case ND_BF16:
        return (T)nd__bf16_to_f32(((const uint16_t *)data)[index]);
    default:
        return (T)0;
    }
}

/// Writes a number that the dtype holds, or, to a float, one that is rounded once.
template <class T> ND_BOTH void store_as(void *data, nd_dtype dtype, int64_t index, T value) {
    switch (dtype) {
    case ND_BOOL:
    case ND_U8:
    case ND_I8:
        ((uint8_t *)data)[index] = (uint8_t)(int64_t)value;
        return;
    case ND_I16:
    case ND_U16:
        ((uint16_t *)data)[index] = (uint16_t)(int64_t)value;
        return;
    case ND_I32:
    case ND_U32:
        ((uint32_t *)data)[index] = (uint32_t)(int64_t)value;
        return;
    case ND_I64:
    case ND_U64:
        ((int64_t *)data)[index] = (int64_t)value;
        return;
    case ND_F32:
        ((float *)data)[index] = (float)value;
        return;
    case ND_F64:
        ((double *)data)[index] = (double)value;
        return;
    case ND_F16:
        ((uint16_t *)data)[index] = nd__f64_to_f16((double)value);
        return;
    case ND_BF16:
        ((uint16_t *)data)[index] = nd__f64_to_bf16((double)value);
        return;
    default:
        return;
    }
}

// To f32 with the last bit odd where it is not exact, which half.h rounds once.
ND_BOTH float odd_of(float x) {
    return x;
}
ND_BOTH float odd_of(double x) {
    return nd__f64_to_f32_odd(x);
}
ND_BOTH float odd_of(int64_t x) {
    return nd__f64_to_f32_odd(nd__i64_to_f64_odd(x));
}
ND_BOTH float odd_of(uint64_t x) {
    return nd__f64_to_f32_odd(nd__u64_to_f64_odd(x));
}

/// Writes any number, converted as COPY does (kernels/kernel.h).
template <class T>
ND_BOTH void store_converted(void *data, nd_dtype dtype, int64_t index, T value) {
    switch (dtype) {
    case ND_BOOL:
        ((Bool *)data)[index] = convert<Bool>(value);
        return;
    case ND_F16:
        ((uint16_t *)data)[index] = nd__f32_to_f16(odd_of(value));
        return;
    case ND_BF16:
        ((uint16_t *)data)[index] = nd__f32_to_bf16(odd_of(value));
        return;
#define ND_STORE_CASE(ENUMERATOR, T)            \
    case ENUMERATOR:                            \
        ((T *)data)[index] = convert<T>(value); \
        return;
        ND_STORE_CASE(ND_U8, uint8_t)
        ND_STORE_CASE(ND_U16, uint16_t)
        ND_STORE_CASE(ND_U32, uint32_t)
        ND_STORE_CASE(ND_U64, uint64_t)
        ND_STORE_CASE(ND_I8, int8_t)
        ND_STORE_CASE(ND_I16, int16_t)
        ND_STORE_CASE(ND_I32, int32_t)
        ND_STORE_CASE(ND_I64, int64_t)
        ND_STORE_CASE(ND_F32, float)
        ND_STORE_CASE(ND_F64, double)
#undef ND_STORE_CASE
    default:
        return;
    }
}

/// x[index] of a dtype known when the kernel is compiled.
template <class T> struct Direct {
    typedef T Element;
    const T *x;

    ND_BOTH T at(int64_t index) const {
        return x[index];
    }
};

/// x[index] of any dtype that T holds.
template <class T> struct Erased {
    typedef T Element;
    const void *x;
    nd_dtype dtype;

    ND_BOTH T at(int64_t index) const {
        return load_as<T>(x, dtype, index);
    }
};

static inline int64_t dtype_bytes(nd_dtype dtype) {
    static const int8_t bytes[] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) sizeof(T),
#include "kernels/dtypes.inc"
#undef ND_DTYPE
    };
    return bytes[dtype];
}
static inline bool is_float_dtype(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16 || dtype == ND_F32 || dtype == ND_F64;
}

} // namespace nd_cuda
#endif
