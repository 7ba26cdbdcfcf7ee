// A direction of a recurrent net by its kernels, random sizes, layouts and gradients, beside the same by
// recorded operations: results, gradients, gradients of gradients; and what else its node promises.
#include "lib/ops/recurrent_steps.h"
#include "lib/ops/recurrent_walk.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/neural.h>

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

enum { CASES = 150, INPUTS = 5, RESULTS = 3 };
enum { INPUT, WEIGHT, BIAS, HIDDEN, MEMORY };

typedef nd_status way(const nd__recurrent_direction *direction, nd__recurrent_result *ret_result);

typedef struct problem {
    nd_cell cell;
    bool reverse;
    int64_t steps, rows, size;
    nd_dtype dtype, products;  ///< products: of the weight and the bias
    nd_tensor *inputs[INPUTS]; ///< or NULL
    nd_tensor *grads[RESULTS]; ///< of the results, or NULL
} problem;

static int64_t below(int64_t limit) {
    return rand() % limit;
}

static nd_tensor *random_input(int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_tensor *x = random_tensor((layout)below(LAYOUTS), ndim, shape, dtype, -1, 1);
    assert_handle(x);
    if (below(5))
        assert_ok(nd_set_requires_grad(x, true));
    return x;
}

/// One element becomes NaN.
static void poison(nd_tensor *x) {
    nd_no_grad {
        nd_auto nd_tensor *row = nd_select(x, below(nd_get_size(x, 0)), 0);
        nd_auto nd_tensor *line = nd_select(row, below(nd_get_size(row, 0)), 0);
        nd_auto nd_tensor *one = nd_select(line, below(nd_get_size(line, 0)), 0);
        assert_ok(nd_fill_(one, NAN));
    }
}

static problem random_problem(nd_dtype dtype) {
    problem p = {.cell = (nd_cell)below(ND_CELLS),
                 .reverse = below(2),
                 .steps = 1 + below(below(2) ? 3 : 9),
                 .rows = 1 + below(6),
                 .size = 1 + below(below(2) ? 4 : 40),
                 .dtype = dtype == ND_F64 ? ND_F64 : ND_F32,
                 .products = dtype};
    int64_t wide = nd_cell_gates(p.cell) * p.size;
    const int64_t *state = DIMS(p.rows, p.size);
    p.inputs[INPUT] = random_input(3, DIMS(p.steps, p.rows, wide), p.dtype);
    p.inputs[WEIGHT] = random_input(2, DIMS(wide, p.size), p.products);
    p.inputs[BIAS] = below(2) ? random_input(1, &wide, p.products) : NULL;
    p.inputs[HIDDEN] = below(3) ? random_input(2, state, p.dtype) : NULL;
    p.inputs[MEMORY] = p.cell == ND_CELL_LSTM && below(3) ? random_input(2, state, p.dtype) : NULL;
    const int64_t *shapes[RESULTS] = {DIMS(p.steps, p.rows, p.size), state, state};
    for (int i = 0; i < (p.cell == ND_CELL_LSTM ? 3 : 2); i++)
        if (below(3))
            p.grads[i] =
                random_tensor((layout)below(LAYOUTS), i ? 2 : 3, shapes[i], p.dtype, -1, 1);
    // Where each step's state has a gradient; recorded operations skip a path that has none.
    if (p.grads[0] && below(4) == 0)
        poison(p.inputs[INPUT]);
    return p;
}

static void release_problem(problem *p) {
    for (int i = 0; i < INPUTS; i++)
        nd_release(p->inputs[i]);
    for (int i = 0; i < RESULTS; i++)
        nd_release(p->grads[i]);
}

static nd__recurrent_direction direction_of(const problem *p) {
    return (nd__recurrent_direction){
        "net",           p->cell,           p->reverse,       p->inputs[INPUT], p->inputs[WEIGHT],
        p->inputs[BIAS], p->inputs[HIDDEN], p->inputs[MEMORY]};
}

/// The sum of the results times their gradients; NULL where there are no gradients.
static nd_tensor *loss_of(const problem *p, const nd__recurrent_result *result) {
    const nd_tensor *results[RESULTS] = {result->output, result->hidden, result->memory};
    nd_tensor *total = NULL;
    for (int i = 0; i < RESULTS; i++) {
        if (!p->grads[i])
            continue;
        nd_auto nd_tensor *product = nd_mul(results[i], p->grads[i]);
        nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
        nd_tensor *both = total ? nd_add(total, sum) : nd_retain(sum);
        nd_release(total);
        total = both;
        assert_handle(total);
    }
    return total;
}

