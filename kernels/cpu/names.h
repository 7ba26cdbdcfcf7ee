// How the templates of this folder name what they make for the dtype that a type_<dtype>.inc named.
#ifndef ND_KERNELS_CPU_NAMES_H
#define ND_KERNELS_CPU_NAMES_H
#define ND__PASTE3_(a, b, c) a##b##_##c
#define ND__PASTE3(a, b, c) ND__PASTE3_(a, b, c)
/// name_<dtype>
#define ND__TYPED(name) ND__PASTE3(, name, TYPE)
/// nd__name_<dtype>
#define ND__FUNCTION(name) ND__PASTE3(nd__, name, TYPE)

/// A function that loops are to be vectorised over: a call that stays one keeps them scalar.
#define ND__IN_LOOPS static inline __attribute__((always_inline))

/// Whether a product and a sum can be rounded once, in one instruction.
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMA)
#define ND__HAS_FMA 1
#else
#define ND__HAS_FMA 0
#endif
#endif
