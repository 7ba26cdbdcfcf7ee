// gradients, with counts by hand. The record of a computation is held by its result: releasing the
// loss frees the whole of it.
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
    nd_tensor *scaled = nd_mul(x, w);
    nd_tensor *line = nd_add(scaled, b);
    nd_tensor *loss = nd_mse_loss(line, y);
    nd_release(line); // our handles; what the backward pass needs, the record keeps
    nd_release(scaled);
    return loss;
}

/// One step downhill.
static nd_status descend(nd_tensor *parameter, double rate) {
    nd_status status = ND_OK;
    nd_no_grad {
        status = nd_add_scaled_(parameter, nd_get_grad(parameter), -rate); // borrowed: no release
    }
    return status == ND_OK ? nd_zero_grad(parameter) : status;
}

static void fit(void) {
    nd_tensor *x = nd_linspace(-1, 1, 21, ND_F32);
    nd_tensor *tripled = nd_mul_scalar(x, 3);
    nd_tensor *y = nd_add_scalar(tripled, 1);
    nd_release(tripled);
    nd_tensor *w = make_parameter(0);
    nd_tensor *b = make_parameter(0);
    nd_status status = ND_OK;
    for (int step = 0; status == ND_OK && step < 100; step++) {
        // Takes the loss over, also on error, and frees the record of this step as it goes.
        status = nd_backward_release(get_loss(w, b, x, y), NULL);
        if (status == ND_OK)
            status = descend(w, 0.3);
        if (status == ND_OK)
            status = descend(b, 0.3);
    }
    printf("y = %.2f x + %.2f\n", nd_get_item(w), nd_get_item(b));
    nd_release(b);
    nd_release(w);
    nd_release(y);
    nd_release(x);
}

static void differentiate_twice(void) {
    nd_tensor *x = make_parameter(3);
    nd_tensor *cube = nd_pow_scalar(x, 3);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    const nd_tensor *inputs[] = {x};
    nd_tensor *first = NULL, *second = NULL; // untouched where the call fails
    if (nd_grad(cube, 1, inputs, &options, &first) == ND_OK)
        nd_grad(first, 1, inputs, NULL, &second);
    printf("at 3, x^3 has the slope %g and the curvature %g\n", nd_get_item(first),
           nd_get_item(second));
    nd_release(second);
    nd_release(first);
    nd_release(cube);
    nd_release(x);
}

int main(void) {
    fit();
    differentiate_twice();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
