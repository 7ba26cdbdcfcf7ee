// Communicators: objects over a transport.
//
// Invariant: the lock is held while the ranks agree on a call and its data moves, so that a transport
// sees one call at a time; closing a communicator waits for the call that is under way, which has a
// deadline. Nothing of the program's runs meanwhile: no tensor is made, no memory taken that the
// ladder gives, since a finalizer or a memory callback may communicate, wait for a thread that does,
// or close the communicator. The lock is no part of a fork: a child asks for the generation first,
// and for the lock never.
#ifndef ND_LIB_DISTRIBUTED_COMMUNICATOR_H
#define ND_LIB_DISTRIBUTED_COMMUNICATOR_H
#include "lib/base/lock.h"
#include "lib/distributed/transport.h"
#include "lib/object/object.h"

struct nd_communicator {
    nd_object header;
    int rank, size;
    uint32_t generation;                     ///< of processes, in which it was made
    const nd_transport_functions *functions; ///< the transport's, which may be gone
    nd_device device;                        ///< its
    bool stages;                             ///< it does
    _Atomic uint64_t timeout_ns;
    _Atomic bool broken; ///< set once, with `reason`
    nd_lock lock;
    nd_transport *transport; ///< lock; NULL once closed
    void *records;           ///< lock; room for what every rank says of a call (agreement.c)
    char reason[400];        ///< lock
};

/// Reads options; where they are NULL the timeout is `timeout`, or, if that is 0, the default.
nd_status nd__communicator_read_options(const char *operation,
                                        const nd_communicator_options *options, double timeout,
                                        nd_transport_call *ret_call);
/// Makes a communicator of a transport, which it takes over, in the current manager. NULL with an
/// error.
nd_communicator *nd__communicator_on(const nd_transport_call *call, nd_transport *transport);

/// Whether a call can be made as far as that is known without the lock: not NULL, closed, broken,
/// forked, nor a device's transport while the thread captures. Fills `ret_call`.
nd_status nd__communicator_check(const char *operation, const nd_communicator *comm,
                                 nd_transport_call *ret_call);
/// Begins a call: checks that and takes the lock. On error the lock is free. Ends with
/// nd__communicator_leave.
nd_status nd__communicator_enter(const char *operation, const nd_communicator *comm,
                                 nd_transport_call *ret_call);
void nd__communicator_leave(const nd_communicator *comm);
/// Inside a call: what the transport answered. Not ND_OK: the communicator is broken from now on,
/// for the reason that the thread's error says. Returns `status`.
nd_status nd__communicator_note(const nd_communicator *comm, nd_status status);
#endif
