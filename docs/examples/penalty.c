// penalty: second derivatives in every step, as a gradient penalty has them. A critic learns to tell
// two clouds of points apart, with slopes of one between them. Each step leaves a cycle: points ->
// their gradient -> its graph -> points, which counts alone never free.
#include <nd/scoped.h>
#include <stdio.h>

enum { POINTS = 64, STEPS = 200, PARAMETERS = 4 };

/// Points [n, 2] around (x, 0).
static const nd_tensor *draw(nd_key key, float x) {
    const nd_tensor *noise = nd_mul_scalar(nd_randn(key, ND_SHAPE(POINTS, 2), ND_F32), 0.25);
    return nd_add(noise, nd_from_data((float[]){x, 0}, ND_SHAPE(2), ND_F32));
}

/// The mean of what the critic says of points [n, 2].
static const nd_tensor *judge(const nd_module *critic, const nd_tensor *points) {
    return nd_mean(nd_module_forward(critic, points), 0, NULL, false);
}

/// How far the critic's slopes at these points are from one, in the mean of squares.
static const nd_tensor *slope_penalty(const nd_module *critic, const nd_tensor *between) {
    nd_auto nd_tensor *points = nd_retain(between);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true; // the points' gradient is itself a function of the critic
    if (nd_set_requires_grad(points, true) != ND_OK ||
        nd_backward(nd_sum(nd_module_forward(critic, points), 0, NULL, false), &options) != ND_OK)
        return NULL;
    const nd_tensor *squares = nd_sum(nd_square(nd_get_grad(points)), 1, (int[]){1}, false);
    const nd_tensor *lengths = nd_sqrt(nd_add_scalar(squares, 1e-12));
    return nd_mean(nd_square(nd_sub_scalar(lengths, 1)), 0, NULL, false);
}

/// The gradients of a loss become those of the critic's parameters.
static nd_status set_gradients(const nd_module *critic, const nd_tensor *loss) {
    const nd_tensor *parameters[PARAMETERS];
    nd_tensor *gradients[PARAMETERS] = {0};
    for (size_t i = 0; i < PARAMETERS; i++)
        parameters[i] = nd_module_get_parameter_at(critic, i, NULL);
    nd_status status = nd_grad(loss, PARAMETERS, parameters, NULL, gradients);
    for (size_t i = 0; i < PARAMETERS; i++) {
        nd_auto nd_tensor *parameter = nd_retain(parameters[i]);
        if (status == ND_OK)
            status = nd_set_grad(parameter, gradients[i]);
        nd_release(gradients[i]);
    }
    return status;
}

static nd_status step(const nd_module *critic, nd_optimizer *optimizer, nd_key key) {
    nd_auto_scope;
    const nd_tensor *left = draw(nd_key_fold(key, 0), -1), *right = draw(nd_key_fold(key, 1), 1);
    const nd_tensor *parts = nd_rand(nd_key_fold(key, 2), ND_SHAPE(POINTS, 1), ND_F32);
    const nd_tensor *between = nd_add(left, nd_mul(parts, nd_sub(right, left)));
    const nd_tensor *penalty = slope_penalty(critic, between);
    const nd_tensor *distance = nd_sub(judge(critic, right), judge(critic, left));
    nd_status status = set_gradients(critic, nd_sub(nd_mul_scalar(penalty, 10), distance));
    if (status == ND_OK)
        status = nd_optimizer_step(optimizer);
    nd_optimizer_zero_grad(optimizer);
    return status;
}

/// Trains, each step below a manager of its own, at whose close the collector looks, if it is on.
static void train(const char *collector) {
    nd_auto nd_module *critic =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 2, 16, true), nd_tanh_module(),
                      nd_linear_module(nd_key_new(2), 16, 1, true));
    nd_auto nd_optimizer *optimizer = nd_sgd(critic, NULL);
    uint64_t objects[STEPS];
    for (uint64_t i = 0; i < STEPS; i++) {
        nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) {
            step(critic, optimizer, nd_key_fold(nd_key_new(3), i));
        }
        nd_manager_close(manager, NULL);
        objects[i] = nd_manager_get_total_objects(NULL);
    }
    printf("collector %s: %s\n", collector,
           objects[STEPS - 1] == objects[1]
               ? "as many objects after the last step as after the second"
               : "more objects after every step");
}

int main(void) {
    nd_gc_set_mode(ND_GC_OFF);
    train("off");
    nd_gc_collect(NULL, NULL); // what is left of that
    nd_gc_set_mode(ND_GC_ON);
    train("on");
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
