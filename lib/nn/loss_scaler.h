// Inside of loss scalers.
#ifndef ND_LIB_NN_LOSS_SCALER_H
#define ND_LIB_NN_LOSS_SCALER_H
#include "lib/nn/module.h"
#include "lib/nn/optimizer.h"

struct nd_loss_scaler {
    nd_object header;
    nd_loss_scaler_options options;
    double scale;  ///< now
    int64_t steps; ///< since the scale changed, or a step was left out
};

/// The least scale there is, that of normal f32: one over it is finite.
#define ND__LEAST_SCALE 0x1p-126

nd_status nd__loss_scaler_check(const char *operation, const nd_loss_scaler *scaler);
/// Divides the gradients of this process that were not divided yet, and notes in the optimizer
/// whether all that were are finite. Where other ranks have gradients, that is theirs to find out.
nd_status nd__loss_scaler_divide(const char *operation, const nd_loss_scaler *scaler,
                                 nd_optimizer *optimizer);
/// Behind a step, or one that was left out: chooses the next scale, and the gradients count as not
/// divided.
void nd__loss_scaler_end_step(nd_loss_scaler *scaler, nd_optimizer *optimizer, bool stepped);
#endif
