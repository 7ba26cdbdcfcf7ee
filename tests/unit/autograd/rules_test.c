// Every gradient rule against central differences, first and second order.
//
// ops.inc makes one test per differentiable row; a row without a case in the table below fails. A
// case's graph must really contain a node of its row, so that a case cannot check something else.
// For the second order the function is also squared: then the gradient that reaches the rule
// depends on the inputs, and the derivative of the rule with respect to it is checked too.
#include "tests/testing.h"

#include "tests/unit/autograd/rule_cases.h"

static nd_tensor *make_input(const input *from, uint64_t stream, nd_dtype dtype) {
    nd_auto nd_tensor *unit = nd_rand((nd_key){17, stream}, from->ndim, from->shape, dtype);
    nd_auto nd_tensor *scaled = nd_mul_scalar(unit, from->high - from->low);
    nd_tensor *x = nd_add_scalar(scaled, from->low);
    assert_handle(x);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

static bool graph_contains(const nd_node *node, nd_op op) {
    if (!node)
        return false;
    if (node->op == op)
        return true;
    for (uint32_t i = 0; i < node->ninputs; i++)
        if (node->inputs[i].source && node->inputs[i].source_is_node &&
            graph_contains((const nd_node *)node->inputs[i].source, op))
            return true;
    return false;
}

F(squared) {
    const rule_case *tested = data;
    nd_auto nd_tensor *y = tested->f(count, x, NULL);
    return nd_square(y);
}

static void check_case(const rule_case *tested, size_t number) {
    nd_dtype dtype = tested->dtype ? tested->dtype : ND_F64;
    double eps = tested->eps > 0 ? tested->eps : 1e-6;
    double tolerance = tested->tolerance > 0 ? tested->tolerance : 1e-4;
    nd_tensor *inputs[MAX_INPUTS] = {NULL};
    size_t count = (size_t)tested->count;
    for (size_t i = 0; i < count; i++)
        inputs[i] = make_input(&tested->inputs[i], 100 * number + i, dtype);
    const nd_tensor *const *borrowed = (const nd_tensor *const *)inputs;
    nd_tensor *y = tested->f(count, borrowed, NULL);
    assert_handle(y);
    if (tested->op != ND_OP_none)
        assert_true(graph_contains(nd_get_node(y), tested->op));
    nd_release(y);
    assert_ok(nd_gradcheck(tested->f, NULL, count, borrowed, 1, eps, tolerance));
    assert_ok(nd_gradcheck(tested->f, NULL, count, borrowed, 2, eps, tolerance));
    void *data = (void *)(uintptr_t)tested;
    assert_ok(nd_gradcheck(squared, data, count, borrowed, 2, eps, tolerance));
    for (size_t i = 0; i < count; i++)
        nd_release(inputs[i]);
}

static void check_row(nd_op op) {
    size_t found = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (cases[i].op == op) {
            check_case(&cases[i], i);
            found++;
        }
    assert_true(found > 0);
}

#define TEST_YES(name)                           \
    static void test_rule_##name(void **state) { \
        (void)state;                             \
        check_row(ND_OP_##name);                 \
    }
#define TEST_NO(name)
#define TEST_ZERO(name)
#define ND_OP(name, family, inputs, differentiable, saves) TEST_##differentiable(name)
#include "kernels/ops.inc"
#undef ND_OP

static void test_composed_operations(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof composed_cases / sizeof composed_cases[0]; i++)
        check_case(&composed_cases[i], 1000 + i);
}

/// Consumes a result that wants no gradient.
static void assert_constant(nd_tensor *y) {
    assert_handle(y);
    assert_false(nd_requires_grad(y));
    assert_true(nd_is_leaf(y));
    nd_release(y);
}

/// Rows marked ZERO: their results want no gradient, and hide none that comes another way.
static void test_piecewise_constant_operations(void **state) {
    (void)state;
    const input shape = {M(3, 4)};
    nd_auto nd_tensor *a = make_input(&shape, 1, ND_F64);
    nd_auto nd_tensor *b = make_input(&shape, 2, ND_F64);
    assert_constant(nd_argmax(a, 0, false));
    assert_constant(nd_argmin(a, 1, true));
    assert_constant(nd_ones_like(a));
    int seen = 0;
    for (int i = 0; i < ELEMENTWISE_ROWS; i++) {
        const elementwise_row *row = &elementwise_rows[i];
        if (!nd__op_infos[row->op].is_constant || !elementwise_takes(row, ND_F64))
            continue;
        assert_constant(row->run(a, b, ND_NUMBER(2), ND_NUMBER(5)));
        seen++;
    }
    assert_true(seen >= 7);
    // |a| = a sign(a)
    nd_auto nd_tensor *sign = nd_sign(a);
    nd_auto nd_tensor *size = nd_mul(a, sign);
    nd_auto nd_tensor *loss = nd_sum(size, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    assert_memory_equal(nd_get_data(nd_get_grad(a)), nd_get_data(sign), 12 * sizeof(double));
}

#define ENTRY_YES(name) ND_TEST(test_rule_##name),
#define ENTRY_NO(name)
#define ENTRY_ZERO(name)

int main(void) {
    const struct CMUnitTest tests[] = {
#define ND_OP(name, family, inputs, differentiable, saves) ENTRY_##differentiable(name)
#include "kernels/ops.inc"
#undef ND_OP
        ND_TEST(test_composed_operations),
        ND_TEST(test_piecewise_constant_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
