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
    assert_constant(nd_argsort(a, 0, false));
    assert_constant(nd_searchsorted(a, b, false));
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

// Rows whose gradient is one kernel while nothing is recorded.
static const nd_op with_derivative[] = {
#define ND_DERIVATIVE(name, ...) ND_OP_##name,
#include "kernels/ops.inc"
};

/// Owned gradient of a row at x, by its rule or, unrecorded, by the kernel of its derivative.
static nd_tensor *slope_of(const elementwise_row *row, const nd_tensor *x, double p, double q,
                           bool recorded) {
    nd_auto nd_tensor *y = row->run(x, NULL, ND_NUMBER(p), ND_NUMBER(q));
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = recorded;
    nd_tensor *gradient = NULL;
    assert_ok(nd_grad(loss, 1, &x, &options, &gradient));
    return gradient;
}

static void check_derivative(const elementwise_row *row, nd_dtype dtype, double p, double q) {
    static const double corners[] = {0, 1, -1, 3, -3, 6, -0.5, 20, -20, 88, -88, NAN, INFINITY};
    enum { CORNERS = sizeof corners / sizeof *corners };
    nd_auto nd_tensor *special = nd_from_data(corners, ND_SHAPE(CORNERS), ND_F64);
    nd_auto nd_tensor *random = nd_randn((nd_key){3, 5}, ND_SHAPE(100), ND_F64);
    nd_auto nd_tensor *both = nd_concat(2, (const nd_tensor *[]){special, random}, 0);
    nd_auto nd_tensor *x = nd_cast(both, dtype);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *by_rule = slope_of(row, x, p, q, true);
    nd_auto nd_tensor *by_kernel = slope_of(row, x, p, q, false);
    nd_auto nd_tensor *rule = nd_cast(by_rule, ND_F64), *kernel = nd_cast(by_kernel, ND_F64);
    const double *expected = nd_get_data(rule), *got = nd_get_data(kernel);
    double tolerance = dtype == ND_F64 ? 1e-13 : 4e-6;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        if (got[i] != expected[i] && !(isnan(got[i]) && isnan(expected[i])) &&
            !(fabs(got[i] - expected[i]) <= tolerance * fmax(1, fabs(expected[i]))))
            fail_msg("%s (%g, %g), %s, element %d: rule %.9g, kernel %.9g", row->name, p, q,
                     nd_dtype_get_name(dtype), (int)i, expected[i], got[i]);
}

static nd_tensor *run_smooth_l1(const nd_tensor *a, const nd_tensor *b, nd_number p, nd_number q) {
    (void)b, (void)q;
    return nd__elementwise_with_limit(ND_OP_smooth_l1, a, p.value.f64);
}
static nd_tensor *run_huber(const nd_tensor *a, const nd_tensor *b, nd_number p, nd_number q) {
    (void)b, (void)q;
    return nd__elementwise_with_limit(ND_OP_huber, a, p.value.f64);
}
/// Those without a public function.
static const elementwise_row inner_rows[] = {
    {.name = "smooth_l1", .op = ND_OP_smooth_l1, .run = run_smooth_l1},
    {.name = "huber", .op = ND_OP_huber, .run = run_huber},
};

static void test_derivatives_are_what_the_rules_give(void **state) {
    (void)state;
    size_t checked = sizeof inner_rows / sizeof *inner_rows;
    for (size_t i = 0; i < sizeof inner_rows / sizeof *inner_rows; i++) {
        check_derivative(&inner_rows[i], ND_F32, 1.5, 2);
        check_derivative(&inner_rows[i], ND_F64, 1.5, 2);
    }
    for (size_t k = 0; k < sizeof with_derivative / sizeof *with_derivative; k++)
        for (int i = 0; i < ELEMENTWISE_ROWS; i++)
            if (elementwise_rows[i].op == with_derivative[k]) {
                check_derivative(&elementwise_rows[i], ND_F32, 1.5, 2);
                check_derivative(&elementwise_rows[i], ND_F64, 1.5, 2);
                checked++;
            }
    assert_int_equal(checked, sizeof with_derivative / sizeof *with_derivative);
}

/// At a limit, beyond it, between two that are one, and where a limit is none; 16-bit floats on both
/// sides of one that they do not hold.
static void test_derivatives_with_limits(void **state) {
    (void)state;
    static const double limits[][2] = {
        {-0.5, 3},      {1, 1},     {-INFINITY, 1}, {0, INFINITY}, {-INFINITY, INFINITY},
        {-0.3, 0.7001}, {-1, 1e300}};
    int checked = 0;
    for (int i = 0; i < ELEMENTWISE_ROWS; i++) {
        if (elementwise_rows[i].op != ND_OP_clip && elementwise_rows[i].op != ND_OP_hardtanh)
            continue;
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++)
            for (nd_dtype dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
                if (nd__dtype_is_float(dtype)) {
                    check_derivative(&elementwise_rows[i], dtype, limits[k][0], limits[k][1]);
                    checked++;
                }
    }
    assert_int_equal(checked, 2 * 7 * 4);
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
        ND_TEST(test_derivatives_are_what_the_rules_give),
        ND_TEST(test_derivatives_with_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
