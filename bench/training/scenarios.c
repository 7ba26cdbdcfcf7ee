// The four ways to train. Each is a step as a user would write it; what differs is what the step
// leaves behind.
//
//   plain         nothing: every object dies by its count
//   second_order  a cycle: parameter -grad-> gradient -node-> graph -source-> parameter
//   callbacks     a cycle: tensor -hook-> context -> tensor
//   escape        no cycle: a list that outlives the step holds the step's loss and its history
#include <nd/scoped.h>

#include "bench/training/training.h"

enum { PARAMETERS = 6 };

static nd_status plain_step(training *run, const nd_tensor *images, const nd_tensor *labels);
static nd_status second_order_step(training *run, const nd_tensor *images, const nd_tensor *labels);
static nd_status callbacks_step(training *run, const nd_tensor *images, const nd_tensor *labels);
static nd_status escape_begin(training *run);
static nd_status escape_step(training *run, const nd_tensor *images, const nd_tensor *labels);

const scenario scenarios[SCENARIO_COUNT] = {
    [PLAIN] = {.name = "plain",
               .summary = "nothing cyclic",
               .batch = 32,
               .rate = 0.05,
               .step = plain_step},
    {.name = "second_order",
     .summary = "gradient penalty with create_graph on a step's own copy of the parameters",
     .batch = 128,
     .rate = 0.3,
     .makes_cycles = true,
     .step = second_order_step},
    {.name = "callbacks",
     .summary = "hooks that capture the tensors they are attached to",
     .batch = 32,
     .rate = 0.05,
     .makes_cycles = true,
     .step = callbacks_step},
    {.name = "escape",
     .summary = "every step's loss, history and all, kept in a list that outlives the step",
     .batch = 32,
     .rate = 0.05,
     .keeps_history = true,
     .begin = escape_begin,
     .step = escape_step},
};

/// Gradients of the model from a loss, one update, gradients dropped.
static nd_status learn_from(training *run, const nd_tensor *loss) {
    nd_status status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(run->optimizer);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(run->optimizer);
    return status;
}

// ---------------------------------------------------------------------------------------- plain

static nd_status plain_step(training *run, const nd_tensor *images, const nd_tensor *labels) {
    nd_auto_scope;
    const nd_tensor *logits = nd_module_forward(run->model, images);
    return learn_from(run, nd_cross_entropy(logits, labels));
}

// --------------------------------------------------------------------------------- second order

/// The model's function, with other parameters.
static const nd_tensor *forward_with(nd_tensor *const *parameters, const nd_tensor *x) {
    const nd_tensor *hidden1 = nd_relu(nd_linear(x, parameters[0], parameters[1]));
    const nd_tensor *hidden2 = nd_relu(nd_linear(hidden1, parameters[2], parameters[3]));
    return nd_linear(hidden2, parameters[4], parameters[5]);
}

/// Owned leaves with the values of the model's parameters. Some may be there after a failure too.
static nd_status copy_parameters(const nd_module *model, nd_tensor **copies) {
    for (size_t i = 0; i < PARAMETERS; i++) {
        nd_no_grad copies[i] = nd_retain(nd_clone(nd_module_get_parameter_at(model, i, NULL)));
        if (!copies[i])
            return nd_error_get_status();
        nd_status status = nd_set_requires_grad(copies[i], true);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

static void release_all(nd_tensor **tensors) {
    for (size_t i = 0; i < PARAMETERS; i++)
        nd_release(tensors[i]);
}

/// Model parameters -= rate * gradients.
static nd_status descend(const nd_module *model, nd_tensor *const *gradients, double rate) {
    nd_status status = ND_OK;
    nd_no_grad {
        for (size_t i = 0; i < PARAMETERS && status == ND_OK; i++) {
            nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter_at(model, i, NULL));
            status = nd_add_scaled_(parameter, gradients[i], -rate);
        }
    }
    return status;
}

/// Loss plus a hundredth of its squared gradient. The first backward pass is recorded, so the
/// copies' gradients hold the graph and the graph holds the copies: counts alone never free them.
static const nd_tensor *penalised_loss(nd_tensor *const *copies, const nd_tensor *images,
                                       const nd_tensor *labels) {
    const nd_tensor *loss = nd_cross_entropy(forward_with(copies, images), labels);
    nd_backward_options recorded = ND_BACKWARD_OPTIONS_INIT;
    recorded.create_graph = true;
    if (nd_backward(loss, &recorded) != ND_OK)
        return NULL;
    const nd_tensor *total = loss;
    for (size_t i = 0; i < PARAMETERS; i++) {
        const nd_tensor *squares = nd_sum(nd_square(nd_get_grad(copies[i])), 0, NULL, false);
        total = nd_add(total, nd_mul_scalar(squares, 0.01));
    }
    return total;
}

static nd_status second_order_step(training *run, const nd_tensor *images,
                                   const nd_tensor *labels) {
    nd_auto_scope;
    nd_tensor *copies[PARAMETERS] = {0};
    nd_status status = copy_parameters(run->model, copies);
    if (status == ND_OK) {
        nd_tensor *gradients[PARAMETERS] = {0};
        const nd_tensor *loss = penalised_loss(copies, images, labels);
        status = loss ? nd_grad(loss, PARAMETERS, (const nd_tensor *const *)copies, NULL, gradients)
                      : nd_error_get_status();
        if (status == ND_OK)
            status = descend(run->model, gradients, run->rate);
        release_all(gradients);
    }
    release_all(copies);
    return status;
}

// ------------------------------------------------------------------------------------ callbacks

/// Watches one activation: a type of the user's own, with an edge.
typedef struct probe {
    nd_tensor *activation; ///< edge
    double *saliency;      ///< where |gradient * activation| is added
} probe;

static void probe_traverse(const nd_object *self, nd_visitor *visitor) {
    const probe *probe = nd_object_get_data(self);
    nd_visit(visitor, probe->activation, "activation");
}

static void probe_clear(nd_object *self) {
    probe *probe = nd_object_get_data(self);
    nd_edge_clear(&probe->activation);
}

static const nd_type probe_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "probe",
    .traverse = probe_traverse,
    .clear = probe_clear,
};

