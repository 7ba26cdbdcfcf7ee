// A function held against what PyTorch computes (torch_values.py writes the table) and against
// differences, on inputs that lie in memory in several ways.
#ifndef ND_TESTS_UNIT_OPS_TORCH_CASE_H
#define ND_TESTS_UNIT_OPS_TORCH_CASE_H
#include "tests/unit/ops/values.h"

// A test uses the rows of its own cases.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#include "tests/unit/ops/torch_values.inc"
#pragma GCC diagnostic pop

enum { TORCH_INPUTS = 11 };

typedef struct torch_input {
    int ndim;
    int64_t shape[5];
} torch_input;

typedef struct torch_case {
    const char *name;
    nd_gradcheck_function f;
    const double *values;
    size_t nvalues;
    int count;
    torch_input inputs[TORCH_INPUTS];
} torch_case;

#define TORCH_CASE(name, count, ...) \
    { #name, name, torch_##name, COUNT_OF(torch_##name), count, {__VA_ARGS__ }, }
/// Defines what a case calls: a function of `x`, `count` of them.
#define TORCH_FUNCTION(name) \
    static nd_tensor *name(size_t count, const nd_tensor *const *x, void *data)

/// wave(k, *shape) of torch_values.py.
static inline nd_tensor *wave(int k, int ndim, const int64_t *shape) {
    nd_tensor *x = nd_empty(ndim, shape, ND_F64);
    assert_handle(x);
    double *values = nd_get_data(x);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        values[i] = sin(0.7 * (double)i + 0.3 * (double)(i % 5) * k + k + 1);
    return x;
}

/// A tensor of the same values that lies otherwise: axes reversed, or every second element.
static inline nd_tensor *laid_out(const nd_tensor *x, layout how) {
    int ndim = nd_get_ndim(x);
    if (ndim == 0 || (how != TRANSPOSED && how != STEPPED))
        return nd_clone(x);
    if (how == TRANSPOSED) {
        int axes[ND_MAX_DIMS];
        for (int i = 0; i < ndim; i++)
            axes[i] = ndim - 1 - i;
        nd_auto nd_tensor *turned = nd_permute(x, ndim, axes);
        nd_auto nd_tensor *dense = nd_clone(turned);
        return nd_permute(dense, ndim, axes);
    }
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        shape[i] = 2 * nd_get_shape(x)[i] + 1;
    nd_tensor *window = nd_full(ndim, shape, NAN, nd_get_dtype(x));
    for (int i = 0; i < ndim && window; i++) {
        nd_tensor *narrow = nd_slice(window, 1, INT64_MAX, 2, i);
        nd_release(window);
        window = narrow;
    }
    assert_handle(window);
    assert_ok(nd_copy_(window, x));
    return window;
}

/// Compares x with the numbers from *at on, and moves on.
static inline void assert_torch_values(const torch_case *c, const char *what, const nd_tensor *x,
                                       size_t *at) {
    for (int64_t i = 0; i < nd_get_numel(x); i++, ++*at) {
        if (*at >= c->nvalues)
            fail_msg("%s: there are only %zu values", c->name, c->nvalues);
        if (!close_to(at_flat(x, i), c->values[*at], 1e-11, 1e-12))
            fail_msg("%s, %s, element %lld: got %.17g, PyTorch has %.17g", c->name, what,
                     (long long)i, at_flat(x, i), c->values[*at]);
    }
}

static inline void check_torch_layout(const torch_case *c, layout how) {
    nd_tensor *inputs[TORCH_INPUTS] = {0}, *gradients[TORCH_INPUTS] = {0};
    for (int i = 0; i < c->count; i++) {
        nd_auto nd_tensor *x = wave(i, c->inputs[i].ndim, c->inputs[i].shape);
        inputs[i] = laid_out(x, how);
        assert_handle(inputs[i]);
        nd_tensor *leaf = nd_detach(inputs[i]);
        nd_release(inputs[i]);
        inputs[i] = leaf;
        assert_ok(nd_set_requires_grad(leaf, true));
    }
    size_t at = 0;
    {
        const nd_tensor *const *given = (const nd_tensor *const *)inputs;
        nd_auto nd_tensor *y = c->f((size_t)c->count, given, NULL);
        assert_handle(y);
        assert_torch_values(c, "the result", y, &at);
        nd_auto nd_tensor *weights = wave(9, nd_get_ndim(y), nd_get_shape(y));
        nd_auto nd_tensor *products = nd_mul(y, weights);
        nd_auto nd_tensor *sum = nd_sum(products, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.allow_unused = true;
        if (nd_requires_grad(sum))
            assert_ok(nd_grad(sum, (size_t)c->count, given, &options, gradients));
    }
    for (int i = 0; i < c->count; i++) {
        char what[32];
        snprintf(what, sizeof what, "gradient of input %d", i);
        if (!gradients[i])
            gradients[i] = nd_zeros_like(inputs[i]);
        assert_torch_values(c, what, gradients[i], &at);
        nd_release(gradients[i]);
        nd_release(inputs[i]);
    }
    if (at != c->nvalues)
        fail_msg("%s: compared %zu values of %zu", c->name, at, c->nvalues);
}

/// The gradients of both orders against differences.
static inline void check_torch_gradients(const torch_case *c) {
    nd_tensor *inputs[TORCH_INPUTS] = {0};
    for (int i = 0; i < c->count; i++) {
        inputs[i] = wave(i, c->inputs[i].ndim, c->inputs[i].shape);
        assert_ok(nd_set_requires_grad(inputs[i], true));
    }
    for (int order = 1; order <= 2; order++)
        if (nd_gradcheck(c->f, NULL, (size_t)c->count, (const nd_tensor *const *)inputs, order,
                         1e-6, 1e-4) != ND_OK)
            fail_msg("%s, order %d: %s", c->name, order, nd_error_get_message());
    for (int i = 0; i < c->count; i++)
        nd_release(inputs[i]);
}

/// Values in every layout. Gradients of both orders too, unless `values_only`.
static inline void check_torch_case(const torch_case *c, bool values_only) {
    for (int how = DENSE; how < EXPANDED; how++)
        check_torch_layout(c, (layout)how);
    if (!values_only)
        check_torch_gradients(c);
}
#endif
