// A request for memory, as the ladder (lib/pressure) takes it when an attempt has failed.
#ifndef ND_LIB_MANAGER_REQUEST_H
#define ND_LIB_MANAGER_REQUEST_H
#include "lib/base/seam.h"
#include "lib/manager/manager.h"
#include <nd/memory.h>

/// What a stage answers that cannot say how much it brought back.
#define ND__UNKNOWN_BYTES UINT64_MAX

/// How a device's memory is used; ND__UNKNOWN_BYTES where it is not known, or where there is no
/// limit.
typedef struct nd_memory_usage {
    uint64_t cached, limit;        ///< that there is, or that was set
    uint64_t total, live, pending; ///< as in nd_memory_device_stats
    uint64_t peak, available;
} nd_memory_usage;

/// Where nothing is known.
#define ND__USAGE_UNKNOWN                                                                          \
    ((nd_memory_usage){ND__UNKNOWN_BYTES, ND__UNKNOWN_BYTES, ND__UNKNOWN_BYTES, ND__UNKNOWN_BYTES, \
                       ND__UNKNOWN_BYTES, ND__UNKNOWN_BYTES, ND__UNKNOWN_BYTES})

/// What the backend of a device does about memory. A function that does not apply is NULL. None of
/// them sets an error, and all of them answer, when the device is lost, that they brought nothing
/// back.
typedef struct nd_memory_functions {
    /// Takes back what released memory the device has finished with, without waiting. Bytes.
    uint64_t (*retire)(int index);
    /// Gives cached memory back to the system, without waiting. Bytes.
    uint64_t (*trim)(int index);
    /// From now on keeps at most so many bytes for reuse, and gives back what is more; UINT64_MAX: as
    /// at first.
    void (*limit)(int index, uint64_t bytes);
    /// From now on the device has so many bytes, whatever they are for; UINT64_MAX: all.
    nd_status (*bound)(int index, uint64_t bytes);
    /// Waits, at most so long, for the work that was queued before. False: it is not done yet.
    bool (*wait)(int index, uint64_t nanoseconds);
    void (*usage)(int index, nd_memory_usage *ret_usage);
} nd_memory_functions;

struct nd_pressure {
    const char *operation; ///< begins the error's sentence
    nd_manager *manager;   ///< who asks; kept valid by the caller
    nd_device_kind kind;
    int index; ///< of the device; handed to the functions
    uint64_t bytes;
    const nd_memory_functions *functions; ///< NULL: none of them would help
    /// ND_OK, ND_ERROR_OUT_OF_MEMORY and ND_ERROR_QUOTA mean what they say; any other failure ends
    /// the walk.
    nd_status (*attempt)(nd_pressure *pressure);

    nd_manager *refused; ///< set by the attempt: whose quota refused

    // Filled by the walk, for the sentence.
    struct {
        bool reached;
        uint64_t bytes;
    } tried[ND_MEMORY_STAGE_COUNT];
    unsigned callbacks; ///< asked
    bool wait_expired;
};
#endif
