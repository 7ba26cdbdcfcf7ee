// LOSS: losses of pairs, their sums and their gradients, for each row of kernels/losses.inc; the
// negative log likelihood of classes; cross entropy and its gradient, in rows of all lengths.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>

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
    if (both(&call, 1, &length, tolerance_of_sums(TOLERANCE, sums ? count : 1)) != ND_OK)
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

// ------------------------------------------------------------------------------------------------
// cross entropy

/// Rows that a warp, a block of each size, or nobody keeps; by packs and not.
static const int64_t logit_shapes[][2] = {
    {1, 1},    {32, 10},  {1, 3000}, {3000, 2},  {128, 1000}, {70, 66},   {5, 256},   {5, 264},
    {3, 8192}, {3, 8191}, {3, 9000}, {2, 20000}, {2, 30001},  {2, 32768}, {2, 40000}, {3, 50257},
};

static const nd_dtype floats[] = {ND_F32, ND_F64, ND_F16, ND_BF16};

static nd_kernel_call cross_entropy_call(nd_dtype dtype, const int64_t *shape) {
    nd_kernel_call call = {.op = ND_OP_cross_entropy, .noperands = 3};
    nd_dtype wide = dtype == ND_F64 ? ND_F64 : ND_F32;
    call.attrs.i[0] = shape[0];
    call.attrs.i[1] = shape[1];
    call.operand[0] = contiguous(&call, values(wide, 1), wide);
    call.operand[1] = contiguous(&call, values(dtype, shape[0] * shape[1]), dtype);
    call.operand[2] = contiguous(&call, indices(shape[0], shape[1]), ND_I64);
    return call;
}

/// Logits of 16 bits give what the CPU makes of the same numbers in f32.
static void cross_entropy_agrees(nd_dtype dtype, const int64_t *shape) {
    nd_kernel_call call = cross_entropy_call(dtype, shape);
    int64_t one = 1;
    if (dtype_bytes(dtype) > 2) {
        assert_int_equal(both(&call, 1, &one, TOLERANCE), ND_OK);
    } else {
        nd_kernel_call wide = call;
        wide.operand[0].data = values(ND_F32, 1);
        wide.operand[1].data = converted(&call.operand[1], ND_F32, shape[0] * shape[1]);
        wide.operand[1].dtype = ND_F32;
        assert_int_equal(run_on_cpu(&wide), ND_OK);
        assert_int_equal(run_on_cuda(&call), ND_OK);
        compare_values(&call, 0, 1, wide.operand[0].data, call.operand[0].data, TOLERANCE);
    }
    free_values();
}

/// (softmax - 1 at the target) g / rows, in f64.
static void expect_gradient(const nd_kernel_call *call, void *expected) {
    int64_t rows = call->attrs.i[0], classes = call->attrs.i[1];
    const nd_operand *logits = &call->operand[2], *grad = &call->operand[1];
    double g = element_as_double(grad->data, grad->dtype, 0);
    for (int64_t row = 0; row < rows; row++) {
        double largest = -INFINITY, sum = 0;
        for (int64_t i = row * classes; i < (row + 1) * classes; i++)
            largest = fmax(largest, element_as_double(logits->data, logits->dtype, i));
        for (int64_t i = row * classes; i < (row + 1) * classes; i++)
            sum += exp(element_as_double(logits->data, logits->dtype, i) - largest);
        for (int64_t i = 0; i < classes; i++) {
            int64_t at = row * classes + i;
            double power = exp(element_as_double(logits->data, logits->dtype, at) - largest);
            bool chosen = ((const int64_t *)call->operand[3].data)[row] == i;
            set_element(expected, logits->dtype, at,
                        (power / sum - (chosen ? 1 : 0)) * g / (double)rows);
        }
    }
}

/// `skip` elements before the first logit, and with `both_skip` before its gradient: rows that do not begin at
/// a multiple of 16 bytes.
static void cross_entropy_grad_agrees(nd_dtype dtype, const int64_t *shape, int64_t skip,
                                      bool both_skip) {
    int64_t count = shape[0] * shape[1];
    nd_kernel_call of = cross_entropy_call(dtype, shape);
    nd_kernel_call call = of;
    call.op = ND_OP_cross_entropy_grad;
    call.noperands = 4;
    call.operand[0] = contiguous(&call, values(dtype, count + skip), dtype);
    call.operand[1] = of.operand[0];
    call.operand[2] = contiguous(&call, values(dtype, count + skip), dtype);
    call.operand[2].data = (char *)call.operand[2].data + (size_t)skip * dtype_bytes(dtype);
    if (both_skip)
        call.operand[0].data = (char *)call.operand[0].data + (size_t)skip * dtype_bytes(dtype);
    call.operand[3] = of.operand[2];
    void *expected = values(dtype, count);
    expect_gradient(&call, expected);
    assert_int_equal(run_on_cpu(&call), ND_ERROR_UNSUPPORTED);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    compare_values(&call, 0, count, expected, call.operand[0].data, TOLERANCE);
    count_compared(call.op);
    free_values();
}

/// One row with what is no number, or has no exponential: what a short row with the same in it makes of it,
/// of a long one in each place of a pack.
static void special_row_agrees(nd_dtype dtype, int64_t classes, double special, int64_t at) {
    const int64_t shape[] = {1, classes};
    nd_kernel_call call = cross_entropy_call(dtype, shape);
    int64_t one = 1;
    set_element(call.operand[1].data, dtype, at, special);
    *(int64_t *)call.operand[2].data = 1;
    assert_int_equal(both(&call, 1, &one, TOLERANCE), ND_OK);
    nd_kernel_call grad = {.op = ND_OP_cross_entropy_grad, .noperands = 4, .attrs = call.attrs};
    grad.operand[0] = contiguous(&grad, values(dtype, classes), dtype);
    grad.operand[1] = call.operand[0];
    set_element(grad.operand[1].data, dtype, 0, 1.0);
    grad.operand[2] = call.operand[1];
    grad.operand[3] = call.operand[2];
    assert_int_equal(run_on_cuda(&grad), ND_OK);
    for (int64_t i = 0; i < classes; i++) {
        double found = element_as_double(grad.operand[0].data, dtype, i);
        assert_true(special == -INFINITY ? !isnan(found) && (i != at || found == 0) : isnan(found));
    }
    free_values();
}

void test_cross_entropy_of_special_values(void **state) {
    (void)state;
    static const double special[] = {NAN, INFINITY, -INFINITY};
    static const int64_t places[] = {0, 2, 4099, 40000};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
            special_row_agrees(ND_F32, 40001, special[i], places[place]);
            special_row_agrees(ND_F64, 40001, special[i], places[place]);
        }
}

void test_cross_entropy_agrees(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof logit_shapes / sizeof *logit_shapes; i++)
        for (int which = 0; which < 4; which++) {
            cross_entropy_agrees(floats[which], logit_shapes[i]);
            cross_entropy_grad_agrees(floats[which], logit_shapes[i], 0, false);
            cross_entropy_grad_agrees(floats[which], logit_shapes[i], 1, false);
            cross_entropy_grad_agrees(floats[which], logit_shapes[i], 3, true);
        }
    const int64_t shape[] = {3, 5};
    nd_kernel_call call = cross_entropy_call(ND_I32, shape);
    assert_int_equal(run_on_cuda(&call), ND_ERROR_UNSUPPORTED);
    free_values();
}
