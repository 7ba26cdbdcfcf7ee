// Calls about gradients: recording, backward passes, hooks, functions of the user's.
#include "tests/fuzz/program.h"

static void requires_grad(fuzz_actor *me, const fuzz_step *s) {
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (x || !fuzz_threaded)
        fuzz_expect(me, nd_set_requires_grad(x, s->b % 4 != 3) == ND_OK);
}

static void backward(fuzz_actor *me, const fuzz_step *s) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = s->b % 2;
    if (s->b & 2)
        options.grad = fuzz_tensor(me, s->c);
    fuzz_expect(me, nd_backward(fuzz_tensor(me, s->a), &options) == ND_OK);
}

/// Gives up the handle in a slot; now and then there is none.
static void backward_release(fuzz_actor *me, const fuzz_step *s) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = s->b % 2;
    if (s->b & 2)
        options.grad = fuzz_tensor(me, s->c);
    nd_tensor *output = fuzz_take(me, FUZZ_TENSOR, s->a);
    fuzz_expect(me, nd_backward_release(output, s->d % 2 ? NULL : &options) == ND_OK);
}

static nd_tensor *smooth(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)data;
    nd_auto nd_tensor *product = nd_mul(inputs[0], inputs[count - 1]);
    return product ? nd_tanh(product) : NULL;
}

/// Of few elements; what they are decides whether differences come near.
static void gradcheck(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *inputs[2] = {fuzz_tensor(me, s->a), fuzz_tensor(me, s->b)};
    if (nd_get_numel(inputs[0]) > 6 || nd_get_numel(inputs[1]) > 6)
        return;
    fuzz_expect(me,
                nd_gradcheck(smooth, NULL, 1 + s->c % 2, inputs, s->d % 3, 1e-6, 1e-4) == ND_OK);
}

static void gradients(fuzz_actor *me, const fuzz_step *s) {
    enum { COUNT = 2 };
    const nd_tensor *inputs[COUNT] = {fuzz_tensor(me, s->b), fuzz_tensor(me, s->c)};
    nd_tensor *results[COUNT] = {NULL};
    size_t count = s->d / 4 % (COUNT + 1);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = s->d % 2;
    options.allow_unused = s->d / 2 % 2;
    nd_status status = nd_grad(fuzz_tensor(me, s->a), count, inputs, &options, results);
    fuzz_expect(me, status == ND_OK);
    for (uint8_t i = 0; i < COUNT; i++) {
        if (status != ND_OK && results[i])
            fuzz_die("a gradient came from a pass that failed");
        if (status == ND_OK && i < count)
            fuzz_put(me, FUZZ_TENSOR, (uint8_t)(s->a + 1 + i), results[i]);
    }
}

/// The gradient of a leaf. Another thread's backward pass may be changing that of a shared one.
static void get_grad(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *grad = nd_get_grad(fuzz_tensor(me, s->b));
    if (grad)
        fuzz_put(me, FUZZ_TENSOR, s->a, nd_retain(grad));
}

static void set_grad(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *grad = fuzz_tensor(me, s->b);
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    fuzz_expect(me, (s->c % 4 ? nd_set_grad(x, grad) : nd_zero_grad(x)) == ND_OK);
}

static void grad_block_begin(fuzz_actor *me, const fuzz_step *s) {
    if (me->grad_block_count < FUZZ_BLOCKS)
        me->grad_blocks[me->grad_block_count++] = nd__grad_block_begin(s->a % 2);
    if (me->grad_block_count < FUZZ_BLOCKS && nd_is_grad_enabled() != s->a % 2)
        fuzz_die("a block records although it should not, or does not although it should");
}

static void grad_block_end(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    if (me->grad_block_count)
        nd__grad_block_end(&me->grad_blocks[--me->grad_block_count]);
}

// ------------------------------------------------------------------------------------------- hooks

static nd_tensor *hook_that_looks(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    if (nd_get_numel(grad) < 0)
        fuzz_die("a hook got something that is no gradient");
    fuzz_nest();
    return NULL;
}

static nd_tensor *hook_that_replaces(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    fuzz_nest();
    return nd_mul_scalar(grad, 0.5);
}

static nd_tensor *hook_of_another_shape(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    return nd_unsqueeze(grad, 0);
}

static void register_hook(fuzz_actor *me, const fuzz_step *s) {
    static const nd_hook hooks[] = {hook_that_looks, hook_that_replaces, hook_of_another_shape,
                                    hook_that_looks};
    void *context = s->c % 2 ? fuzz_pick_any(me, s->c) : NULL;
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (x || !fuzz_threaded)
        fuzz_expect(me, nd_register_hook(x, hooks[s->b % 4], context) == ND_OK);
}

