/// @file
/// Modules and optimizers (losses are in <nd/ops.h>).
#ifndef ND_NN_H
#define ND_NN_H
#include <nd/neural.h>
#include <nd/ops.h>
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------------------------- modules
//
// A module holds named parameters, buffers and child modules as edges. Parameters are contiguous
// leaves of a float dtype that require a gradient; buffers are contiguous tensors of any dtype that
// do not, such as running means. Members are added before a module is used; after that any threads
// may read it.

/// A kind of module. Set size = sizeof(nd_module_type), version = 1. `forward` returns an owned
/// tensor.
typedef struct nd_module_type {
    uint32_t size;    ///< sizeof(nd_module_type)
    uint32_t version; ///< 1
    const char *name; ///< in reports and errors
    /// y = module(x), owned; NULL on error.
    nd_tensor *(*forward)(const nd_module *self, const nd_tensor *x);
} nd_module_type;

/// Module without parameters and children, in the current manager. `type` must outlive it. `data`,
/// of data_size bytes, is copied into the module (plain values only).
ND_API nd_module *nd_module_new(const nd_module_type *type, const void *data,
                                size_t data_size) ND_OWNED;
/// The module's copy of `data`, borrowed; NULL when it has none.
ND_API const void *nd_module_get_data(const nd_module *module);
/// Adds a parameter (retained) under a name without dots, of at most 63 bytes, unique in the
/// module.
ND_API nd_status nd_module_add_parameter(nd_module *module, const char *name,
                                         const nd_tensor *parameter);
/// Adds a buffer (retained) under such a name: a tensor that belongs to the module's state, is
/// moved and saved with it, and is no parameter. Errors: it requires a gradient, or is not
/// contiguous.
ND_API nd_status nd_module_add_buffer(nd_module *module, const char *name, const nd_tensor *buffer);
/// Adds a child (retained) under such a name. Error: the child contains the module, or more than 32
/// modules would stand inside each other.
ND_API nd_status nd_module_add_child(nd_module *module, const char *name, const nd_module *child);
/// Parameter of this module by name, borrowed; dots walk into children ("0.weight"). NULL with an
/// error if missing.
ND_API const nd_tensor *nd_module_get_parameter(const nd_module *module, const char *name);
/// Buffer of this module by name, borrowed, as nd_module_get_parameter().
ND_API const nd_tensor *nd_module_get_buffer(const nd_module *module, const char *name);
/// Child by index, borrowed.
ND_API const nd_module *nd_module_get_child(const nd_module *module, size_t index);
/// Number of children; 0 for NULL.
ND_API size_t nd_module_get_child_count(const nd_module *module);
/// Number of parameters of the module and everything below; one under two names counts twice.
ND_API size_t nd_module_get_parameter_count(const nd_module *module);
/// The index-th of them, borrowed, with its full name ("0.weight"), depth first in order of
/// addition. The name (ret_name may be NULL) is borrowed until this thread's next call.
ND_API const nd_tensor *nd_module_get_parameter_at(const nd_module *module, size_t index,
                                                   const char **ret_name);
/// Number of buffers of the module and everything below; one under two names counts twice.
ND_API size_t nd_module_get_buffer_count(const nd_module *module);
/// The index-th of them, borrowed, as nd_module_get_parameter_at().
ND_API const nd_tensor *nd_module_get_buffer_at(const nd_module *module, size_t index,
                                                const char **ret_name);
/// Puts the module and everything below into training mode, in which modules are made, or out of
/// it: what dropout and batch normalisation do depends on it. Not beside other uses of the module.
/// On error no mode has changed.
ND_API nd_status nd_module_set_training(const nd_module *module, bool training);
/// Whether this module (not what is below) is in training mode; false for NULL.
ND_API bool nd_module_is_training(const nd_module *module);
/// y = module(x), owned. One that fails has drawn no key. Of a module of several those that ran
/// before the failure have run: keys that they drew are drawn, running statistics have moved.
ND_API nd_tensor *nd_module_forward(const nd_module *module, const nd_tensor *x) ND_OWNED;
/// Makes it a module that draws random keys, from this one. How many it has drawn is part of its
/// state (nd_state_add_module), so that a run that goes on draws the same ones.
ND_API nd_status nd_module_set_key(nd_module *module, nd_key key);
/// The next key, for a forward function: another one at each call. Error: nd_module_set_key() was
/// not called.
ND_API nd_status nd_module_next_key(const nd_module *module, nd_key *ret_key);
/// Drops the gradients of all its parameters.
ND_API nd_status nd_module_zero_grad(const nd_module *module);
/// Moves all parameters, the gradients they have, and all buffers to a device. Each stays the same
/// tensor to all who hold it; its views and what graphs saved of it do not follow: a backward pass
/// that wants what was saved is ND_ERROR_STATE, as after a write in place. On error nothing has moved. Not beside other uses of the module.
ND_API nd_status nd_module_to(const nd_module *module, nd_device device);
/// Makes all parameters, the gradients they have, and all buffers of a float dtype that dtype (f64,
/// f32, f16 or bf16), as nd_module_to() moves them.
ND_API nd_status nd_module_cast(const nd_module *module, nd_dtype dtype);

