// How each kind of part speaks to a stream.
#ifndef ND_LIB_NN_STATE_PARTS_H
#define ND_LIB_NN_STATE_PARTS_H
#include "lib/nn/state_stream.h"

typedef enum nd_state_kind {
    ND__STATE_MODULE,
    ND__STATE_OPTIMIZER,
    ND__STATE_SCHEDULE,
    ND__STATE_DATASET,
    ND__STATE_EMA,
    ND__STATE_LOSS_SCALER,
    ND__STATE_TENSOR,
    ND__STATE_I64,
    ND__STATE_F64,
    ND__STATE_KEY
} nd_state_kind;

typedef struct nd_state_part {
    char name[ND__MODULE_NAME_MAX + 1];
    nd_state_kind kind;
    size_t object; ///< of the state's list, for a part that is an object
    union {
        int64_t i64[2]; ///< a number, or the two halves of a key
        double f64;
    } value;
} nd_state_part;

/// Saves, compares or loads one part, whose object (NULL for a number) is borrowed.
nd_status nd__state_parts_exchange(nd_state_stream *stream, nd_state_part *part,
                                   const nd_object *object);
#endif
