// Graphs: what a thread's work is captured into, and the memory of that.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_GRAPH_H
#define ND_LIB_DEVICE_CUDA_CUDA_GRAPH_H
#include "lib/device/cuda/cuda_device.h"

extern const nd_graph_functions nd__cuda_graph_functions;

/// Memory of the arena of the graph that this thread captures, for work on a stream: a block that
/// work before it has given back, else a new one of the pool. At least one byte.
nd_status nd__cuda_graph_allocate(const nd_cuda_stream *stream, size_t bytes, void **ret_pointer);

/// A block is released while this thread captures. One of the arena may be used again in it; others
/// go back behind its end.
void nd__cuda_graph_put_off(void *pointer);

/// The graph that this thread captures uses something that lasts as long as the graph: let_go(data) is called
/// when that is gone, launches queued or not, in a process that still has the device. It must not wait.
nd_status nd__cuda_graph_keep(void *data, void (*let_go)(void *data));

/// Behind a capture of a device that was lost in it, on a thread that has entered another one: gets the
/// thread out of what CUDA takes for a capture still.
void nd__cuda_graph_free_thread(void);

/// How work that was queued on a stream went. Captured work that failed breaks its graph.
void nd__cuda_graph_note(const nd_cuda_stream *stream, nd_status status);
#endif
