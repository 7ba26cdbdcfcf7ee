// Discrete Fourier transforms along an axis, on the host, by loops of our own
// (fft_lines.h) or by FFTW.
//
// Invariant: x is contiguous, and so is the result. What a line gives does not depend on the others
// or on the number of threads.
#ifndef ND_KERNELS_CPU_FFT_H
#define ND_KERNELS_CPU_FFT_H
#include "kernels/kernel.h"

/// What is computed along the middle axis, k and j below n, e = exp(sign 2 pi i / n):
///   fft    x: [outer, from, inner, 2] -> [outer, to, inner, 2]
///          out[k] = scale * sum of x[j] e^(j k)
///   rfft   x: [outer, from, inner] -> [outer, to, inner, 2]
///          the same for k = 0 ... n / 2, times `weight` but where k is 0 or n / 2
///   irfft  x: [outer, from, inner, 2] -> [outer, to, inner]
///          the same of the n pairs whose first n / 2 + 1 are x's, times `weight` but at 0 and
///          n / 2, where only the real part is read, and the others their conjugates
/// Places that x lacks count as 0, and those it has too many are not read; so with the results.
typedef struct nd__fft_call {
    nd_op op;
    nd_dtype dtype; ///< f32 or f64
    int sign;       ///< 1 or -1
    int64_t n;      ///< 1 to 2^31 - 1
    int64_t outer, inner, from, to;
    double scale, weight;
    const void *x;
    void *out;
} nd__fft_call;

typedef enum nd__fft_result {
    ND__FFT_DONE,
    ND__FFT_MISSING, ///< FFTW does not open for the dtype: nd__fftw_library() (fftw.h)
    ND__FFT_NO_MEMORY,
} nd__fft_result;

/// Runs the call. A failure leaves `out` undefined.
nd__fft_result nd__cpu_fft(const nd__fft_call *call);
#endif
