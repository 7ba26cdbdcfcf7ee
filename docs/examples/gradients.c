// gradients: operations on what requires a gradient are recorded; a backward pass walks back over
// the record. Here a line is fitted to points by going downhill, and a cube is differentiated twice.
#include <nd/nd.h>
#include <stdio.h>

/// A number to be found: a leaf that requires a gradient. Owned.
static nd_tensor *make_parameter(double value) {
    nd_tensor *parameter = nd_scalar(value, ND_F32);
    nd_set_requires_grad(parameter, true);
    return parameter;
}

/// How far the line w x + b is from y: the mean square of the distances. Owned.
static nd_tensor *get_loss(const nd_tensor *w, const nd_tensor *b, const nd_tensor *x,
                           const nd_tensor *y) {
    nd_auto nd_tensor *scaled = nd_mul(x, w);
    nd_auto nd_tensor *line = nd_add(scaled, b);
    return nd_mse_loss(line, y);
}

/// One step downhill.
static nd_status descend(nd_tensor *parameter, double rate) {
    nd_status status = ND_OK;
    nd_no_grad { // the step is no part of what is differentiated
        status = nd_add_scaled_(parameter, nd_get_grad(parameter), -rate);
    }
    // Gradients add up over backward passes until they are dropped.
    return status == ND_OK ? nd_zero_grad(parameter) : status;
}

static void fit(void) {
    nd_auto nd_tensor *x = nd_linspace(-1, 1, 21, ND_F32);
    nd_auto nd_tensor *tripled = nd_mul_scalar(x, 3);
    nd_auto nd_tensor *y = nd_add_scalar(tripled, 1);
    nd_auto nd_tensor *w = make_parameter(0);
    nd_auto nd_tensor *b = make_parameter(0);
    nd_status status = ND_OK;
    for (int step = 0; status == ND_OK && step < 100; step++) {
        nd_auto nd_tensor *loss = get_loss(w, b, x, y); // holds the record until the step ends
        status = nd_backward(loss, NULL);
        if (status == ND_OK)
            status = descend(w, 0.3);
        if (status == ND_OK)
            status = descend(b, 0.3);
    }
    printf("y = %.2f x + %.2f\n", nd_get_item(w), nd_get_item(b));
}

static void differentiate_twice(void) {
    nd_auto nd_tensor *x = make_parameter(3);
    nd_auto nd_tensor *cube = nd_pow_scalar(x, 3);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true; // records the backward pass as well
    const nd_tensor *inputs[] = {x};
    nd_auto nd_tensor *first = NULL;
    nd_auto nd_tensor *second = NULL;
    // nd_grad() hands the gradients out instead of leaving them at the leaves.
    if (nd_grad(cube, 1, inputs, &options, &first) == ND_OK)
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