typedef struct outcome {
    nd__recurrent_result results;
    nd_tensor *grads[INPUTS];  ///< NULL where none is wanted
    nd_tensor *second[INPUTS]; ///< of the sum of the gradients' squares
} outcome;

static size_t wanted_of(const problem *p, const nd_tensor **ret_wanted) {
    size_t count = 0;
    for (int i = 0; i < INPUTS; i++)
        if (p->inputs[i] && nd_requires_grad(p->inputs[i]))
            ret_wanted[count++] = p->inputs[i];
    return count;
}

/// Runs one way, with gradients, recorded and again differentiated where `twice`.
static outcome run(const problem *p, way *go, bool twice) {
    outcome o = {0};
    nd__recurrent_direction d = direction_of(p);
    assert_ok(go(&d, &o.results));
    const nd_tensor *wanted[INPUTS];
    size_t count = wanted_of(p, wanted);
    nd_auto nd_tensor *loss = loss_of(p, &o.results);
    if (!loss || count == 0 || !nd_is_grad_enabled())
        return o;
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.allow_unused = true;
    options.create_graph = twice;
    assert_ok(nd_grad(loss, count, wanted, &options, o.grads));
    if (!twice)
        return o;
    nd_auto nd_tensor *total = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!o.grads[i])
            continue;
        nd_auto nd_tensor *square = nd_square(o.grads[i]);
        nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
        nd_tensor *both = total ? nd_add(total, sum) : nd_retain(sum);
        nd_release(total);
        total = both;
    }
    options.create_graph = false;
    if (total && nd_requires_grad(total))
        assert_ok(nd_grad(total, count, wanted, &options, o.second));
    return o;
}

static void release_outcome(outcome *o) {
    nd__recurrent_direction_release(&o->results);
    for (int i = 0; i < INPUTS; i++) {
        nd_release(o->grads[i]);
        nd_release(o->second[i]);
    }
}

/// The largest element, or 1: what is left of a sum has the errors of what was added up.
static double scale_of(const nd_tensor *x) {
    double largest = 1;
    for (int64_t i = 0; x && i < nd_get_numel(x); i++)
        largest = fmax(largest, fabs(at_flat(x, i)));
    return largest;
}

/// None is zeros where the other way found some.
static void assert_same(const char *what, const nd_tensor *found, const nd_tensor *expected,
                        double tolerance) {
    const nd_tensor *any = found ? found : expected;
    double error = tolerance * scale_of(expected);
    for (int64_t i = 0; any && i < nd_get_numel(any); i++)
        assert_close(what, found ? at_flat(found, i) : 0, expected ? at_flat(expected, i) : 0, 0,
                     error);
}

static void compare(const outcome *found, const outcome *expected, double tolerance) {
    assert_same("output", found->results.output, expected->results.output, tolerance);
    assert_same("hidden", found->results.hidden, expected->results.hidden, tolerance);
    assert_same("memory", found->results.memory, expected->results.memory, tolerance);
    for (int i = 0; i < INPUTS; i++) {
        assert_same("gradient", found->grads[i], expected->grads[i], tolerance);
        assert_same("second gradient", found->second[i], expected->second[i], 30 * tolerance);
    }
}

static void both_ways_agree(nd_dtype dtype, bool twice, double tolerance) {
    problem p = random_problem(dtype);
    outcome walked = run(&p, nd__recurrent_walk, twice);
    outcome stepped = run(&p, nd__recurrent_steps, twice);
    compare(&walked, &stepped, tolerance);
    release_outcome(&walked);
    release_outcome(&stepped);
    nd_no_grad {
        walked = run(&p, nd__recurrent_walk, false);
        stepped = run(&p, nd__recurrent_steps, false);
    }
    compare(&walked, &stepped, tolerance);
    release_outcome(&walked);
    release_outcome(&stepped);
    release_problem(&p);
}

