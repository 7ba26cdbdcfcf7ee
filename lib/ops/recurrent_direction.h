// One direction of one layer of a recurrent net, for two ways that give the same: one node for the whole
// sequence (recurrent_walk.h), and recorded operations (recurrent_steps.h).
#ifndef ND_LIB_OPS_RECURRENT_DIRECTION_H
#define ND_LIB_OPS_RECURRENT_DIRECTION_H
#include "kernels/kernel.h"
#include "lib/tensor/tensor.h"

/// What comes in, checked. Of one float dtype, f32 or f64, but weight and bias, which have that of the
/// products that they are part of: a half under autocast.
typedef struct nd__recurrent_direction {
    const char *name; ///< of the operation
    nd_cell cell;
    bool reverse;            ///< from the last step to the first
    const nd_tensor *input;  ///< [t, n, gates size], what the input gives to the gates
    const nd_tensor *weight; ///< [gates size, size], of the state
    const nd_tensor *bias;   ///< [gates size], or NULL
    const nd_tensor *hidden; ///< [n, size], the first state, or NULL for zeros
    const nd_tensor *memory; ///< the same, the first c of an LSTM
} nd__recurrent_direction;

/// What a direction leaves behind, owned.
typedef struct nd__recurrent_result {
    nd_tensor *output; ///< [t, n, size]
    nd_tensor *hidden; ///< [n, size], after the last step
    nd_tensor *memory; ///< the same, of an LSTM
} nd__recurrent_result;

void nd__recurrent_direction_release(nd__recurrent_result *result);

/// Tensors of the steps of a sequence, or of the directions of a net, owned.
typedef struct nd__recurrent_list {
    nd_tensor **at; ///< or NULL
    size_t count;
} nd__recurrent_list;

/// A list of NULL.
nd_status nd__recurrent_direction_make_list(const char *name, int64_t count,
                                            nd__recurrent_list *ret_list);
void nd__recurrent_direction_release_list(nd__recurrent_list *list);

/// A first state, retained, or zeros. NULL with an error.
nd_tensor *nd__recurrent_direction_state(const nd__recurrent_direction *d, const nd_tensor *given);
/// What a state gives to the gates: [n, gates size], of the input's dtype. NULL with an error.
nd_tensor *nd__recurrent_direction_product(const nd__recurrent_direction *d,
                                           const nd_tensor *hidden);
#endif
