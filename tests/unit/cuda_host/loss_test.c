// LOSS: losses of pairs, their sums and their gradients, for each row of kernels/losses.inc; the
// negative log likelihood of classes.
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

#define TOLERANCE 100

static const char *const names[ND_PAIR_LOSSES] = {
#define ND_PAIR_LOSS(name, ...) #name,
#include "kernels/losses.inc"
};

static nd_kernel_call loss_call(nd_op op, int loss, int64_t count, bool sums) {
    nd_kernel_call call = {.op = op, .noperands = op == ND_OP_pair_loss ? 3 : 5};
    call.attrs = (nd_op_attrs){.f = {0.75, sums ? 1.0 / (double)count : 1.0},
                               .i = {loss, count, sums ? 1 : 0}};
    return call;
}

static void pair_loss_agrees(int loss, nd_dtype dtype, int64_t count, bool sums,
                             void *(*fill)(nd_dtype, int64_t)) {
    nd_kernel_call call = loss_call(ND_OP_pair_loss, loss, count, sums);
    int64_t length = sums ? 1 : count;
    call.operand[0] = contiguous(&call, values(dtype, length), dtype);
    call.operand[1] = contiguous(&call, fill(dtype, count), dtype);
    call.operand[2] = contiguous(&call, fill(dtype, count), dtype);
    if (both(&call, 1, &length, TOLERANCE) != ND_OK)
        fail_msg("%s of %lld pairs", names[loss], (long long)count);

    nd_kernel_call grad = loss_call(ND_OP_pair_loss_grad, loss, count, sums);
    const int64_t lengths[] = {count, count};
    grad.operand[0] = contiguous(&grad, values(dtype, count), dtype);
    grad.operand[1] = contiguous(&grad, values(dtype, count), dtype);
    grad.operand[2] = contiguous(&grad, values(dtype, length), dtype);
    grad.operand[3] = call.operand[1];
    grad.operand[4] = call.operand[2];
    if (both(&grad, 2, lengths, TOLERANCE) != ND_OK)
        fail_msg("the gradients of %s of %lld pairs", names[loss], (long long)count);
    grad.operand[1].data = NULL;
    assert_int_equal(both(&grad, 1, lengths, TOLERANCE), ND_OK);
    free_values();
}

void test_pair_losses_agree(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 7, 100, 5000, 50000};
    for (int loss = 0; loss < ND_PAIR_LOSSES; loss++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int way = 0; way < 4; way++)
                pair_loss_agrees(loss, way % 2 ? ND_F64 : ND_F32, counts[i], way < 2,
                                 way == 3 ? special_values : values);
}

/// n, classes, places.
static void nll_agrees(const int64_t *shape, nd_dtype dtype, nd_nll_result result, bool weighted) {
    int64_t targets = shape[0] * shape[2], numbers = targets * shape[1];
    nd_kernel_call call = {.op = ND_OP_nll_loss, .noperands = 4};
    call.attrs.i[0] = shape[0];
    call.attrs.i[1] = shape[1];
    call.attrs.i[2] = shape[2];
    call.attrs.i[3] = 1;
    call.attrs.i[4] = (int64_t)result;
    int64_t length = result == ND_NLL_EACH ? targets : 1;
    call.operand[0] = contiguous(&call, values(dtype, length), dtype);
    call.operand[1] = contiguous(&call, values(dtype, numbers), dtype);
    call.operand[2] = contiguous(&call, indices(targets, shape[1]), ND_I64);
    call.operand[3] = contiguous(&call, weighted ? values(dtype, shape[1]) : NULL, dtype);
    assert_int_equal(both(&call, 1, &length, TOLERANCE), ND_OK);

    call.op = ND_OP_nll_loss_grad;
    call.operand[1] = call.operand[0];
    call.operand[0] = contiguous(&call, values(dtype, numbers), dtype);
    assert_int_equal(both(&call, 1, &numbers, TOLERANCE), ND_OK);
    free_values();
}

void test_nll_losses_agree(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 2, 1}, {7, 3, 1}, {5, 4, 6}, {300, 10, 1}, {4, 3, 4000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int way = 0; way < 12; way++)
            nll_agrees(shapes[i], way & 1 ? ND_F64 : ND_F32, (nd_nll_result)(way / 4), way & 2);
}
