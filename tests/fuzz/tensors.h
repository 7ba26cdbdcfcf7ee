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

#endif