/// x: [..., in] -> [..., out], both at least 1. weight [out, in], bias [out]; both uniform in
/// +-1/sqrt(in), drawn from key.
ND_API nd_module *nd_linear_module(nd_key key, int64_t in, int64_t out, bool bias) ND_OWNED;
// The modules of <nd/convolution.h>, <nd/pooling.h> and <nd/interpolation.h>: each calls the
// function of its name with the options that it was made with. Weight and bias of convolutions are
// uniform in +-1/sqrt(the elements of weight[0]), drawn from key. Options NULL: as their ..._INIT.

/// Module of nd_conv1d(): weight [co, ci / groups, kernel], bias [co].
ND_API nd_module *nd_conv1d_module(nd_key key, int64_t in_channels, int64_t out_channels,
                                   int64_t kernel, bool bias,
                                   const nd_conv1d_options *options) ND_OWNED;
/// Module of nd_conv2d(): weight [co, ci / groups, kernel_h, kernel_w], bias [co].
ND_API nd_module *nd_conv2d_module(nd_key key, int64_t in_channels, int64_t out_channels,
                                   int64_t kernel_h, int64_t kernel_w, bool bias,
                                   const nd_conv2d_options *options) ND_OWNED;
/// Module of nd_conv3d(): weight [co, ci / groups, kernel_d, kernel_h, kernel_w], bias [co].
ND_API nd_module *nd_conv3d_module(nd_key key, int64_t in_channels, int64_t out_channels,
                                   int64_t kernel_d, int64_t kernel_h, int64_t kernel_w, bool bias,
                                   const nd_conv3d_options *options) ND_OWNED;
/// Module of nd_conv_transpose1d(): weight [ci, co / groups, kernel], bias [co].
ND_API nd_module *nd_conv_transpose1d_module(nd_key key, int64_t in_channels, int64_t out_channels,
                                             int64_t kernel, bool bias,
                                             const nd_conv_transpose1d_options *options) ND_OWNED;
/// Module of nd_conv_transpose2d(): weight [ci, co / groups, kernel_h, kernel_w], bias [co].
ND_API nd_module *nd_conv_transpose2d_module(nd_key key, int64_t in_channels, int64_t out_channels,
                                             int64_t kernel_h, int64_t kernel_w, bool bias,
                                             const nd_conv_transpose2d_options *options) ND_OWNED;
/// Module of nd_conv_transpose3d(): weight [ci, co / groups, kernel_d, kernel_h, kernel_w], bias
/// [co].
ND_API nd_module *nd_conv_transpose3d_module(nd_key key, int64_t in_channels, int64_t out_channels,
                                             int64_t kernel_d, int64_t kernel_h, int64_t kernel_w,
                                             bool bias,
                                             const nd_conv_transpose3d_options *options) ND_OWNED;
/// Module of nd_max_pool1d().
ND_API nd_module *nd_max_pool1d_module(const nd_max_pool1d_options *options) ND_OWNED;
/// Module of nd_max_pool2d().
ND_API nd_module *nd_max_pool2d_module(const nd_max_pool2d_options *options) ND_OWNED;
/// Module of nd_max_pool3d().
ND_API nd_module *nd_max_pool3d_module(const nd_max_pool3d_options *options) ND_OWNED;
/// Module of nd_avg_pool1d().
ND_API nd_module *nd_avg_pool1d_module(const nd_avg_pool1d_options *options) ND_OWNED;
/// Module of nd_avg_pool2d().
ND_API nd_module *nd_avg_pool2d_module(const nd_avg_pool2d_options *options) ND_OWNED;
/// Module of nd_avg_pool3d().
ND_API nd_module *nd_avg_pool3d_module(const nd_avg_pool3d_options *options) ND_OWNED;
/// Module of nd_adaptive_avg_pool1d().
ND_API nd_module *nd_adaptive_avg_pool1d_module(int64_t length) ND_OWNED;
/// Module of nd_adaptive_avg_pool2d().
ND_API nd_module *nd_adaptive_avg_pool2d_module(int64_t h, int64_t w) ND_OWNED;
/// Module of nd_adaptive_avg_pool3d().
ND_API nd_module *nd_adaptive_avg_pool3d_module(int64_t d, int64_t h, int64_t w) ND_OWNED;
/// Module of nd_adaptive_max_pool1d().
ND_API nd_module *nd_adaptive_max_pool1d_module(int64_t length) ND_OWNED;
/// Module of nd_adaptive_max_pool2d().
ND_API nd_module *nd_adaptive_max_pool2d_module(int64_t h, int64_t w) ND_OWNED;
/// Module of nd_adaptive_max_pool3d().
ND_API nd_module *nd_adaptive_max_pool3d_module(int64_t d, int64_t h, int64_t w) ND_OWNED;
/// Module of nd_interpolate(). Of options NULL, which have neither sizes nor scales, no input is
/// taken.
ND_API nd_module *nd_upsample_module(const nd_interpolate_options *options) ND_OWNED;
/// Module of nd_pixel_shuffle().
ND_API nd_module *nd_pixel_shuffle_module(int64_t factor) ND_OWNED;

