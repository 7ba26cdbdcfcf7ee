// Products of terms: tensors whose axes have labels.
#ifndef ND_LIB_OPS_CONTRACTION_H
#define ND_LIB_OPS_CONTRACTION_H
#include "lib/tensor/tensor.h"

/// Letters (0 ... 51: A ... Z, a ... z), then axes of an ellipsis, from the last.
enum { ND__CONTRACTION_ELLIPSIS = 52, ND__CONTRACTION_LABELS = 52 + ND_MAX_DIMS };

typedef struct nd__term {
    nd_tensor *x; ///< owned; NULL after an error
    int ndim;     ///< of the labels, and of x once labels are distinct
    int labels[ND_MAX_DIMS];
} nd__term;

/// Multiplies terms with equal labels at equal index and sums over labels that `output` (no label
/// twice) lacks. Axes of one label are of one size, or 1. Consumes the terms, of which it releases
/// every tensor. NULL on error.
nd_tensor *nd__contraction_run(const char *name, nd__term *terms, size_t count, const int *output,
                               int noutput);
#endif
