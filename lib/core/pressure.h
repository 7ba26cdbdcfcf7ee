// Memory under pressure: the ladder between "no memory" and an error (include/nd/memory.h).
//
// Whoever has an attempt that failed for want of memory or of quota hands it over; every rung is
// followed by another attempt. No lock is held at any rung, and several of them run user code
// (destructors, finalizers, callbacks), so the caller must own what it uses and be outside the gate
// (inside it, a walk gives up at once).
//
//   pressure.c            the rungs and their statistics
//   pressure_callback.c   who is asked, and what keeps a callback valid while it runs
//   pressure_error.c      the sentence at the end
//   obtain.c              the library's own structures
#ifndef ND_LIB_CORE_PRESSURE_H
#define ND_LIB_CORE_PRESSURE_H
#include "lib/core/manager.h"
#include <nd/memory.h>

/// What a rung answers that cannot say how much it brought back.
#define ND__UNKNOWN_BYTES UINT64_MAX

/// For the error's sentence; ND__UNKNOWN_BYTES where it is not known, or where there is no limit.
typedef struct nd_memory_usage {
    uint64_t cached, limit;
} nd_memory_usage;

/// What the backend of a device does about memory. A row that does not apply is NULL. None of them
/// sets an error, and all of them answer, when the device is lost, that they brought nothing back.
typedef struct nd_memory_rows {
    /// Takes back what released memory the device has finished with, without waiting. Bytes.
    uint64_t (*retire)(int index);
    /// Gives cached memory back to the system, without waiting. Bytes.
    uint64_t (*trim)(int index);
    /// Waits, at most so long, for the work that was queued before. False: it is not done yet.
    bool (*wait)(int index, uint64_t nanoseconds);
    void (*usage)(int index, nd_memory_usage *ret_usage);
} nd_memory_rows;

typedef struct nd_pressure nd_pressure;
struct nd_pressure {
    const char *operation; ///< begins the error's sentence
    nd_manager *manager;   ///< who asks; kept valid by the caller
    nd_device_kind kind;
    int index; ///< of the device; handed to the rows
    uint64_t bytes;
    const nd_memory_rows *rows; ///< NULL: none of them would help
    /// ND_OK, ND_ERROR_OUT_OF_MEMORY and ND_ERROR_QUOTA mean what they say; any other failure ends
    /// the walk.
    nd_status (*attempt)(nd_pressure *pressure);

    nd_manager *refused; ///< set by the attempt: whose quota refused

    // Filled by the walk, for the sentence.
    struct {
        bool reached;
        uint64_t bytes;
    } tried[ND_RUNG_COUNT];
    unsigned callbacks; ///< asked
    bool wait_expired;
};

/// Walks the ladder after a first attempt that ended with `failure`. Returns the status of the last
/// attempt and leaves the thread's error as it was.
nd_status nd__pressure_walk(nd_pressure *pressure, nd_status failure);

/// Sets the error of a walk that ended with `status`, and returns it. Needs no memory.
nd_status nd__pressure_error(const nd_pressure *pressure, nd_status status);

// Between the three files.
void nd__pressure_reach(nd_pressure *pressure, nd_rung rung);
void nd__pressure_brought(nd_pressure *pressure, nd_rung rung, uint64_t bytes);
/// Another attempt, after a rung that gave something up.
nd_status nd__pressure_look(nd_pressure *pressure, nd_rung rung);
/// Asks the callbacks. `status`: of the last attempt; returns that of the new last one.
nd_status nd__pressure_ask(nd_pressure *pressure, nd_status status);

/// True for the failures that the ladder is for.
static inline bool nd__is_pressure(nd_status status) {
    return status == ND_ERROR_OUT_OF_MEMORY || status == ND_ERROR_QUOTA;
}

/// What can be done about host memory. Defined where lib/memory is linked: the core alone has nothing
/// to trim.
extern const nd_memory_rows nd__host_rows __attribute__((weak));

// Host memory for the library's own structures, on behalf of the current manager: as nd__malloc,
// nd__calloc and nd__realloc, but with the ladder behind them. NULL: the caller sets the error.
void *nd__obtain(size_t bytes);
void *nd__obtain_zeroed(size_t bytes);
void *nd__obtain_more(void *pointer, size_t bytes);

/// A block for an object of a type, after nd__block_new had none; NULL with an error.
void *nd__obtain_object(const nd_type *type, size_t bytes);

/// A manager that closes gives up its callback.
void nd__pressure_forget(nd_manager *manager);
#endif
