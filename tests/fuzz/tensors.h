// An operation as the fuzzer sees it, and its oracle: what an operation computes does not depend on
// how its operands lie in memory.
#ifndef ND_TESTS_FUZZ_TENSORS_H
#define ND_TESTS_FUZZ_TENSORS_H
#include "tests/fuzz/program.h"

/// Takes up to three operands; what else it needs comes from the step.
typedef nd_tensor *(*fuzz_function)(const nd_tensor *const *operands, const fuzz_step *step);

/// Runs an operation on the tensors that the numbers from b on mean, and puts its result where a
/// says. Alone, and now and then, it runs once more on contiguous copies of the operands, and must
/// compute the same.
void fuzz_operation(fuzz_actor *me, const fuzz_step *step, int operands, fuzz_function function);
/// Whether a tensor is so large that its products would take all the time.
bool fuzz_is_large(const nd_tensor *x);

/// An axis that a number means; some tensors lack it.
static inline int fuzz_axis(uint8_t number) {
    return number % 10 - 5;
}

// A call of an operation with so many operands, a function f_NAME.
#define CALL(name, operands)                                      \
    static void call_##name(fuzz_actor *me, const fuzz_step *s) { \
        fuzz_operation(me, s, operands, f_##name);                \
    }
#define ONE(name)                                                                \
    static nd_tensor *f_##name(const nd_tensor *const *in, const fuzz_step *s) { \
        (void)s;                                                                 \
        return nd_##name(in[0]);                                                 \
    }                                                                            \
    CALL(name, 1)
#define TWO(name)                                                                \
    static nd_tensor *f_##name(const nd_tensor *const *in, const fuzz_step *s) { \
        (void)s;                                                                 \
        return nd_##name(in[0], in[1]);                                          \
    }                                                                            \
    CALL(name, 2)
#define THREE(name)                                                              \
    static nd_tensor *f_##name(const nd_tensor *const *in, const fuzz_step *s) { \
        (void)s;                                                                 \
        return nd_##name(in[0], in[1], in[2]);                                   \
    }                                                                            \
    CALL(name, 3)
/// With an expression of `in` and `s`.
#define WITH(name, operands, expression)                                         \
    static nd_tensor *f_##name(const nd_tensor *const *in, const fuzz_step *s) { \
        return expression;                                                       \
    }                                                                            \
    CALL(name, operands)

// Its entry in a table: of one that waits for no device, of one that may.
#define ENTRY(name) {#name, call_##name, FUZZ_QUEUES},
#define WAITING(name) {#name, call_##name, 0},

#endif