static void directions_agree(void) {
    srand(5);
    for (int i = 0; i < CASES; i++) {
        both_ways_agree(ND_F64, i % 3 == 0, 1e-11);
        both_ways_agree(ND_F32, false, 2e-5);
    }
}

static void test_directions_agree(void **state) {
    (void)state;
    on_every_isa(directions_agree);
}

/// Products of halves, as under autocast: the states differ by what one rounding does.
static void test_directions_of_halves_agree(void **state) {
    (void)state;
    srand(6);
    for (int i = 0; i < CASES; i++) {
        both_ways_agree(ND_F16, false, 2e-2);
        both_ways_agree(ND_BF16, false, 1.5e-1);
    }
}

/// Of the first state both weight and input are made: each gradient is along its own path alone.
static void test_inputs_made_of_each_other(void **state) {
    (void)state;
    nd_auto nd_tensor *weight = random_dense(2, DIMS(9, 3), ND_F64, -1, 1);
    assert_ok(nd_set_requires_grad(weight, true));
    nd_auto nd_tensor *part = nd_slice(weight, 0, 2, 1, 0);
    nd_auto nd_tensor *hidden = nd_tanh(part);
    nd_auto nd_tensor *turned = nd_transpose(weight, 0, 1);
    nd_auto nd_tensor *some = nd_slice(turned, 0, 2, 1, 0);
    nd_auto nd_tensor *input = nd_unsqueeze(some, 0);
    nd_tensor *second[2] = {0};
    for (int i = 0; i < 2; i++) {
        problem p = {.cell = ND_CELL_GRU, .inputs = {input, weight, NULL, hidden}};
        p.grads[0] = random_dense(3, DIMS(1, 2, 3), ND_F64, 0.5, 0.5);
        nd__recurrent_direction d = direction_of(&p);
        nd__recurrent_result result = {0};
        assert_ok((i ? nd__recurrent_steps : nd__recurrent_walk)(&d, &result));
        nd_auto nd_tensor *loss = loss_of(&p, &result);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        nd_tensor *grad = NULL;
        const nd_tensor *of = weight;
        assert_ok(nd_grad(loss, 1, &of, &options, &grad));
        nd_auto nd_tensor *square = nd_square(grad);
        nd_auto nd_tensor *total = nd_sum(square, 0, NULL, false);
        options.create_graph = false;
        assert_ok(nd_grad(total, 1, &of, &options, &second[i]));
        nd_release(grad);
        nd_release(p.grads[0]);
        nd__recurrent_direction_release(&result);
    }
    assert_same("second gradient", second[0], second[1], 1e-11);
    nd_release(second[0]);
    nd_release(second[1]);
}

/// Whatever of a net is changed in place between its passes, the backward pass refuses.
static void test_changes_in_place_are_refused(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        nd_auto nd_tensor *x = random_dense(3, DIMS(4, 2, 3), ND_F64, -1, 1);
        nd_auto nd_tensor *hidden = random_dense(3, DIMS(1, 2, 3), ND_F64, -1, 1);
        nd_auto nd_tensor *input_weight = random_dense(2, DIMS(12, 3), ND_F64, -1, 1);
        nd_auto nd_tensor *weight = random_dense(2, DIMS(12, 3), ND_F64, -1, 1);
        assert_ok(nd_set_requires_grad(weight, true));
        const nd_tensor *weights[] = {input_weight, weight};
        nd_auto nd_tensor *y = NULL;
        nd_auto nd_tensor *h = NULL;
        nd_auto nd_tensor *c = NULL;
        assert_ok(nd_lstm(x, hidden, hidden, 2, weights, NULL, &y, &h, &c));
        nd_auto nd_tensor *loss = nd_sum(c, 0, NULL, false);
        nd_tensor *changed[] = {weight, hidden, c, x};
        nd_no_grad {
            assert_ok(nd_mul_scalar_(changed[which], 2));
        }
        nd_status status = nd_backward(loss, NULL);
        // The last states are the caller's own, and of x the product with its weight is kept.
        if (which < 2)
            assert_status(status, ND_ERROR_STATE);
        else
            assert_ok(status);
        nd_error_clear();
        assert_ok(nd_set_grad(weight, NULL));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_directions_agree),
        ND_TEST(test_directions_of_halves_agree),
        ND_TEST(test_inputs_made_of_each_other),
        ND_TEST(test_changes_in_place_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
