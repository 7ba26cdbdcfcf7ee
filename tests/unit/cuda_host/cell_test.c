// CELL: steps of recurrent nets and their gradients.
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

#define TOLERANCE 100
/// Of products of up to five numbers, which here may be above 1, and of what is left of a difference.
#define PRODUCT_TOLERANCE 1000

static nd_kernel_call cell_call(nd_op op, nd_cell cell, int64_t n, int64_t size) {
    nd_kernel_call call = {.op = op, .noperands = op == ND_OP_recurrent_cell ? 6 : 9};
    call.attrs = (nd_op_attrs){.i = {cell, n, size}};
    return call;
}

static nd_operand some(const nd_kernel_call *call, nd_dtype dtype, int64_t count) {
    return contiguous(call, count ? values(dtype, count) : NULL, dtype);
}

static void step_agrees(nd_cell cell, nd_dtype dtype, int64_t n, int64_t size, bool keeps) {
    nd_kernel_call call = cell_call(ND_OP_recurrent_cell, cell, n, size);
    bool lstm = cell == ND_CELL_LSTM, gru = cell == ND_CELL_GRU;
    int64_t state = n * size, wide = nd_cell_gates(cell) * state;
    const int64_t written[] = {state, lstm ? state : 0, keeps && (lstm || gru) ? 4 * state : 0};
    for (int i = 0; i < 3; i++)
        call.operand[i] = some(&call, dtype, written[i]);
    call.operand[3] = some(&call, dtype, wide);
    call.operand[4] = some(&call, dtype, wide);
    call.operand[5] = some(&call, dtype, lstm || gru ? state : 0);
    assert_int_equal(both(&call, written[2] ? 3 : lstm ? 2 : 1, written, TOLERANCE), ND_OK);
    if (!lstm)
        return;
    call.operand[5] = call.operand[1]; // in the place of the one before
    assert_int_equal(both(&call, written[2] ? 3 : 2, written, TOLERANCE), ND_OK);
}

/// `given`: bits for g, what came through the gates, and what is carried.
static void gradient_agrees(nd_cell cell, nd_dtype dtype, int64_t n, int64_t size, int given) {
    nd_kernel_call call = cell_call(ND_OP_recurrent_cell_grad, cell, n, size);
    bool lstm = cell == ND_CELL_LSTM, gru = cell == ND_CELL_GRU, simple = !lstm && !gru;
    int64_t state = n * size, wide = nd_cell_gates(cell) * state;
    const int64_t written[] = {wide, gru ? wide : 0, simple ? 0 : state};
    for (int i = 0; i < 3; i++)
        call.operand[i] = some(&call, dtype, written[i]);
    for (int i = 0; i < 2; i++)
        call.operand[3 + i] = some(&call, dtype, given >> i & 1 ? state : 0);
    call.operand[5] = given & 4 && !simple ? call.operand[2] : some(&call, dtype, 0);
    call.operand[6] = some(&call, dtype, simple ? 0 : 4 * state);
    call.operand[7] = some(&call, dtype, simple ? 0 : state);
    call.operand[8] = some(&call, dtype, gru ? 0 : state);
    assert_int_equal(both(&call, simple ? 1 : 3, written, PRODUCT_TOLERANCE), ND_OK);
}

void test_recurrent_cells_agree(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {1, 7}, {3, 16}, {16, 128}, {70, 33}, {2, 3000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int cell = 0; cell < ND_CELLS; cell++)
            for (int wide = 0; wide < 2; wide++) {
                nd_dtype dtype = wide ? ND_F64 : ND_F32;
                for (int keeps = 0; keeps < 2; keeps++)
                    step_agrees((nd_cell)cell, dtype, shapes[i][0], shapes[i][1], keeps);
                for (int given = 0; given < 8; given++)
                    gradient_agrees((nd_cell)cell, dtype, shapes[i][0], shapes[i][1], given);
                free_values();
            }
    nd_kernel_call call = cell_call(ND_OP_recurrent_cell, ND_CELL_TANH, 1, 4);
    for (int i = 0; i < 6; i++)
        call.operand[i] = some(&call, ND_F16, 4);
    assert_int_equal(run_on_cpu(&call), ND_ERROR_UNSUPPORTED);
    assert_int_equal(run_on_cuda(&call), ND_ERROR_UNSUPPORTED);
    free_values();
}
