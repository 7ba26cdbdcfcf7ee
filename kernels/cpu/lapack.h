// LAPACK, opened when it is first asked for: nothing links with it, and a machine without it lacks
// only what needs it.
//
// ND_LAPACK in the environment names the file to open instead of the usual ones; a name that does
// not exist means that there is none.
//
// Invariant: what is called here is the Fortran interface with 32-bit integers, which every LAPACK
// of a system has. Arguments are checked before, because LAPACK stops the program over bad ones.
#ifndef ND_KERNELS_CPU_LAPACK_H
#define ND_KERNELS_CPU_LAPACK_H
#include "lib/base/optional.h"
#include <nd/base.h>
#include <stddef.h>

/// The functions that are used, without the letter of their type. Every argument is an address;
/// behind them stand the lengths of the texts, as gfortran passes them.
#define ND__LAPACK_FUNCTIONS(F)                                                                    \
    F(gesdd, (const char *job, const int *m, const int *n, void *a, const int *lda, void *s,       \
              void *u, const int *ldu, void *vt, const int *ldvt, void *work, const int *lwork,    \
              int *iwork, int *info, size_t))                                                      \
    F(gelsd, (const int *m, const int *n, const int *others, void *a, const int *lda, void *b,     \
              const int *ldb, void *s, const void *rcond, int *rank, void *work, const int *lwork, \
              int *iwork, int *info))                                                              \
    F(gemm, (const char *transa, const char *transb, const int *m, const int *n, const int *k,     \
             const void *alpha, const void *a, const int *lda, const void *b, const int *ldb,      \
             const void *beta, void *c, const int *ldc, size_t, size_t))

typedef struct nd__lapack_functions {
#define ND__MEMBER(name, arguments) void(*name) arguments;
    ND__LAPACK_FUNCTIONS(ND__MEMBER)
#undef ND__MEMBER
} nd__lapack_functions;

/// Those of f32 or f64; NULL where LAPACK does not open.
const nd__lapack_functions *nd__cpu_lapack(nd_dtype dtype);

/// LAPACK itself, to explain that.
nd_optional *nd__cpu_lapack_library(void);
#endif
