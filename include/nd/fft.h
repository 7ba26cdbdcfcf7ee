/// @file
/// Discrete Fourier transforms: of complex and of real numbers, along one axis or several.
///
/// There is no complex dtype. A complex number is a pair, its real and its imaginary part, and a
/// tensor of them has a last axis of size 2: "pairs" below, [..., 2]. Axes of pairs are counted as
/// if that last one were not there, so axis -1 of [..., n, 2] is the one of size n, and one number
/// names the same axis in nd_rfft() and in nd_irfft(), which undoes it.
///
/// `n` is how many elements of the axis are transformed: of a longer one the first n, and a shorter
/// one is continued with zeros; 0: as many as there are. `norm` says who divides by n. Functions of
/// several axes take `sizes` for `n` (NULL: as many as there are along each) and as many `axes`,
/// which differ; 0, NULL, NULL: all axes.
///
/// Operands are of any dtype but bool. f64 stays f64; all others become f32, and so is the result,
/// also inside nd_autocast. Functions return a new owned tensor, or NULL with an error; transforms
/// and shifts are differentiable to any order. As everywhere, operands are borrowed, and different
/// threads may use one operand. Names and meanings are those of the Array API standard's fft.
///
/// The host computes by FFTW (libfftw3.so.3, and libfftw3f.so.3 for f32), which is opened when it
/// is first needed: without it transforms answer ND_ERROR_UNSUPPORTED. Lines are shared between
/// threads, a single line is not. A program that itself plans with FFTW in several threads calls
/// fftw_make_planner_thread_safe() first. A CUDA device computes by cuFFT where that is found
/// (docs/cuda.md); else operands of another device are copied to the host, and the result back,
/// each recorded as nd_to() is.
///
/// Errors: ND_ERROR_DTYPE for bool, ND_ERROR_SHAPE for what should be pairs and is not, and for an
/// axis of nothing where n does not say how long it is, ND_ERROR_INVALID_ARGUMENT for other
/// arguments that make no sense, ND_ERROR_UNSUPPORTED also for an n above 2^31 - 1.
#ifndef ND_FFT_H
#define ND_FFT_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// What is divided by: n elements of an axis, of several axes their product.
typedef enum nd_fft_norm {
    ND_FFT_NORM_BACKWARD = 0, ///< inverse transforms by n
    ND_FFT_NORM_ORTHO,        ///< both directions by the root of n
    ND_FFT_NORM_FORWARD,      ///< forward transforms by n
} nd_fft_norm;

// ---------------------------------------------------------------------------------- complex numbers

/// y[k] = sum over j of x[j] exp(-2 pi i j k / n) along an axis, x and y pairs.
ND_API nd_tensor *nd_fft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) ND_OWNED;
/// The inverse of nd_fft(): the same with exp(2 pi i j k / n).
ND_API nd_tensor *nd_ifft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) ND_OWNED;
/// nd_fft() along each of several axes.
ND_API nd_tensor *nd_fftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                          nd_fft_norm norm) ND_OWNED;
/// The inverse of nd_fftn().
ND_API nd_tensor *nd_ifftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                           nd_fft_norm norm) ND_OWNED;

// ------------------------------------------------------------------------------------- real numbers

/// nd_fft() of numbers, of which the second half is the first one's conjugate: the first n / 2 + 1
/// results, x: [..., n, ...] -> [..., n / 2 + 1, ..., 2].
ND_API nd_tensor *nd_rfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) ND_OWNED;
/// The inverse of nd_rfft(): x: [..., m, ..., 2] -> [..., n, ...], n 0 meaning 2 (m - 1), though it
/// might have been one more. n / 2 + 1 pairs are read, and of the first, and of an even n the
/// last, the real part alone.
ND_API nd_tensor *nd_irfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) ND_OWNED;
/// nd_rfft() along the last of several axes, then nd_fft() along the others.
ND_API nd_tensor *nd_rfftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                           nd_fft_norm norm) ND_OWNED;
/// The inverse of nd_rfftn(): nd_ifft() along all axes but the last, then nd_irfft() along that.
ND_API nd_tensor *nd_irfftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                            nd_fft_norm norm) ND_OWNED;
/// nd_fft() of pairs whose second half is the first one's conjugate, which makes numbers, given the
/// first n / 2 + 1: [..., m, ..., 2] -> [..., n, ...], with n as in nd_irfft().
ND_API nd_tensor *nd_hfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) ND_OWNED;
/// The inverse of nd_hfft(): nd_ifft() of numbers, its first n / 2 + 1 results as in nd_rfft().
ND_API nd_tensor *nd_ihfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) ND_OWNED;

// -------------------------------------------------------------------------------------- frequencies

/// The frequencies of nd_fft()'s n results, of samples `spacing` apart: from 0 on, then the negative
/// ones from the lowest on: [n], of a dtype of floats. Error: n below 1, a spacing of 0 or not
/// finite.
ND_API nd_tensor *nd_fftfreq(int64_t n, double spacing, nd_dtype dtype) ND_OWNED;
/// Those of nd_rfft()'s results, none of them negative: [n / 2 + 1].
ND_API nd_tensor *nd_rfftfreq(int64_t n, double spacing, nd_dtype dtype) ND_OWNED;
/// x of any dtype with frequency 0 in the middle of each of `naxes` axes (0, NULL: all). Axes as
/// they are: those of pairs have numbers from 0 on here, and the last, of the pairs themselves,
/// should not be among them.
ND_API nd_tensor *nd_fftshift(const nd_tensor *x, int naxes, const int *axes) ND_OWNED;
/// The inverse of nd_fftshift(), which differs from it along axes of odd sizes.
ND_API nd_tensor *nd_ifftshift(const nd_tensor *x, int naxes, const int *axes) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
