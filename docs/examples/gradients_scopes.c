// gradients, with scopes: formulas read as formulas. A loop wants a scope for each of its turns, or
// all that they make lives until the last one is over.
#include <nd/scoped.h>
#include <stdio.h>

/// A number to be found: a leaf that requires a gradient. Owned, because it will be written.
static nd_tensor *make_parameter(double value) {
    nd_tensor *parameter = NULL;
    ND_SCOPE
        parameter = nd_retain(nd_scalar(value, ND_F32));
    nd_set_requires_grad(parameter, true);
    return parameter;
}

/// How far the line w x + b is from y. Borrowed from the caller's scope, as the operations' results
/// are: this function opens none of its own.
static const nd_tensor *get_loss(const nd_tensor *w, const nd_tensor *b, const nd_tensor *x,
                                 const nd_tensor *y) {
    return nd_mse_loss(nd_add(nd_mul(x, w), b), y);
}

/// One step downhill.
static nd_status descend(nd_tensor *parameter, double rate) {
    nd_status status = ND_OK;
    nd_no_grad {
        status = nd_add_scaled_(parameter, nd_get_grad(parameter), -rate);
    }
    return status == ND_OK ? nd_zero_grad(parameter) : status;
}

static void fit(void) {
    nd_auto_scope;
    const nd_tensor *x = nd_linspace(-1, 1, 21, ND_F32);
    const nd_tensor *y = nd_add_scalar(nd_mul_scalar(x, 3), 1);
    nd_auto nd_tensor *w = make_parameter(0);
    nd_auto nd_tensor *b = make_parameter(0);
    nd_status status = ND_OK;
    for (int step = 0; status == ND_OK && step < 100; step++) {
        ND_SCOPE { // the record of this step ends with it; a break would leave it, not the loop
            status = nd_backward(get_loss(w, b, x, y), NULL);
        }
        if (status == ND_OK)
            status = descend(w, 0.3);
        if (status == ND_OK)
            status = descend(b, 0.3);
    }
    printf("y = %.2f x + %.2f\n", nd_get_item(w), nd_get_item(b));
}

static void differentiate_twice(void) {
    nd_auto_scope;
    nd_auto nd_tensor *x = make_parameter(3);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    const nd_tensor *inputs[] = {x};
    // What a function writes to an address is owned here, too: scopes take what is returned.
    nd_auto nd_tensor *first = NULL;
    nd_auto nd_tensor *second = NULL;
    if (nd_grad(nd_pow_scalar(x, 3), 1, inputs, &options, &first) == ND_OK)
        nd_grad(first, 1, inputs, NULL, &second);
    printf("at 3, x^3 has the slope %g and the curvature %g\n", nd_get_item(first),
           nd_get_item(second));
}

int main(void) {
    fit();
    differentiate_twice();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
