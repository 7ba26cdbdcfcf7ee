// Inside of moving averages.
//
// Invariant: averages[i] is of parameters[i]: contiguous, f64 for f64, else f32. While the averages
// are applied, kept[i] holds the parameter's own values.
#ifndef ND_LIB_NN_EMA_H
#define ND_LIB_NN_EMA_H
#include "lib/nn/module.h"

struct nd_ema {
    nd_object header;
    double decay;
    bool applied;
    char **names; ///< full names in the module that it was made for
    size_t count;
    struct {
        nd_tensor *parameter; ///< edge
        nd_tensor *average;   ///< edge
        nd_tensor *kept;      ///< edge; NULL unless applied
    } of[];
};

nd_status nd__ema_check(const char *operation, const nd_ema *ema);
#endif
