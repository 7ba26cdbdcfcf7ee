// The memory of buckets: where a communicator moves data, the host's or a device's.
//
// On a device everything here is queued on the thread's stream and waits for nothing: what other
// streams do with the same memory comes in order by itself (lib/device/device.h).
#ifndef ND_LIB_DISTRIBUTED_BUCKET_MEMORY_H
#define ND_LIB_DISTRIBUTED_BUCKET_MEMORY_H
#include "lib/tensor/tensor.h"

/// NULL with an error. May run the ladder.
void *nd__bucket_memory_take(const char *operation, nd_device device, size_t bytes);
void nd__bucket_memory_give_back(nd_device device, void *memory, size_t bytes);
/// x in row-major order into memory of its size. On a device x must be there.
nd_status nd__bucket_memory_write(const char *operation, nd_device device, void *memory,
                                  const nd_tensor *x);
nd_status nd__bucket_memory_clear(const char *operation, nd_device device, void *memory,
                                  nd_dtype dtype, int64_t numel);
/// The same back into x, which on a device must be there.
nd_status nd__bucket_memory_read(const char *operation, nd_device device, const void *memory,
                                 nd_tensor *x);
#endif
