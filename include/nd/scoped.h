/// @file
/// ndarc for code that works with temporaries: include this instead of <nd/nd.h>.
///
/// In a translation unit that includes this header, every function that returns a new tensor hands
/// it to this thread's innermost scope (<nd/scope.h>) and returns it borrowed:
///
///     ND_SCOPE
///     {
///         const nd_tensor *y = nd_relu(nd_add(nd_matmul(x, w), b));
///         result = nd_retain(y); // what shall outlive the scope is retained
///     }
///
/// `nd_tensor *y = nd_add(a, b)` is then a compile error under -Werror=discarded-qualifiers.
/// Without an open scope these functions fail with ND_ERROR_STATE. A tensor that is to be written
/// in place is retained first: `nd_auto nd_tensor *w = nd_retain(nd_zeros(...));`.
///
/// Functions that write tensors to addresses (nd_topk(), nd_split(), nd_svd(), nd_grad()) write
/// owned ones here too, and need no scope: the caller releases them, or hands them over with
/// nd_tmp().
///
/// Only tensors are handed over. Modules, optimizers, data sets, lists, resources, managers and
/// weak references stay owned here too (nd_tmp() hands over any of them); nd_retain, nd_edge_take,
/// nd_steal and nd_weak_get always return owned handles.
#ifndef ND_SCOPED_H
#define ND_SCOPED_H

#include <nd/nd.h>

/// Says to <nd/detail/calls.h> that results go to the current scope.
#define ND_SCOPED 1
#include <nd/detail/calls.h>

#endif