/// Module of nd_relu().
ND_API nd_module *nd_relu_module(void) ND_OWNED;
/// Module of nd_tanh().
ND_API nd_module *nd_tanh_module(void) ND_OWNED;
/// Module of nd_gelu().
ND_API nd_module *nd_gelu_module(void) ND_OWNED;
/// Module of any function of one tensor that gives an owned one, or NULL on error:
/// nd_function_module(nd_silu). In a sequence it is not computed together with the layer before it,
/// as the three above are.
ND_API nd_module *nd_function_module(nd_tensor *(*function)(const nd_tensor *x)) ND_OWNED;
/// Module of nd_dropout() with probability p, while it is in training mode: each call draws a key
/// of its own from this one. Else it gives back its input.
ND_API nd_module *nd_dropout_module(nd_key key, double p) ND_OWNED;
/// Module of nd_batch_norm() over so many channels: weight of ones and bias of zeros [channels],
/// buffers running_mean and running_var. The mode says whether it trains; options.training does
/// not. Options NULL: as ND_BATCH_NORM_OPTIONS_INIT.
ND_API nd_module *nd_batch_norm_module(int64_t channels,
                                       const nd_batch_norm_options *options) ND_OWNED;
/// Module of nd_instance_norm() over so many channels: weight of ones and bias of zeros [channels]; x
/// is normalised by its own statistics in either mode, and options.momentum and options.training say
/// nothing. Options NULL: as ND_BATCH_NORM_OPTIONS_INIT.
ND_API nd_module *nd_instance_norm_module(int64_t channels,
                                          const nd_batch_norm_options *options) ND_OWNED;
/// Module of nd_group_norm() over so many channels: weight of ones and bias of zeros [channels].
/// groups divides channels.
ND_API nd_module *nd_group_norm_module(int64_t groups, int64_t channels, double epsilon) ND_OWNED;
/// Module of nd_layer_norm() over the last axes, of this shape: weight of ones, bias of zeros.
ND_API nd_module *nd_layer_norm_module(double epsilon, int naxes, const int64_t *shape) ND_OWNED;
/// Module of nd_rms_norm() over the last axes, of this shape: weight of ones.
ND_API nd_module *nd_rms_norm_module(double epsilon, int naxes, const int64_t *shape) ND_OWNED;
/// Module of nd_embedding(): indices [...] -> [..., size]. weight [rows, size], standard normal,
/// drawn from key, with zeros in the row of padding; padding may be ND_NO_PADDING.
ND_API nd_module *nd_embedding_module(nd_key key, int64_t rows, int64_t size,
                                      int64_t padding) ND_OWNED;

// Attention with several heads (Vaswani et al. 2017), each of size / heads numbers: queries, keys and
// values are linear functions of what is given, and the result is one of what the heads give one
// behind the other. Parameters are named as PyTorch's module names them: in_proj_weight [3 size, size]
// and in_proj_bias [3 size], for queries, keys and values in this order, and out_proj.weight [size,
// size] and out_proj.bias [size]; all uniform in +-1/sqrt(size), drawn from key; bias false: without
// biases. options NULL: as ND_ATTENTION_OPTIONS_INIT; the mode says whether dropout drops, and each
// call draws a key for it: options.key says nothing.

/// Module of attention from x to itself: [..., l, size] -> [..., l, size], of at most 7 axes. heads
/// divides size.
ND_API nd_module *nd_attention_module(nd_key key, int64_t size, int64_t heads, bool bias,
                                      const nd_attention_options *options) ND_OWNED;
