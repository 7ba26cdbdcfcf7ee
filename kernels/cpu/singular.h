// Singular values, pseudo-inverses and least squares, for spectral.c.
#ifndef ND_KERNELS_CPU_SINGULAR_H
#define ND_KERNELS_CPU_SINGULAR_H
#include "kernels/cpu/linalg.h"

/// Runs an SVD, PINV or LSTSQ call on matrix x of it, and b, into out. All is finite.
nd__linalg_result nd__singular_compute(const nd__linalg_call *call, const void *x, const void *b,
                                       void *out);
#endif
