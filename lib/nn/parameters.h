// Everything that concerns all parameters and buffers of a module: walking, gradients, devices,
// files.
#ifndef ND_LIB_NN_PARAMETERS_H
#define ND_LIB_NN_PARAMETERS_H
#include "lib/nn/module.h"

/// A walk over the members of some kinds, bits of nd_member_kind.
void nd__parameters_walk_begin(nd_module_walk *walk, const char *operation, const nd_module *module,
                               unsigned kinds);

/// Next tensor, borrowed; NULL at the end. A tensor under two names comes twice.
nd_tensor *nd__parameters_walk_next(nd_module_walk *walk);

/// All tensors of some kinds of a module, borrowed, in an array to be freed with nd__alloc_free;
/// each once, also when it has two names. NULL with an error.
nd_tensor **nd__parameters_collect(const char *operation, const nd_module *module, unsigned kinds,
                                   size_t *ret_count);

/// The first full name that a module has for each of these tensors, in one block to be freed with
/// nd__alloc_free. NULL with an error.
char **nd__parameters_names(const char *operation, const nd_module *module, unsigned kinds,
                            nd_tensor *const *tensors, size_t count);

/// Contiguous copy of x on a device and in a dtype, without history, at the manager of `owner`.
nd_tensor *nd__parameters_copy_to(const char *operation, const nd_tensor *x, const nd_tensor *owner,
                                  nd_device device, nd_dtype dtype);
#endif