/// The same from query [..., l, size] to key and value [..., s, size] -> [..., l, size]. key NULL: query;
/// value NULL: key. mask (NULL: none) broadcasts to [..., heads, l, s], as in nd_attention(). NULL
/// on error.
ND_API nd_tensor *nd_attention_module_run(const nd_module *module, const nd_tensor *query,
                                          const nd_tensor *key, const nd_tensor *value,
                                          const nd_tensor *mask) ND_OWNED;

// Recurrent nets of <nd/neural.h> with `in` numbers for a step and states of `size`. Their weights are
// named as PyTorch's modules name them, so that parameters go from file to file: of layer 0 weight_ih_l0
// [gates size, in] and weight_hh_l0 [gates size, size], with bias also bias_ih_l0 and bias_hh_l0 [gates
// size]; then, where the net is bidirectional, those with _reverse behind, then layer 1. All are
// uniform in +-1/sqrt(size), drawn from key. options NULL: as ND_RECURRENT_OPTIONS_INIT; the mode says
// whether dropout drops, and each call draws a key for it: options.training and options.key say
// nothing. nd_module_forward() begins with states of zeros and gives the output.

/// Module of nd_rnn().
ND_API nd_module *nd_rnn_module(nd_key key, int64_t in, int64_t size, bool bias,
                                const nd_recurrent_options *options) ND_OWNED;
/// Module of nd_lstm().
ND_API nd_module *nd_lstm_module(nd_key key, int64_t in, int64_t size, bool bias,
                                 const nd_recurrent_options *options) ND_OWNED;
/// Module of nd_gru().
ND_API nd_module *nd_gru_module(nd_key key, int64_t in, int64_t size, bool bias,
                                const nd_recurrent_options *options) ND_OWNED;
/// One of these from given states (NULL: zeros), as nd_rnn(), nd_lstm() or nd_gru() with its weights and
/// options: writes the output and, where these are not NULL, the states after the last step. cell and
/// ret_cell: of an LSTM only. On error nothing is written.
ND_API nd_status nd_recurrent_module_run(const nd_module *module, const nd_tensor *x,
                                         const nd_tensor *hidden, const nd_tensor *cell,
                                         nd_tensor **ret_output, nd_tensor **ret_hidden,
                                         nd_tensor **ret_cell);

/// Module that makes [n, ...] to [n, the rest in one].
ND_API nd_module *nd_flatten_module(void) ND_OWNED;
/// Applies its children in order. Consumes the `count` owned children, always (NULL among them:
/// NULL, the others released), so that constructors can be nested.
ND_API nd_module *nd_sequential(size_t count, nd_module **children) ND_OWNED;
/// nd_sequential() of the modules that are named.
#ifdef __cplusplus
#define ND_SEQUENTIAL(...) nd_sequential(nd__children{__VA_ARGS__})
extern "C++" {
using nd__children = std::initializer_list<nd_module *>;
__attribute__((__warn_unused_result__)) inline nd_module *nd_sequential(nd__children children) {
    return nd_sequential(children.size(), const_cast<nd_module **>(children.begin()));
}
}
#else
#define ND_SEQUENTIAL(...)                                                    \
    nd_sequential(sizeof((nd_module *[]){__VA_ARGS__}) / sizeof(nd_module *), \
                  (nd_module *[]){__VA_ARGS__})
#endif

// -------------------------------------------------------------------------------------- optimizers
//
// An optimizer holds the parameters that the module has when it is made, each once, and its state
// as edges. The state of a parameter is made at the first step that needs it, and lives at the
// parameter's manager: f64 for a parameter of f64, else f32. A parameter of f16 or bf16 is the
// rounded copy of a master in f32, which is part of the state and is what steps change; when the
// program has written such a parameter itself since the last step, the master follows it.

/// Options of nd_sgd(). Numbers are finite and at least 0.
typedef struct nd_sgd_options {
    uint32_t size;       ///< sizeof(nd_sgd_options)
    uint32_t version;    ///< 1
    double rate;         ///< learning rate
    double momentum;     ///< part of the last update that is kept
    double weight_decay; ///< part of the parameter that is added to its gradient
    bool nesterov;       ///< Nesterov's momentum; needs a momentum
} nd_sgd_options;
/// What an nd_sgd_options must begin as: rate 0.001, no momentum, no weight decay.
#define ND_SGD_OPTIONS_INIT \
    { sizeof(nd_sgd_options), 1, 1e-3, 0, 0, false }
/// v = momentum v + (g + weight_decay p); p -= rate v, or, with nesterov, p -= rate (g +
/// weight_decay p + momentum v). Options NULL: as ND_SGD_OPTIONS_INIT.
ND_API nd_optimizer *nd_sgd(const nd_module *module, const nd_sgd_options *options) ND_OWNED;

