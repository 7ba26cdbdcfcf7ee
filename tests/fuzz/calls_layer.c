// Calls of modules of every kind, of what they hold, and of checkpoints.
#include "tests/fuzz/program.h"
#include <string.h>

static nd_module *new_convolution(nd_key key, const fuzz_step *s) {
    const int64_t in = 1 + s->d % 2, out = 1 + s->d / 2 % 2, kernel = 1 + s->d / 4 % 3;
    const bool bias = s->d / 16 % 2;
    switch (s->c / 8 % 5) {
    case 0:
        return nd_conv1d_module(key, in, out, kernel, bias, NULL);
    case 1:
        return nd_conv3d_module(key, in, out, kernel, 1, kernel, bias, NULL);
    case 2:
        return nd_conv_transpose1d_module(key, in, out, kernel, bias, NULL);
    case 3:
        return nd_conv_transpose2d_module(key, in, out, kernel, 1, bias, NULL);
    default:
        return nd_conv_transpose3d_module(key, in, out, 1, kernel, 1, bias, NULL);
    }
}

static nd_module *new_window(const fuzz_step *s) {
    nd_max_pool1d_options max1 = ND_MAX_POOL1D_OPTIONS_INIT;
    nd_max_pool3d_options max3 = ND_MAX_POOL3D_OPTIONS_INIT;
    nd_avg_pool1d_options avg1 = ND_AVG_POOL1D_OPTIONS_INIT;
    nd_avg_pool2d_options avg2 = ND_AVG_POOL2D_OPTIONS_INIT;
    nd_avg_pool3d_options avg3 = ND_AVG_POOL3D_OPTIONS_INIT;
    nd_interpolate_options sizes = ND_INTERPOLATE_OPTIONS_INIT;
    const int64_t size = s->d % 4;
    max1.kernel = avg1.kernel = size;
    for (int axis = 0; axis < 3; axis++) {
        max3.kernel[axis] = avg3.kernel[axis] = size;
        avg2.kernel[axis % 2] = size;
        sizes.sizes[axis] = size;
    }
    switch (s->c / 8 % 13) {
    case 0:
        return nd_max_pool1d_module(&max1);
    case 1:
        return nd_max_pool3d_module(&max3);
    case 2:
        return nd_avg_pool1d_module(&avg1);
    case 3:
        return nd_avg_pool2d_module(&avg2);
    case 4:
        return nd_avg_pool3d_module(&avg3);
    case 5:
        return nd_adaptive_avg_pool1d_module(size);
    case 6:
        return nd_adaptive_avg_pool2d_module(size, 1);
    case 7:
        return nd_adaptive_avg_pool3d_module(1, size, 2);
    case 8:
        return nd_adaptive_max_pool1d_module(size);
    case 9:
        return nd_adaptive_max_pool2d_module(size, 1);
    case 10:
        return nd_adaptive_max_pool3d_module(1, size, 2);
    case 11:
        return nd_upsample_module(s->d / 4 % 4 ? &sizes : NULL);
    default:
        return nd_pixel_shuffle_module(size);
    }
}

static nd_module *new_norm(const fuzz_step *s) {
    const int64_t channels = s->d % 4, shape[] = {channels, 2};
    switch (s->c / 8 % 5) {
    case 0:
        return nd_batch_norm_module(channels, NULL);
    case 1:
        return nd_instance_norm_module(channels, NULL);
    case 2:
        return nd_group_norm_module(1 + s->d / 4 % 2, channels, 1e-5);
    case 3:
        return nd_layer_norm_module(1e-5, 1 + s->d / 4 % 2, shape);
    default:
        return nd_rms_norm_module(1e-5, 1 + s->d / 4 % 2, shape);
    }
}

static nd_module *new_recurrent(nd_key key, const fuzz_step *s) {
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 1 + s->d / 4 % 2;
    options.bidirectional = s->d / 8 % 2;
    options.batch_first = s->d / 16 % 2;
    options.dropout = s->d / 32 % 2 ? 0.5 : 0;
    const int64_t in = 1 + s->d % 4, size = 1 + s->c / 32 % 2;
    const bool bias = s->c / 64 % 2;
    switch (s->c / 8 % 4) {
    case 0:
        return nd_rnn_module(key, in, size, bias, &options);
    case 1:
        return nd_lstm_module(key, in, size, bias, &options);
    case 2:
        return nd_gru_module(key, in, size, bias, NULL);
    default:
        return nd_attention_module(key, in, 1 + s->c / 32 % 2, bias, NULL);
    }
}

static nd_tensor *twice(const nd_tensor *x) {
    fuzz_nest();
    return nd_mul_scalar(x, 2);
}

/// What the data of a module of the program's says, and that they are still there.
typedef struct scale {
    double by;
    bool draws;
} scale;

