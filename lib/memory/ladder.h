// An allocation of tensor data: charged to a manager, taken from a device, and when either is
// refused, walked up the ladder (lib/pressure/pressure.h).
//
// Holds no lock at any stage, and may run the collector and the program's callbacks: the caller
// must own what it uses.
#ifndef ND_LIB_MEMORY_LADDER_H
#define ND_LIB_MEMORY_LADDER_H
#include "lib/manager/request.h"
#include "lib/pressure/pressure.h"

typedef struct nd_memory_request {
    const char *operation; ///< begins the error's sentence
    nd_manager *manager;   ///< who pays; kept valid by the caller
    nd_device_kind kind;
    int index;       ///< of the device; handed to the functions
    uint64_t charge; ///< bytes accounted for
    size_t bytes;    ///< bytes to allocate
    /// ND_ERROR_OUT_OF_MEMORY walks the ladder, any other failure ends it. Sets no message.
    nd_status (*allocate)(int index, size_t bytes, void **ret_pointer);
    /// Gives back what that has given.
    void (*release)(int index, void *pointer, size_t bytes);
    const nd_memory_functions *functions; ///< of the device
} nd_memory_request;

/// Memory, charged to the manager; or an error, nothing charged and *ret_pointer untouched.
nd_status nd__ladder_alloc(const nd_memory_request *request, void **ret_pointer);

/// As nd__host_alloc with the ladder behind it, for what no manager accounts for, on behalf of the
/// current manager. NULL: the caller sets the error.
void *nd__ladder_alloc_host(size_t bytes);
#endif