/// Options of nd_adam() and nd_adamw(). All are finite and at least 0, the betas below 1.
typedef struct nd_adam_options {
    uint32_t size;    ///< sizeof(nd_adam_options)
    uint32_t version; ///< 1
    double rate;      ///< learning rate
    double beta1;     ///< decay of the mean of gradients
    double beta2;     ///< decay of the mean of their squares
    double eps;       ///< added to the root of that
    double
        weight_decay; ///< of nd_adam(): part of the parameter added to its gradient; of nd_adamw():
                      ///< part that the parameter loses at each step, times the rate
} nd_adam_options;
/// What an nd_adam_options must begin as for nd_adam(): rate 0.001, betas 0.9 and 0.999, eps 1e-8,
/// no weight decay.
#define ND_ADAM_OPTIONS_INIT \
    { sizeof(nd_adam_options), 1, 1e-3, 0.9, 0.999, 1e-8, 0 }
/// The same for nd_adamw(): weight decay 0.01.
#define ND_ADAMW_OPTIONS_INIT \
    { sizeof(nd_adam_options), 1, 1e-3, 0.9, 0.999, 1e-8, 1e-2 }
/// Kingma and Ba 2015; weight_decay adds to the gradient. Options NULL: as ND_ADAM_OPTIONS_INIT.
ND_API nd_optimizer *nd_adam(const nd_module *module, const nd_adam_options *options) ND_OWNED;
/// Loshchilov and Hutter 2019: decoupled weight decay. Options NULL: as ND_ADAMW_OPTIONS_INIT.
ND_API nd_optimizer *nd_adamw(const nd_module *module, const nd_adam_options *options) ND_OWNED;

/// Options of nd_rmsprop(). Numbers are finite and at least 0, alpha below 1.
typedef struct nd_rmsprop_options {
    uint32_t size;       ///< sizeof(nd_rmsprop_options)
    uint32_t version;    ///< 1
    double rate;         ///< learning rate
    double alpha;        ///< decay of the mean of squared gradients
    double eps;          ///< added to the root of that
    double momentum;     ///< part of the last update that is kept
    double weight_decay; ///< part of the parameter that is added to its gradient
    bool centered;       ///< take the square of the mean gradient from the mean of squares
} nd_rmsprop_options;
/// What an nd_rmsprop_options must begin as: rate 0.01, alpha 0.99, eps 1e-8, no momentum, no
/// weight decay, not centered.
#define ND_RMSPROP_OPTIONS_INIT \
    { sizeof(nd_rmsprop_options), 1, 1e-2, 0.99, 1e-8, 0, 0, false }
/// Hinton 2012; centered: Graves 2013. v = alpha v + (1 - alpha) g^2; b = momentum b + g / (sqrt(v)
/// + eps); p -= rate b. Options NULL: as ND_RMSPROP_OPTIONS_INIT.
ND_API nd_optimizer *nd_rmsprop(const nd_module *module,
                                const nd_rmsprop_options *options) ND_OWNED;

/// Options of nd_adagrad(). All are finite and at least 0.
typedef struct nd_adagrad_options {
    uint32_t size;       ///< sizeof(nd_adagrad_options)
    uint32_t version;    ///< 1
    double rate;         ///< learning rate
    double rate_decay;   ///< at step t, from 1, the rate is divided by 1 + (t - 1) rate_decay
    double weight_decay; ///< part of the parameter that is added to its gradient
    double initial;      ///< what the sum of squares begins with
    double eps;          ///< added to the root of the sum
} nd_adagrad_options;
/// What an nd_adagrad_options must begin as: rate 0.01, no decay, sums from 0, eps 1e-10.
#define ND_ADAGRAD_OPTIONS_INIT \
    { sizeof(nd_adagrad_options), 1, 1e-2, 0, 0, 0, 1e-10 }
/// Duchi, Hazan and Singer 2011. v += g^2; p -= rate g / (sqrt(v) + eps). Options NULL: as
/// ND_ADAGRAD_OPTIONS_INIT.
ND_API nd_optimizer *nd_adagrad(const nd_module *module,
                                const nd_adagrad_options *options) ND_OWNED;

/// Options of nd_lion(). All are finite and at least 0, the betas below 1.
typedef struct nd_lion_options {
    uint32_t size;       ///< sizeof(nd_lion_options)
    uint32_t version;    ///< 1
    double rate;         ///< learning rate, about a tenth of Adam's
    double beta1;        ///< part of the momentum in the direction of a step
    double beta2;        ///< decay of the momentum
    double weight_decay; ///< part that the parameter loses at each step, times the rate
} nd_lion_options;
/// What an nd_lion_options must begin as: rate 1e-4, betas 0.9 and 0.99, no weight decay.
#define ND_LION_OPTIONS_INIT \
    { sizeof(nd_lion_options), 1, 1e-4, 0.9, 0.99, 0 }
