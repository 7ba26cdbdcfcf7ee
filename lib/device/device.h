// The table of functions a backend fills. Nothing above this layer knows which backend it talks to.
//
// Contract of every backend: work is queued in order on one stream per device; `release` is ordered
// after all work queued before it and never waits; copy_to_host waits for what it reads; after
// `synchronize` all is done. What only the data shows (an index out of range) a backend may report
// late, by the next copy_to_host or synchronize.
#ifndef ND_LIB_DEVICE_DEVICE_H
#define ND_LIB_DEVICE_DEVICE_H
#include "kernels/kernel.h"
#include "lib/manager/request.h"
#include "lib/pressure/pressure.h"
#include <nd/tensor.h>

typedef struct nd_backend {
    const char *name;     ///< "cpu", "cuda"
    bool host_accessible; ///< memory can be read and written by the host directly, at any time
    int (*device_count)(void);
    /// 64-byte aligned (256 for devices), at least one byte. ND_ERROR_OUT_OF_MEMORY: none left.
    /// Sets no message.
    nd_status (*allocate)(int index, size_t bytes, void **ret_pointer);
    void (*release)(int index, void *pointer, size_t bytes);
    nd_status (*copy_from_host)(int index, void *destination, const void *source, size_t bytes);
    nd_status (*copy_to_host)(int index, void *destination, const void *source, size_t bytes);
    nd_status (*synchronize)(int index);
    nd_status (*launch)(int index, const nd_kernel_call *call);
    /// A call for which launch and the ladder found no working memory, once more in a way that takes
    /// less. NULL: there is none.
    nd_status (*launch_sparing)(int index, const nd_kernel_call *call);
    /// Runs chains that do not write what another of them reads; NULL: they are launched call by
    /// call.
    nd_status (*launch_chains)(int index, size_t count, const nd_chain *chains);
    /// Calls function(data) on some thread of the host when all work queued before is done, once;
    /// what is queued later waits for it to return. The function calls no backend. On an error it
    /// is never called.
    nd_status (*call)(int index, void (*function)(void *data), void *data);
    /// What it can do when memory is short; NULL: nothing.
    const nd_memory_functions *memory;
    /// True in a forked child whose parent has the device; NULL: never.
    bool (*lost)(int index);
} nd_backend;

#endif
