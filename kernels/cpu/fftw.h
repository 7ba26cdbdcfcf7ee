// FFTW, opened when it is first asked for: nothing links with it, and a machine without it lacks
// only what needs it. FFTW is free software under the GPL, so ndarc neither contains nor ships it.
//
// ND_FFTW in the environment names the file to open instead of the usual ones, for both precisions;
// a name that does not exist means that there is none. Other libraries have the same interface.
//
// A plan is everything that depends on the kind and the length of a transform alone. Making one
// takes ten to a thousand times as long as running it, so the last ones are kept.
//
// Invariant: whatever makes or ends a plan holds one lock, because FFTW's planner is not safe
// beside other threads; running one needs none. A plan is made without looking at data or clocks,
// for buffers that begin at multiples of ND__FFTW_ALIGNMENT, so it computes the same bits every
// time.
#ifndef ND_KERNELS_CPU_FFTW_H
#define ND_KERNELS_CPU_FFTW_H
#include "lib/base/optional.h"
#include <nd/base.h>
#include <stdbool.h>
#include <stdint.h>

#define ND__FFTW_ALIGNMENT 64

/// What a plan transforms. A half of n has n / 2 + 1 places, those of pairs of which the others are
/// the conjugates.
typedef enum nd__fftw_kind {
    ND__FFTW_FORWARD,  ///< n pairs to n pairs
    ND__FFTW_BACKWARD, ///< n pairs to n pairs, with the other sign of the exponent
    ND__FFTW_REAL,     ///< n numbers to a half, forward
    ND__FFTW_HALF,     ///< a half to n numbers, backward; the half is overwritten
} nd__fftw_kind;

typedef struct nd__fftw_plan nd__fftw_plan;

/// FFTW for f32 or f64, and whether it opens.
nd_optional *nd__fftw_library(nd_dtype dtype);
bool nd__fftw_exists(nd_dtype dtype);

/// A plan for n elements, for transforms out of `in` into `out`, which are not touched. NULL when
/// there is no memory.
nd__fftw_plan *nd__fftw_plan_acquire(nd_dtype dtype, nd__fftw_kind kind, int n, void *in,
                                     void *out);
void nd__fftw_plan_release(nd__fftw_plan *plan);
/// Gives back all plans that nobody is running.
void nd__fftw_plan_trim(void);

/// Transforms one line, as it is: nothing is scaled. From any number of threads. False: there is no
/// memory.
bool nd__fftw_run(const nd__fftw_plan *plan, void *in, void *out);
#endif