/// Chen et al. 2023. p -= rate (sign(beta1 m + (1 - beta1) g) + weight_decay p); m = beta2 m + (1 -
/// beta2) g. Options NULL: as ND_LION_OPTIONS_INIT.
ND_API nd_optimizer *nd_lion(const nd_module *module, const nd_lion_options *options) ND_OWNED;

/// One update, in place and unrecorded, of every parameter that has a gradient. All parameters,
/// gradients and state are checked, and all memory is taken, before the first parameter changes;
/// only a device that fails can stop a step midway, and then the parameters before the failing one,
/// in the module's order, are updated and the others are not.
ND_API nd_status nd_optimizer_step(nd_optimizer *optimizer);
/// Drops the gradients of all its parameters.
ND_API nd_status nd_optimizer_zero_grad(nd_optimizer *optimizer);
/// Another learning rate from the next step on, for all groups.
ND_API nd_status nd_optimizer_set_rate(nd_optimizer *optimizer, double rate);

/// The options that the parameters of a group share; each kind of optimizer has those that its
/// options struct names. Switches (nesterov, centered) are 0 or 1.
typedef enum nd_optimizer_option {
    ND_OPTIMIZER_RATE,         ///< rate
    ND_OPTIMIZER_WEIGHT_DECAY, ///< weight_decay
    ND_OPTIMIZER_MOMENTUM,     ///< momentum
    ND_OPTIMIZER_NESTEROV,     ///< nesterov
    ND_OPTIMIZER_BETA1,        ///< beta1
    ND_OPTIMIZER_BETA2,        ///< beta2
    ND_OPTIMIZER_EPS,          ///< eps
    ND_OPTIMIZER_ALPHA,        ///< alpha
    ND_OPTIMIZER_CENTERED,     ///< centered
    ND_OPTIMIZER_RATE_DECAY,   ///< rate_decay
    ND_OPTIMIZER_INITIAL,      ///< initial
    ND_OPTIMIZER_OPTION_COUNT  ///< how many there are; grows
} nd_optimizer_option;
/// Takes parameters of the optimizer out of their groups into a new one, which begins with the
/// options of group 0, the group that all parameters are in at first. Writes the new group's number
/// to `ret_group` (may be NULL). On error nothing has changed.
ND_API nd_status nd_optimizer_add_group(nd_optimizer *optimizer, size_t count,
                                        const nd_tensor *const *parameters, size_t *ret_group);
/// Number of groups; 0 for NULL.
ND_API size_t nd_optimizer_get_group_count(const nd_optimizer *optimizer);
/// Sets an option of a group from the next step on. Errors: the optimizer has no such group or
/// option, or the option cannot have the value.
ND_API nd_status nd_optimizer_set_option(nd_optimizer *optimizer, size_t group,
                                         nd_optimizer_option option, double value);
/// An option of a group; NaN with an error when there is none.
ND_API double nd_optimizer_get_option(const nd_optimizer *optimizer, size_t group,
                                      nd_optimizer_option option);

// --------------------------------------------------------------------------------------- schedules
//
// A schedule multiplies the rates that an optimizer's groups had when it was started with a factor,
// which is a function of the number of steps since then (and, for a plateau, of a metric).
// Schedules are put together before they are started; the numbers they are made of are not part of
// their state.

/// gamma^(number of steps / every, rounded down).
ND_API nd_schedule *nd_step_schedule(int64_t every, double gamma) ND_OWNED;
/// gamma^(milestones reached). Milestones rise, from at least 1.
ND_API nd_schedule *nd_multi_step_schedule(double gamma, size_t count,
                                           const int64_t *milestones) ND_OWNED;
/// gamma^(number of steps).
ND_API nd_schedule *nd_exponential_schedule(double gamma) ND_OWNED;
/// From 1 down to `floor` in so many steps, along half a cosine; it stays there (Loshchilov and
/// Hutter 2017).
ND_API nd_schedule *nd_cosine_schedule(double floor, int64_t steps) ND_OWNED;
/// From `start` to `end` in so many steps, along a line; it stays there. A warm-up begins near 0
/// and ends at 1.
ND_API nd_schedule *nd_linear_schedule(double start, double end, int64_t steps) ND_OWNED;

