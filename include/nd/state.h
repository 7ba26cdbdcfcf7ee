/// @file
/// The whole state of a training in one file, so that a run that was stopped goes on as if it had
/// not been: to the same bits, on the same machine with the same number of threads.
#ifndef ND_STATE_H
#define ND_STATE_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// A list of named parts, empty, in the current manager. What is added to it is held by it.
///
///     nd_auto nd_state *state = nd_state_new();
///     nd_state_add_module(state, "model", model);
///     nd_state_add_optimizer(state, "optimizer", optimizer);
///     nd_state_add_dataset(state, "data", data);
///     nd_state_set_i64(state, "step", 0);
///     if (access(file, F_OK) == 0)
///         nd_load_state(state, file);
///
/// Names of parts have 1 to 63 bytes and no dot, and are unique; a part's tensors stand in the file
/// under NAME.WHAT ("model.0.weight", "optimizer.first_moment.0.weight").
ND_API nd_state *nd_state_new(void) ND_OWNED;
/// Adds the parameters and buffers of a module, and how often its modules have drawn random keys.
/// Modes (nd_module_set_training) are the program's.
ND_API nd_status nd_state_add_module(nd_state *state, const char *name, const nd_module *module);
/// Adds an optimizer's state: tensors, counts of steps, groups and their options. An optimizer that
/// the file is loaded into has as many groups; which parameters are in which comes from the file.
ND_API nd_status nd_state_add_optimizer(nd_state *state, const char *name,
                                        const nd_optimizer *optimizer);
/// Adds a schedule's steps, base rates and plateaus. It is started before the state is saved or
/// loaded.
ND_API nd_status nd_state_add_schedule(nd_state *state, const char *name,
                                       const nd_schedule *schedule);
/// Adds a data set's epoch, position in it, and key: the next batch after loading is the one that
/// would have come after saving. Size, batch and options must be the same; of several ranks
/// (nd_dataset_options), the batch of all together, so that another number of them goes on with the
/// same samples. More ranks than saved it are refused where they would have added the samples that
/// are left, fewer than one for each, to the batch before.
ND_API nd_status nd_state_add_dataset(nd_state *state, const char *name, const nd_dataset *dataset);
/// Adds moving averages. They are not applied when the state is saved or loaded.
ND_API nd_status nd_state_add_ema(nd_state *state, const char *name, const nd_ema *ema);
/// Adds a loss scaler's scale and count of steps.
ND_API nd_status nd_state_add_loss_scaler(nd_state *state, const char *name,
                                          const nd_loss_scaler *scaler);
/// Adds a tensor of the program's, which loading writes in place; it is contiguous, and requires no
/// gradient.
ND_API nd_status nd_state_add_tensor(nd_state *state, const char *name, const nd_tensor *tensor);

/// Sets a number of the program's, such as its step; adds it when there is none of the name.
ND_API nd_status nd_state_set_i64(nd_state *state, const char *name, int64_t value);
/// A number that was set, or loaded since. On error *ret_value stays.
ND_API nd_status nd_state_get_i64(const nd_state *state, const char *name, int64_t *ret_value);
/// nd_state_set_i64() for a double.
ND_API nd_status nd_state_set_f64(nd_state *state, const char *name, double value);
/// nd_state_get_i64() for a double.
ND_API nd_status nd_state_get_f64(const nd_state *state, const char *name, double *ret_value);
/// nd_state_set_i64() for a random key.
ND_API nd_status nd_state_set_key(nd_state *state, const char *name, nd_key key);
/// nd_state_get_i64() for a random key.
ND_API nd_status nd_state_get_key(const nd_state *state, const char *name, nd_key *ret_key);

/// Writes all parts to one safetensors file, as nd_save_safetensors() does: a crash at any moment
/// leaves the old file or the new one. Not beside uses of what the parts change.
ND_API nd_status nd_save_state(const nd_state *state, const char *path);
/// Reads all parts back. The file holds exactly what the parts expect, in their shapes and dtypes:
/// an entry that is missing or too many (ND_ERROR_INVALID_ARGUMENT) or does not fit (ND_ERROR_SHAPE,
/// ND_ERROR_DTYPE) is an error that names it, and nothing has changed then; a file that is not there
/// or cannot be read is ND_ERROR_IO, a damaged one ND_ERROR_FORMAT. One entry may be missing: OPTIMIZER.slots, which says what state tensors each
/// parameter has, and which older files lack; the parameters then have those that are in the file.
/// Only a device that fails can stop it midway. Takes memory for the whole file.
ND_API nd_status nd_load_state(const nd_state *state, const char *path);

#ifdef __cplusplus
}
#endif
#endif