/// Under a number of the actor's, by which it can be removed.
static void add_hook(fuzz_actor *me, const fuzz_step *s) {
    static const nd_hook hooks[] = {hook_that_looks, hook_that_replaces, hook_of_another_shape,
                                    hook_that_looks};
    void *context = s->c % 2 ? fuzz_pick_any(me, s->c) : NULL;
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (!x && fuzz_threaded)
        return;
    uint64_t id = 0;
    nd_status status = nd_add_hook(x, hooks[s->b % 4], context, &id);
    fuzz_expect(me, status == ND_OK);
    if ((status == ND_OK) != (id != 0))
        fuzz_die("a hook that %s has the number %llu",
                 status == ND_OK ? "was added" : "was refused", (unsigned long long)id);
    if (status == ND_OK)
        me->hooks[s->d % FUZZ_SLOTS] = id;
}

/// That of another tensor, or one that is gone, is refused.
static void remove_hook(fuzz_actor *me, const fuzz_step *s) {
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    const uint64_t id = me->hooks[s->b % FUZZ_SLOTS];
    if (!x && fuzz_threaded)
        return;
    fuzz_expect(me, nd_remove_hook(x, id) == ND_OK);
    if (!me->disturbed && x && nd_remove_hook(x, id) == ND_OK)
        fuzz_die("a hook was removed twice");
}

static void remove_hooks(fuzz_actor *me, const fuzz_step *s) {
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (x || !fuzz_threaded)
        fuzz_expect(me, nd_remove_hooks(x) == ND_OK);
}

// ------------------------------------------------------------------------------- user's functions

/// Doubles each input, and now and then saves it in the context: a cycle when the context holds the
/// output.
static nd_status forward(const nd_object *context, size_t ninputs, const nd_tensor *const *inputs,
                         size_t noutputs, nd_tensor **ret_outputs) {
    fuzz_nest();
    void **edge =
        context && fuzz_me ? fuzz_edge(fuzz_me, (nd_object *)(uintptr_t)context, 3) : NULL;
    if (edge && ninputs)
        nd_edge_set(edge, inputs[0]);
    for (size_t i = 0; i < noutputs; i++) {
        ret_outputs[i] = nd_mul_scalar(inputs[i % ninputs], 2);
        if (!ret_outputs[i]) {
            while (i-- > 0) {
                nd_release(ret_outputs[i]);
                ret_outputs[i] = NULL;
            }
            return nd_error_get_status();
        }
    }
    return ND_OK;
}

static nd_status backward_of_function(const nd_object *context, size_t noutputs,
                                      const nd_tensor *const *grad_outputs, size_t ninputs,
                                      nd_tensor **ret_grad_inputs) {
    (void)context;
    fuzz_nest();
    if (ninputs && noutputs && grad_outputs[0])
        ret_grad_inputs[0] = nd_mul_scalar(grad_outputs[0], 2);
    return ND_OK;
}

static void apply_function(fuzz_actor *me, const fuzz_step *s) {
    static const nd_function function = {.size = sizeof function,
                                         .version = 1,
                                         .name = "double",
                                         .forward = forward,
                                         .backward = backward_of_function};
    enum { COUNT = 2 };
    const nd_tensor *inputs[COUNT] = {fuzz_tensor(me, s->b), fuzz_tensor(me, (uint8_t)(s->b + 1))};
    nd_object *context = s->c % 4 ? fuzz_pick(me, FUZZ_OBJECT, s->c) : NULL;
    nd_tensor *outputs[COUNT] = {NULL};
    size_t count = 1 + s->d % COUNT;
    // In a program of threads the context is written by all who hold it, each at its own edge.
    nd_status status =
        nd_function_apply(&function, context, 1 + s->d / 2 % COUNT, inputs, count, outputs);
    fuzz_expect(me, status == ND_OK);
    for (uint8_t i = 0; i < count; i++)
        fuzz_put(me, FUZZ_TENSOR, (uint8_t)(s->a + i), outputs[i]);
}

const fuzz_call fuzz_autograd_calls[] = {
    {"requires_grad", requires_grad, FUZZ_QUEUES},
    {"backward", backward, 0},
    {"backward_release", backward_release, 0},
    {"gradients", gradients, 0},
    {"gradcheck", gradcheck, FUZZ_ALONE},
    {"get_grad", get_grad, FUZZ_ALONE | FUZZ_QUEUES},
    {"set_grad", set_grad, FUZZ_ALONE | FUZZ_QUEUES},
    {"grad_block_begin", grad_block_begin, FUZZ_OUTER | FUZZ_QUEUES},
    {"grad_block_end", grad_block_end, FUZZ_OUTER | FUZZ_QUEUES},
    {"register_hook", register_hook, FUZZ_QUEUES},
    {"add_hook", add_hook, FUZZ_QUEUES},
    {"remove_hook", remove_hook, FUZZ_QUEUES},
    {"remove_hooks", remove_hooks, FUZZ_QUEUES},
    {"apply_function", apply_function, 0},
    {0},
};