/// Options of nd_one_cycle_schedule().
typedef struct nd_one_cycle_options {
    uint32_t size;        ///< sizeof(nd_one_cycle_options)
    uint32_t version;     ///< 1
    int64_t steps;        ///< of the whole cycle; must be set
    double rise;          ///< part of the steps in which the rate rises, between 0 and 1
    double divisor;       ///< the factor begins with 1 / divisor
    double final_divisor; ///< and ends with 1 / (divisor final_divisor)
    bool linear;          ///< along lines instead of cosines
} nd_one_cycle_options;
/// What an nd_one_cycle_options must begin as: 0.3 of the steps rise, from 1/25 to 1, then down to
/// 1/250000, along cosines.
#define ND_ONE_CYCLE_OPTIONS_INIT \
    { sizeof(nd_one_cycle_options), 1, 0, 0.3, 25, 1e4, false }
/// Smith and Topin 2018: up to the rate that the optimizer has, and down far below where it began.
ND_API nd_schedule *nd_one_cycle_schedule(const nd_one_cycle_options *options) ND_OWNED;

/// Options of nd_plateau_schedule().
typedef struct nd_plateau_options {
    uint32_t size;    ///< sizeof(nd_plateau_options)
    uint32_t version; ///< 1
    double gamma;     ///< what the factor is multiplied with, below 1
    double threshold; ///< by how much a metric must be better than the best: a part of that
    double floor;     ///< the factor does not fall below it
    int64_t patience; ///< steps without a better metric that are borne
    int64_t cooldown; ///< steps after a cut in which no bad step counts
    bool maximize;    ///< larger metrics are better
    bool absolute;    ///< the threshold is a difference, not a part
} nd_plateau_options;
/// What an nd_plateau_options must begin as: a tenth after more than 10 steps in which the metric
/// did not fall by a ten-thousandth.
#define ND_PLATEAU_OPTIONS_INIT \
    { sizeof(nd_plateau_options), 1, 0.1, 1e-4, 0, 10, 0, false, false }
/// Falls when a metric, such as a validation loss, has stopped to get better; steps are made with
/// nd_schedule_step_with(). A metric that is not a number is not better. Options NULL: as
/// ND_PLATEAU_OPTIONS_INIT.
ND_API nd_schedule *nd_plateau_schedule(const nd_plateau_options *options) ND_OWNED;

/// The product of several. Consumes the `count` owned schedules, always (NULL among them: NULL, the
/// others released), so that constructors can be nested.
ND_API nd_schedule *nd_product_schedule(size_t count, nd_schedule **schedules) ND_OWNED;
/// One after the other: schedule i + 1 begins, with its step 0, at milestones[i], of which there
/// are count - 1. Consumes the schedules, as nd_product_schedule().
ND_API nd_schedule *nd_sequence_schedule(size_t count, nd_schedule **schedules,
                                         const int64_t *milestones) ND_OWNED;

/// Notes the rates of the optimizer's groups as what the factors multiply, and sets them to those
/// of step 0. The schedule holds the optimizer. Errors: it was started before; a rate would be
/// infinite. Nothing has changed then.
ND_API nd_status nd_schedule_start(nd_schedule *schedule, nd_optimizer *optimizer);
/// The rates of the next step. Errors: not started; a plateau is in force, which wants a metric;
/// groups were added since the start; a rate would be infinite. Nothing has changed then.
ND_API nd_status nd_schedule_step(nd_schedule *schedule);
/// The same with a metric for the plateaus that are in force.
ND_API nd_status nd_schedule_step_with(nd_schedule *schedule, double metric);
/// What the rates are multiplied with now; NaN with an error for a closed schedule.
ND_API double nd_schedule_get_factor(const nd_schedule *schedule);
/// Steps since the start; 0 for NULL.
ND_API int64_t nd_schedule_get_steps(const nd_schedule *schedule);

// ------------------------------------------------------------------------ activation checkpointing

/// What nd_checkpoint() runs: maps `count` inputs to one owned tensor; NULL on error. It is run a
/// second time by the backward pass, perhaps on another thread, and must compute the same then;
/// keys that modules draw (nd_module_next_key) are the same ones. The first run is not recorded: what
/// asks for history in it finds none.
typedef nd_tensor *(*nd_checkpoint_function)(const nd_object *context, size_t count,
                                             const nd_tensor *const *inputs);
/// y = function(context, inputs), of which only the inputs are kept for the backward pass, not what
/// is computed in between; the backward pass computes it again. Gradients are the same to the bit,
/// but for the order of their sums those of higher order, and of what is used several times. Every tensor that shall have a gradient is
/// an input, and writes none of them. `context` (an object, may be NULL) is held by the graph. A
/// result that shares memory with an input is copied. Error in the backward pass: an input was changed
/// in place since.
ND_API nd_tensor *nd_checkpoint(nd_checkpoint_function function, const void *context, size_t count,
                                const nd_tensor *const *inputs) ND_OWNED;
