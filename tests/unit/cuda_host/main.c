// Every CUDA kernel, compiled for the host, against the CPU's kernel of the same operation.
//
// This checks indexing, strides, broadcasting, the joining of partial results, the handling of
// special values and the random sequences. It cannot check what only a GPU does: the launch itself,
// synchronisation within a block, atomic additions.
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

void test_every_operation_was_compared(void **state) {
    (void)state;
    for (int op = ND_OP_none + 1; op < ND_OP_COUNT; op++)
        if (strcmp(op_family((nd_op)op), "VIEW") != 0 &&
            strcmp(op_family((nd_op)op), "LINALG") != 0 &&
            strcmp(op_family((nd_op)op), "FFT") != 0 && compared((nd_op)op) == 0)
            fail_msg("%s was never compared", op_name((nd_op)op));
}

int main(void) {
#define TEST(name) {#name, name, both_begin, both_end, NULL},
    const struct CMUnitTest tests[] = {CUDA_HOST_TESTS(TEST)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
