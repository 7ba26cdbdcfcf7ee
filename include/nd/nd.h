/// @file
/// Umbrella header of ndarc.
///
/// Include <nd/scoped.h> instead for operations that hand their results to the current scope.
/// Define ND_TRACK_SITES before including either, and every object remembers the line that made it.
#ifndef ND_ND_H
#define ND_ND_H

#include <nd/autocast.h>
#include <nd/autograd.h>
#include <nd/base.h>
#include <nd/contraction.h>
#include <nd/convolution.h>
#include <nd/debug.h>
#include <nd/dlpack.h>
#include <nd/error.h>
#include <nd/fft.h>
#include <nd/gc.h>
#include <nd/gguf.h>
#include <nd/graph.h>
#include <nd/image.h>
#include <nd/indexing.h>
#include <nd/interpolation.h>
#include <nd/io.h>
#include <nd/linalg.h>
#include <nd/manager.h>
#include <nd/manipulation.h>
#include <nd/map.h>
#include <nd/memory.h>
#include <nd/neural.h>
#include <nd/nn.h>
#include <nd/number.h>
#include <nd/object.h>
#include <nd/ops.h>
#include <nd/out.h>
#include <nd/pooling.h>
#include <nd/quantization.h>
#include <nd/scope.h>
#include <nd/sorting.h>
#include <nd/state.h>
#include <nd/stream.h>
#include <nd/tensor.h>
#include <nd/threads.h>
#include <nd/version.h>

#ifdef ND_TRACK_SITES
#include <nd/detail/calls.h>
#endif

#ifndef ND_NO_OLD_NAMES
#include <nd/detail/old_names.h>
#endif

#endif