/// nd_checkpoint() of nd_module_forward(module, x): the module's parameters have gradients too.
/// Buffers are updated once.
ND_API nd_tensor *nd_checkpoint_module(const nd_module *module, const nd_tensor *x) ND_OWNED;

// ------------------------------------------------------------- gradients, averages and loss scaling

/// Scales all gradients of a module's parameters so that the root of the sum of all their squares
/// is at most `limit`; writes what it was before to `ret_norm` (may be NULL). A norm that is not
/// finite leaves them as they are. New gradients take the place of the old ones.
ND_API nd_status nd_clip_grad_norm(const nd_module *module, double limit, double *ret_norm);
/// Brings every element of every gradient into -limit ... limit. New gradients take the place of the
/// old ones, at the managers of their parameters, which have both for a moment.
ND_API nd_status nd_clip_grad_value(const nd_module *module, double limit);

/// Moving averages of the parameters that a module has now, which are what they begin with; f64 for
/// f64, else f32. decay is at least 0 and below 1; 0.999 is usual. They stay where they are: while a
/// parameter is on another device than they are, what is asked of them is ND_ERROR_DEVICE.
ND_API nd_ema *nd_ema_new(const nd_module *module, double decay) ND_OWNED;
/// average = decay average + (1 - decay) parameter, for all of them.
ND_API nd_status nd_ema_update(nd_ema *ema);
/// Puts the averages into the parameters, to evaluate with; what they were is kept. Error: they are
/// there already.
ND_API nd_status nd_ema_apply(nd_ema *ema);
/// Puts the parameters' own values back. Error: the averages are not applied.
ND_API nd_status nd_ema_restore(nd_ema *ema);
/// The average of a parameter by its full name, of one that is shared the first, borrowed.
ND_API const nd_tensor *nd_ema_get_average(const nd_ema *ema, const char *name);

/// Options of nd_loss_scaler_new().
typedef struct nd_loss_scaler_options {
    uint32_t size;    ///< sizeof(nd_loss_scaler_options)
    uint32_t version; ///< 1
    double scale;     ///< what losses are multiplied with at first; at least 2^-126
    double growth;    ///< what the scale is multiplied with after `interval` steps
    double backoff;   ///< and when a gradient was not finite
    int64_t interval; ///< steps in a row
} nd_loss_scaler_options;
/// What an nd_loss_scaler_options must begin as: 65536, doubled after 2000 steps, halved.
#define ND_LOSS_SCALER_OPTIONS_INIT \
    { sizeof(nd_loss_scaler_options), 1, 65536, 2, 0.5, 2000 }
/// Scales losses, so that gradients do not vanish in f16 (Micikevicius et al. 2018); bf16 has no
/// need of it. Options NULL: as ND_LOSS_SCALER_OPTIONS_INIT.
ND_API nd_loss_scaler *nd_loss_scaler_new(const nd_loss_scaler_options *options) ND_OWNED;
/// loss times the scale: what nd_backward() is called with.
ND_API nd_tensor *nd_loss_scaler_scale(const nd_loss_scaler *scaler,
                                       const nd_tensor *loss) ND_OWNED;
/// Divides the gradients of an optimizer's parameters by the scale, before they are clipped.
/// nd_loss_scaler_step() does it when this was not called. Error: a parameter is f16, whose gradients
/// would vanish here; parameters of f32 and nd_autocast compute as much in f16. ND_ERROR_UNSUPPORTED:
/// ranks share out the optimizer's state (nd/distributed.h).
ND_API nd_status nd_loss_scaler_unscale(nd_loss_scaler *scaler, nd_optimizer *optimizer);
/// nd_optimizer_step() with divided gradients, unless one of them is not finite: then the step is
/// left out, and the scale falls, to 2^-126 at least. Writes whether it was made to `ret_stepped` (may
/// be NULL). Where the optimizer's step fails the gradients stay divided, and the next call makes the
/// step with them; nd_optimizer_zero_grad(), or whatever drops them, gives it up. A parameter whose
/// gradient was dropped and came anew after nd_loss_scaler_unscale() is divided here.
ND_API nd_status nd_loss_scaler_step(nd_loss_scaler *scaler, nd_optimizer *optimizer,
                                     bool *ret_stepped);
/// What losses are multiplied with now; 0 for NULL.
ND_API double nd_loss_scaler_get_scale(const nd_loss_scaler *scaler);

#ifdef __cplusplus
}
#endif
#endif
