// Fourier transforms of short lines, a bundle of ND__FFT_BUNDLE lines at once: a vector holds one
// place of several lines. FFTW has scalar loops for numbers, and plans one line at a time.
//
// Invariant: each line passes through the same additions and multiplications in the same order,
// none of them rounded together (BUILD.bazel), in a bundle, with few others or alone. So what it
// gives depends neither on the others nor on the instruction set.
#ifndef ND_KERNELS_CPU_FFT_LINES_H
#define ND_KERNELS_CPU_FFT_LINES_H
#include "kernels/cpu/fft.h"

/// Lines of a bundle: a line of the cache holds one number of each.
#define ND__FFT_BUNDLE(element_size) (64 / (int64_t)(element_size))

/// The longest line, and the largest prime factor of its length: those above 5 take as many
/// multiplications as their square.
#define ND__FFT_MOST_PLACES 256
#define ND__FFT_MOST_PRIME 131

/// Whether lines of n places are computed so.
bool nd__fft_is_short(int64_t n);

/// A call, cut into bundles of lines one behind the other.
typedef struct nd__fft_lines {
    const nd__fft_call *call;
    const void *roots; ///< exp(-2 pi i j / n), j below n, as pairs
    /// The same of as many places as are transformed as pairs: n, or half of it where n is even and
    /// one side is numbers. Behind them the roots of the first pass, of m groups of r places: for
    /// each k from 1 on exp(-2 pi i k p / (r m)), p below m, the real parts and then the others.
    const void *pass_roots;
    const int *factors; ///< of these places
    int factor_count;
    bool has_other_factors; ///< some have no function of their own
    bool is_prime;          ///< n is such a factor
} nd__fft_lines;

/// Prepares a call of a short length. False: there is no memory. From any thread.
bool nd__fft_lines_begin(nd__fft_lines *lines, const nd__fft_call *call);
void nd__fft_lines_end(void);
/// Gives back what is kept for lengths, unless some call uses it.
void nd__fft_lines_trim(void);

/// Bytes of working memory, 64-byte aligned, for one bundle of n places
/// (nd__fft_lines_loop, kernels/cpu/isa.h).
size_t nd__fft_lines_room(int64_t n);
#endif
