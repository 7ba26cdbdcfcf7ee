// What layers with a weight and a bias have in common.
#ifndef ND_LIB_NN_LAYERS_H
#define ND_LIB_NN_LAYERS_H
#include "lib/nn/module.h"

/// Where a layer's members stand, the bias if it has one.
enum { ND__LAYERS_WEIGHT = 0, ND__LAYERS_BIAS = 1 };

/// Adds a weight and, unless `bias` is 0, a bias of so many elements, uniform in +-1/sqrt(fan_in).
/// Consumes the module: returned, or released and NULL. NULL gives NULL.
nd_module *nd__layers_with_weights(nd_module *module, nd_key key, int ndim, const int64_t *shape,
                                   int64_t fan_in, int64_t bias);

/// Adds a parameter whose elements are uniform in +-bound, drawn from key.
nd_status nd__layers_add_uniform(nd_module *module, const char *name, nd_key key, int ndim,
                                 const int64_t *shape, double bound);

/// The member at `index`, borrowed; NULL of a closed module.
static inline const nd_tensor *nd__layers_parameter(const nd_module *module, size_t index) {
    return index < module->count ? (const nd_tensor *)module->members[index].object : NULL;
}
#endif