static nd_tensor *scale_forward(const nd_module *self, const nd_tensor *x) {
    const scale *how = nd_module_get_data(self);
    nd_key key = {0, 0};
    if (!how || (how->by != 3 && how->by != 0.5))
        fuzz_die("a module has lost its data");
    fuzz_nest();
    if (how->draws && nd_module_next_key(self, &key) != ND_OK)
        return NULL;
    return nd_mul_scalar(x, how->by);
}

static nd_module *new_own(nd_key key, const fuzz_step *s) {
    static const nd_module_type type = {
        .size = sizeof type, .version = 1, .name = "scale", .forward = scale_forward};
    const scale how = {s->d % 2 ? 3 : 0.5, s->d / 2 % 2};
    nd_module *module = nd_module_new(&type, &how, sizeof how);
    if (module && s->d / 4 % 2 && nd_module_set_key(module, key) != ND_OK)
        fuzz_die("a new module takes no key: %s", nd_error_get_message());
    return module;
}

static void new_layer(fuzz_actor *me, const fuzz_step *s) {
    const nd_key key = nd_key_new(s->d);
    nd_module *module = NULL;
    switch (s->b % 8) {
    case 0:
        module = new_convolution(key, s);
        break;
    case 1:
        module = new_window(s);
        break;
    case 2:
        module = new_norm(s);
        break;
    case 3:
        module = new_recurrent(key, s);
        break;
    case 4:
        module = nd_dropout_module(key, (double)(s->c % 8) / 6);
        break;
    case 5:
        module = nd_embedding_module(key, s->c % 6, 1 + s->d % 3,
                                     s->d / 4 % 2 ? ND_NO_PADDING : s->d / 8 % 6);
        break;
    case 6:
        module = nd_function_module(s->c % 4 ? twice : nd_silu);
        break;
    default:
        module = new_own(key, s);
    }
    fuzz_expect(me, module);
    fuzz_put(me, FUZZ_MODULE, s->a, module);
}

static void sequence(fuzz_actor *me, const fuzz_step *s) {
    nd_module *children[3] = {NULL, NULL, NULL};
    size_t count = s->d % 4;
    for (uint8_t i = 0; i < count; i++)
        children[i] = nd_retain((nd_module *)fuzz_pick(me, FUZZ_MODULE, (uint8_t)(s->b + i)));
    nd_module *module = nd_sequential(count, children);
    fuzz_expect(me, module);
    fuzz_put(me, FUZZ_MODULE, s->a, module);
}

// ------------------------------------------------------------------------------- what modules hold

static void add_buffer(fuzz_actor *me, const fuzz_step *s) {
    static const char *const names[] = {"mean", "w", "bad.name", "bias"};
    const nd_tensor *buffer = fuzz_tensor(me, s->b);
    nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    if (nd_get_numel(buffer) < 100)
        fuzz_expect(me, nd_module_add_buffer(module, names[s->c % 4], buffer) == ND_OK);
}

/// Members by number and by name are the same ones.
static void module_look(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick(me, FUZZ_MODULE, s->b);
    const char *name = NULL;
    size_t buffers = nd_module_get_buffer_count(module);
    const nd_tensor *buffer = nd_module_get_buffer_at(module, s->c % 8, &name);
    fuzz_expect(me, buffer);
    if (!me->disturbed && (buffer != NULL) != (s->c % 8 < buffers))
        fuzz_die("a module has another number of buffers than it says");
    if (buffer && nd_module_get_buffer(module, name) != buffer)
        fuzz_die("the buffer %s is not found by its name", name);
    if (buffer)
        fuzz_put(me, FUZZ_TENSOR, s->a, nd_retain(buffer));
    nd_error_clear();
    size_t children = nd_module_get_child_count(module);
    const nd_module *child = nd_module_get_child(module, s->d % 4);
    fuzz_expect(me, child);
    if (!me->disturbed && (child != NULL) != (s->d % 4 < children))
        fuzz_die("a module has another number of children than it says");
    if (child)
        fuzz_put(me, FUZZ_MODULE, (uint8_t)(s->d / 4), nd_retain(child));
    nd_error_clear();
    size_t parameters = nd_module_get_parameter_count(module);
    if (!me->disturbed && parameters && !nd_module_get_parameter_at(module, parameters - 1, NULL))
        fuzz_die("a module lacks its last parameter");
    if (!me->disturbed && nd_module_get_parameter_at(module, parameters, NULL))
        fuzz_die("a module has one parameter more than it says");
    nd_error_clear();
}

static void set_training(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    nd_status status = nd_module_set_training(module, s->b % 2);
    fuzz_expect(me, status == ND_OK);
    if (status == ND_OK && nd_module_is_training(module) != s->b % 2)
        fuzz_die("a module is in another mode than was set");
}

static void module_cast(fuzz_actor *me, const fuzz_step *s) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F16, ND_BF16, ND_F64, ND_I32};
    const nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    fuzz_expect(me, nd_module_cast(module, dtypes[s->b % 5]) == ND_OK);
}

