// Several results of one function: they are written to the caller's array when all are there.
#ifndef ND_LIB_OPS_SEVERAL_H
#define ND_LIB_OPS_SEVERAL_H
#include "lib/tensor/tensor.h"

/// Room for so many results, NULL at first. NULL with an error.
nd_tensor **nd__several_begin(const char *operation, size_t count);
/// Ends that: hands the results over where `status` is ND_OK, and else releases what there is of
/// them, so that `ret_results` are untouched. Returns the status.
nd_status nd__several_end(nd_tensor **results, size_t count, nd_status status,
                          nd_tensor **ret_results);
#endif
