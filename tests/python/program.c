// A program in C as Python loads it: it has tensors of its own, in a manager of its own, and hands
// out their addresses. Python and it must see the same objects and the same memory.
#include <nd/nd.h>

#define PROGRAM __attribute__((visibility("default"))) // what Python calls

PROGRAM void program_end(void);

static nd_manager *manager;
static nd_tensor *weights;
static nd_list *layers;

/// [2, 3] of 0 to 5 that wants a gradient, and a list of two tensors.
PROGRAM int program_begin(void) {
    manager = nd_manager_new(NULL, "program");
    nd_with_manager(manager) {
        nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F32);
        nd_auto nd_tensor *grid = nd_reshape(numbers, ND_SHAPE(2, 3));
        weights = nd_clone(grid);
        layers = nd_list_new();
        nd_auto nd_tensor *first = nd_ones(ND_SHAPE(2), ND_I64);
        if (weights && layers && nd_set_name(weights, "weights") == ND_OK &&
            nd_set_requires_grad(weights, true) == ND_OK &&
            nd_list_append(layers, first) == ND_OK && nd_list_append(layers, weights) == ND_OK)
            return 1;
    }
    program_end();
    return 0;
}

/// Borrowed: the program keeps them.
PROGRAM const void *program_weights(void) {
    return weights;
}
PROGRAM const void *program_layers(void) {
    return layers;
}
PROGRAM const void *program_manager(void) {
    return manager;
}

/// As C reads and writes it.
PROGRAM float program_read(int at) {
    return ((const float *)nd_get_data(weights))[at];
}
PROGRAM void program_write(int at, float value) {
    ((float *)nd_get_data(weights))[at] = value;
}
PROGRAM uint32_t program_count(void) {
    return (uint32_t)nd_get_count(weights);
}
/// The sum of squares, and its gradient.
PROGRAM int program_train(void) {
    nd_auto nd_tensor *squares = nd_square(weights);
    nd_auto nd_tensor *loss = nd_sum(squares, 0, NULL, false);
    return loss && nd_backward(loss, NULL) == ND_OK;
}

PROGRAM void program_forget_weights(void) {
    nd_release(weights);
    weights = NULL;
}
PROGRAM void program_end(void) {
    nd_release(weights);
    nd_release(layers);
    nd_manager_close(manager, NULL);
    nd_release(manager);
    weights = NULL;
    layers = NULL;
    manager = NULL;
}