static double saliency_of(const nd_tensor *gradient, const nd_tensor *activation) {
    double saliency = 0;
    ND_SCOPE {
        saliency = nd_get_item(nd_sum(nd_abs(nd_mul(gradient, activation)), 0, NULL, false));
    }
    return saliency;
}

/// Hook of a hidden layer, with a probe for context.
static nd_tensor *measure_saliency(const nd_tensor *gradient, const nd_object *context) {
    const probe *probe = nd_object_get_data(context);
    nd_no_grad *probe->saliency += saliency_of(gradient, probe->activation);
    return NULL;
}

/// Hook of the logits, with a list that holds them for context: limits the gradient where the model
/// is far off already.
static nd_tensor *limit_gradient(const nd_tensor *gradient, const nd_object *context) {
    const nd_tensor *logits = (const nd_tensor *)nd_list_get((const nd_list *)context, 0);
    nd_tensor *limited = NULL;
    nd_auto_scope;
    nd_no_grad {
        const nd_tensor *limit = nd_to(nd_scalar(30, ND_F32), nd_get_device(logits));
        const nd_tensor *wild = nd_greater(nd_abs(logits), limit);
        limited = nd_retain(nd_where(wild, nd_clip(gradient, -0.01, 0.01), gradient));
    }
    return limited;
}

/// Attaches a probe to x. Afterwards x holds the hook, the hook its context, the context x.
static nd_status attach_probe(const nd_tensor *x, double *saliency) {
    nd_auto nd_tensor *activation = nd_retain(x);
    nd_auto nd_object *context = nd_object_new(&probe_type, sizeof(probe));
    if (!activation || !context)
        return nd_error_get_status();
    probe *probe = nd_object_get_data(context);
    probe->saliency = saliency;
    nd_edge_set(&probe->activation, activation);
    return nd_register_hook(activation, measure_saliency, context);
}

/// The same with a list for context.
static nd_status attach_limit(const nd_tensor *x) {
    nd_auto nd_tensor *logits = nd_retain(x);
    nd_auto nd_list *context = nd_list_new();
    if (!logits || !context)
        return nd_error_get_status();
    nd_status status = nd_list_append(context, logits);
    return status == ND_OK ? nd_register_hook(logits, limit_gradient, context) : status;
}

static nd_status callbacks_step(training *run, const nd_tensor *images, const nd_tensor *labels) {
    nd_auto_scope;
    const nd_tensor *x = images;
    size_t layers = nd_module_get_child_count(run->model);
    for (size_t i = 0; i < layers; i++) {
        x = nd_module_forward(nd_module_get_child(run->model, i), x);
        bool hidden = i % 2 == 1; // after each relu
        nd_status status = hidden            ? attach_probe(x, &run->saliency)
                           : i == layers - 1 ? attach_limit(x)
                                             : ND_OK;
        if (status != ND_OK)
            return status;
    }
    return learn_from(run, nd_cross_entropy(x, labels));
}

// --------------------------------------------------------------------------------------- escape

static nd_status escape_begin(training *run) {
    run->history = nd_list_new();
    return run->history ? ND_OK : nd_error_get_status();
}

static nd_status escape_step(training *run, const nd_tensor *images, const nd_tensor *labels) {
    nd_auto_scope;
    const nd_tensor *logits = nd_module_forward(run->model, images);
    const nd_tensor *loss = nd_cross_entropy(logits, labels);
    // The mistake: nd_get_item(loss) is a number, but the loss itself holds the whole step.
    nd_status status = nd_list_append(run->history, loss);
    return status == ND_OK ? learn_from(run, loss) : status;
}
