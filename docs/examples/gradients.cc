// gradients, in C++: operators between tensors and numbers are recorded as the functions are.
#include <cstdio>
#include <nd/nd.hpp>

/// A number to be found: a leaf that requires a gradient.
static nd::tensor make_parameter(double value) {
    nd::tensor parameter = nd::scalar(value, ND_F32);
    nd_set_requires_grad(parameter.get(), true);
    return parameter;
}

/// How far the line w x + b is from y: the mean square of the distances.
static nd::tensor get_loss(const nd::tensor &w, const nd::tensor &b, const nd::tensor &x,
                           const nd::tensor &y) {
    return nd::mse_loss(x * w + b, y);
}

/// One step downhill.
static nd_status descend(nd::tensor &parameter, double rate) {
    nd_status status = ND_OK;
    nd_no_grad {
        status = nd_add_scaled_(parameter.get(), nd_get_grad(parameter), -rate);
    }
    return status == ND_OK ? nd_zero_grad(parameter.get()) : status;
}

static void fit() {
    nd::tensor x = nd::linspace(-1, 1, 21, ND_F32);
    nd::tensor y = x * 3 + 1;
    nd::tensor w = make_parameter(0);
    nd::tensor b = make_parameter(0);
    nd_status status = ND_OK;
    for (int step = 0; status == ND_OK && step < 100; step++) {
        nd::tensor loss = get_loss(w, b, x, y);
        status = nd_backward(loss, nullptr);
        if (status == ND_OK)
            status = descend(w, 0.3);
        if (status == ND_OK)
            status = descend(b, 0.3);
    }
    std::printf("y = %.2f x + %.2f\n", nd_get_item(w), nd_get_item(b));
}

/// The derivative of y by x, which has a record itself where it is wanted.
static nd::tensor get_slope(const nd::tensor &y, const nd::tensor &x, bool create_graph) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = create_graph;
    const nd_tensor *inputs[] = {x};
    nd_tensor *slope = nullptr; // nd_grad() writes an owned handle of C
    nd_grad(y, 1, inputs, &options, &slope);
    return nd::tensor(slope); // and this takes it over
}

static void differentiate_twice() {
    nd::tensor x = make_parameter(3);
    nd::tensor first = get_slope(x * x * x, x, true);
    nd::tensor second = get_slope(first, x, false);
    std::printf("at 3, x^3 has the slope %g and the curvature %g\n", nd_get_item(first),
                nd_get_item(second));
}

int main() {
    fit();
    differentiate_twice();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
