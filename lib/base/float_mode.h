// The floating-point mode that kernels compute in, and that texts of numbers are written and read in:
// that of IEEE 754 by default, to the nearest, with subnormal numbers and without traps, whatever the
// thread that calls has set for itself.
//
// Else a result would depend on which thread computes which part of it. The library's own threads
// begin in that mode (nd__spawn) and keep it; a thread of the program's is put into it between these
// two, if it is not there already, and then gets back what it had, flags of exceptions included. What
// is computed between them is in functions that are not inlined: the compiler knows nothing of modes.
#ifndef ND_LIB_BASE_FLOAT_MODE_H
#define ND_LIB_BASE_FLOAT_MODE_H
#include <fenv.h>
#include <stdbool.h>

typedef struct nd__float_mode {
    bool changed;
    fenv_t before;
} nd__float_mode;

/// Of the calling thread. It takes a few cycles.
static inline bool nd__float_mode_is_default(void) {
#if defined(__x86_64__)
    const unsigned but_flags = 0xFFC0, masked = 0x1F80;
    return (__builtin_ia32_stmxcsr() & but_flags) == masked;
#elif defined(__aarch64__)
    unsigned long control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control == 0;
#else
    return fegetround() == FE_TONEAREST;
#endif
}

/// `before` is written only where it is needed: a copy of it all would wait for what was written in
/// parts, for longer than the rest of a small kernel's call takes.
static inline void nd__float_mode_begin(nd__float_mode *ret_mode) {
    ret_mode->changed = !nd__float_mode_is_default();
    if (__builtin_expect(ret_mode->changed, 0)) {
        fegetenv(&ret_mode->before);
        fesetenv(FE_DFL_ENV);
    }
}

static inline void nd__float_mode_end(const nd__float_mode *mode) {
    if (__builtin_expect(mode->changed, 0))
        fesetenv(&mode->before);
}
#endif