static void module_key(fuzz_actor *me, const fuzz_step *s) {
    nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    nd_key key = {0, 0};
    nd_status status =
        s->b % 2 ? nd_module_set_key(module, nd_key_new(s->c)) : nd_module_next_key(module, &key);
    fuzz_expect(me, status == ND_OK);
}

static void clip_gradients(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick(me, FUZZ_MODULE, s->a);
    double norm = 0;
    nd_status status = s->b % 2 ? nd_clip_grad_norm(module, fuzz_value(s->c), &norm)
                                : nd_clip_grad_value(module, fuzz_value(s->c));
    fuzz_expect(me, status == ND_OK);
}

// ------------------------------------------------------------------------------------------- runs

static void attention_run(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *query = fuzz_tensor(me, s->c), *key = fuzz_tensor(me, s->d);
    if (nd_get_numel(query) > 500 || nd_get_numel(key) > 500)
        return;
    nd_tensor *y =
        nd_attention_module_run(fuzz_pick(me, FUZZ_MODULE, s->b), query, s->d ? key : NULL,
                                s->a & 16 ? key : NULL, s->a & 32 ? key : NULL);
    fuzz_expect(me, y);
    fuzz_put(me, FUZZ_TENSOR, s->a, y);
}

static void recurrent_run(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->c), *state = fuzz_tensor(me, s->d);
    if (nd_get_numel(x) > 200)
        return;
    nd_tensor *output = NULL, *hidden = NULL, *cell = NULL;
    nd_status status =
        nd_recurrent_module_run(fuzz_pick(me, FUZZ_MODULE, s->b), x, s->a & 64 ? state : NULL,
                                (s->a & 96) == 96 ? state : NULL, &output,
                                s->a & 16 ? &hidden : NULL, s->a & 32 ? &cell : NULL);
    fuzz_expect(me, status == ND_OK);
    if (status != ND_OK && (output || hidden || cell))
        fuzz_die("a recurrent module that failed has written results");
    fuzz_put(me, FUZZ_TENSOR, s->a, output);
    fuzz_put(me, FUZZ_TENSOR, (uint8_t)(s->a % 8 + 1), hidden);
    nd_release(cell);
}

/// The same at both runs, whatever steps it runs beside.
static nd_tensor *product_of_all(const nd_object *context, size_t count,
                                 const nd_tensor *const *inputs) {
    (void)context;
    nd_auto nd_tensor *product = nd_mul(inputs[0], inputs[count - 1]);
    fuzz_nest();
    return product ? nd_tanh(product) : NULL;
}

static nd_tensor *nothing(const nd_object *context, size_t count, const nd_tensor *const *inputs) {
    (void)context;
    (void)count;
    (void)inputs;
    return NULL;
}

static void checkpoint(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *inputs[2] = {fuzz_tensor(me, s->b), fuzz_tensor(me, s->c)};
    if (nd_get_numel(inputs[0]) > 200 || nd_get_numel(inputs[1]) > 200)
        return;
    const void *context = s->d % 2 ? fuzz_pick_any(me, s->d) : NULL;
    nd_tensor *y =
        nd_checkpoint(s->a & 64 ? nothing : product_of_all, context, 1 + s->a / 16 % 2, inputs);
    fuzz_expect(me, y);
    fuzz_put(me, FUZZ_TENSOR, s->a, y);
}

static void checkpoint_module(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->c);
    if (nd_get_numel(x) > 200)
        return;
    nd_tensor *y = nd_checkpoint_module(fuzz_pick(me, FUZZ_MODULE, s->b), x);
    fuzz_expect(me, y);
    fuzz_put(me, FUZZ_TENSOR, s->a, y);
}

const fuzz_call fuzz_layer_calls[] = {
    {"new_layer", new_layer, FUZZ_ALONE | FUZZ_QUEUES},
    {"sequence", sequence, FUZZ_ALONE | FUZZ_QUEUES},
    {"add_buffer", add_buffer, FUZZ_ALONE | FUZZ_QUEUES},
    {"module_look", module_look, FUZZ_ALONE | FUZZ_QUEUES},
    {"set_training", set_training, FUZZ_OUTER | FUZZ_ALONE | FUZZ_QUEUES},
    {"module_cast", module_cast, FUZZ_OUTER | FUZZ_ALONE},
    {"module_key", module_key, FUZZ_OUTER | FUZZ_ALONE | FUZZ_QUEUES},
    {"clip_gradients", clip_gradients, FUZZ_ALONE},
    {"attention_run", attention_run, FUZZ_ALONE},
    {"recurrent_run", recurrent_run, FUZZ_ALONE},
    {"checkpoint", checkpoint, FUZZ_QUEUES},
    {"checkpoint_module", checkpoint_module, FUZZ_ALONE},
    {0},
};
