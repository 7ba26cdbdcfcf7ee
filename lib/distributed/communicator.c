// Communicators: made, asked, broken.
#include "lib/distributed/communicator.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/versioned.h"
#include "lib/device/capture.h"
#include "lib/distributed/agreement.h"
#include "lib/distributed/mpi.h"

#include <math.h>

static void destroy(nd_object *self);
static const nd_type communicator_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "communicator",
    .flags = ND_TYPE_GREEN,
    .destroy = destroy,
};

static nd_status check_timeout(const char *operation, double seconds);

bool nd_has_mpi(void) {
    return nd__mpi_is_there();
}

nd_communicator *nd_communicator_from_world(const nd_communicator_options *options) {
    ND__UNCANCELLED;
    nd_transport_call call;
    if (nd__communicator_read_options("communicator_from_world", options, 60, &call) != ND_OK)
        return NULL;
    nd_transport *transport = nd__mpi_new(&call, NULL);
    return transport ? nd__communicator_on(&call, transport) : NULL;
}

nd_communicator *nd_communicator_from_mpi(const void *mpi_comm,
                                          const nd_communicator_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "communicator_from_mpi";
    nd_transport_call call;
    if (nd__communicator_read_options(operation, options, 60, &call) != ND_OK)
        return NULL;
    if (!mpi_comm) {
        nd__error_null(operation, "mpi_comm");
        return NULL;
    }
    nd_transport *transport = nd__mpi_new(&call, mpi_comm);
    return transport ? nd__communicator_on(&call, transport) : NULL;
}

/// Inside a call of all ranks: whether each of them has what it needs, of which `status` is this
/// one's.
static nd_status agree(const nd_communicator *comm, const nd_transport_call *call,
                       nd_status status) {
    nd_description mine = {.call = ND__CALL_DUPLICATE, .status = (int32_t)status};
    return nd__agreement_reach(comm, call, &mine);
}

/// A duplicate of the transport on all ranks, or on none. `status`: this rank has failed already.
static nd_transport *duplicate_transport(const nd_communicator *comm, const nd_transport_call *call,
                                         nd_status status) {
    const nd_transport_functions *functions = comm->transport->functions;
    nd_transport *reserved = status == ND_OK ? functions->reserve(comm->transport, call) : NULL;
    if (status == ND_OK && !reserved)
        status = nd_error_get_status();
    status = agree(comm, call, status);
    bool all = status == ND_OK;
    if (all)
        status = nd__communicator_note(comm, functions->duplicate(comm->transport, call, reserved));
    if (status == ND_OK || !reserved)
        return reserved;
    functions->free(reserved, all); // what was under way may write there yet
    return NULL;
}

nd_communicator *nd_communicator_duplicate(const nd_communicator *comm,
                                           const nd_communicator_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "communicator_duplicate";
    nd_transport_call call, chosen;
    nd_status status = nd__communicator_read_options(operation, options,
                                                     nd_communicator_get_timeout(comm), &chosen);
    if (nd__communicator_enter(operation, comm, &call) != ND_OK)
        return NULL;
    nd_transport *transport = duplicate_transport(comm, &call, status);
    nd__communicator_leave(comm);
    if (!transport)
        return NULL;
    // A manager may have no room for it, on one rank alone.
    nd_communicator *made = nd__communicator_on(&chosen, transport);
    status = made ? ND_OK : nd_error_get_status();
    nd_status entered = nd__communicator_enter(operation, comm, &call);
    if (entered == ND_OK) {
        entered = agree(comm, &call, status);
        nd__communicator_leave(comm);
    }
    if (entered != ND_OK) {
        nd_release(made);
        made = NULL;
    }
    return made;
}

nd_communicator *nd__communicator_on(const nd_transport_call *call, nd_transport *transport) {
    nd_communicator *comm = (nd_communicator *)nd__object_new(&communicator_type, sizeof *comm);
    void *records = comm ? nd__agreement_records(transport->size) : NULL;
    if (!records) {
        if (comm) {
            nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for what %d ranks say of a call",
                      call->operation, transport->size);
            nd__object_discard(comm);
        }
        transport->functions->free(transport, false);
        return NULL;
    }
    comm->rank = transport->rank;
    comm->size = transport->size;
    comm->generation = nd__fork_generation;
    comm->functions = transport->functions;
    comm->device = transport->device;
    comm->stages = transport->stages;
    atomic_init(&comm->timeout_ns, (uint64_t)(call->seconds * 1e9));
    atomic_init(&comm->broken, false);
    comm->transport = transport;
    comm->records = records;
    comm = nd__object_publish_or_discard(call->operation, comm);
    if (!comm) {
        transport->functions->free(transport, false);
        nd__alloc_free(records);
    }
    return comm;
}

static bool is_open(const nd_communicator *comm) {
    return comm && !nd__object_is_closed(comm);
}

int nd_communicator_get_rank(const nd_communicator *comm) {
    return is_open(comm) ? comm->rank : -1;
}

int nd_communicator_get_size(const nd_communicator *comm) {
    return is_open(comm) ? comm->size : 0;
}

double nd_communicator_get_timeout(const nd_communicator *comm) {
    return comm ? (double)atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed) / 1e9 : 0;
}

nd_status nd_communicator_set_timeout(nd_communicator *comm, double seconds) {
    static const char operation[] = "communicator_set_timeout";
    if (!comm)
        return nd__error_null(operation, "comm");
    nd_status status = check_timeout(operation, seconds);
    if (status == ND_OK)
        nd__atomic_store(&comm->timeout_ns, (uint64_t)(seconds * 1e9), relaxed);
    return status;
}

bool nd_communicator_is_broken(const nd_communicator *comm) {
    return comm && (nd__object_is_closed(comm) ||
                    nd__atomic_load(&((nd_communicator *)(uintptr_t)comm)->broken, acquire));
}

// -------------------------------------------------------------------------------------------------
// calls

static nd_status refuse_closed(const char *operation) {
    return nd__error(ND_ERROR_CLOSED, "%s: the communicator was closed", operation);
}

nd_status nd__communicator_check(const char *operation, const nd_communicator *comm,
                                 nd_transport_call *ret_call) {
    if (!comm)
        return nd__error_null(operation, "comm");
    if (nd__object_is_closed(comm))
        return refuse_closed(operation);
    if (comm->generation != nd__fork_generation)
        return nd__error(ND_ERROR_STATE,
                         "%s: the communicator stayed in the parent process when that forked",
                         operation);
    *ret_call =
        (nd_transport_call){.operation = operation, .seconds = nd_communicator_get_timeout(comm)};
    nd_communicator *asked = (nd_communicator *)(uintptr_t)comm;
    if (nd__atomic_load(&asked->broken, acquire)) // after which `reason` stays
        return nd__error(ND_ERROR_IO, "%s: the communicator is broken since %s", operation,
                         comm->reason);
    // What the ranks tell each other goes through the transport's memory, and is waited for.
    return nd__capture_check(operation, comm->device);
}

nd_status nd__communicator_enter(const char *operation, const nd_communicator *comm,
                                 nd_transport_call *ret_call) {
    nd_status status = nd__communicator_check(operation, comm, ret_call);
    if (status != ND_OK)
        return status;
    nd_communicator *locked = (nd_communicator *)(uintptr_t)comm;
    nd__lock_acquire(&locked->lock);
    if (!comm->transport)
        status = refuse_closed(operation);
    else if (nd_communicator_is_broken(comm))
        status = nd__communicator_check(operation, comm, ret_call); // says so
    else
        status = comm->functions->check(comm->transport, operation);
    if (status != ND_OK)
        nd__lock_release(&locked->lock);
    return status;
}

void nd__communicator_leave(const nd_communicator *comm) {
    nd__lock_release(&((nd_communicator *)(uintptr_t)comm)->lock);
}

nd_status nd__communicator_note(const nd_communicator *comm, nd_status status) {
    if (status == ND_OK)
        return ND_OK;
    nd_communicator *changed = (nd_communicator *)(uintptr_t)comm;
    snprintf(changed->reason, sizeof changed->reason, "%s", nd_error_get_message());
    nd__atomic_store(&changed->broken, true, release);
    return status;
}

static void destroy(nd_object *self) {
    ND__UNCANCELLED;
    nd_communicator *comm = (nd_communicator *)self;
    bool mine = comm->generation == nd__fork_generation;
    if (mine)
        nd__lock_acquire(&comm->lock);
    bool broken = nd__atomic_load(&comm->broken, relaxed);
    if (comm->transport)
        comm->transport->functions->free(comm->transport, broken);
    if (broken && comm->device.kind == ND_CPU)
        nd__transport_keep(comm->records);
    else
        nd__alloc_free(comm->records);
    comm->transport = NULL;
    comm->records = NULL;
    if (mine)
        nd__lock_release(&comm->lock);
}

// -------------------------------------------------------------------------------------------------
// options

static nd_status check_timeout(const char *operation, double seconds) {
    return seconds > 0 && seconds < 1e9
               ? ND_OK
               : nd__error(ND_ERROR_INVALID_ARGUMENT,
                           "%s: a timeout of %g s; it must be above 0 and below 1e9", operation,
                           seconds);
}

nd_status nd__communicator_read_options(const char *operation,
                                        const nd_communicator_options *options, double timeout,
                                        nd_transport_call *ret_call) {
    nd_communicator_options chosen = ND_COMMUNICATOR_OPTIONS_INIT;
    chosen.timeout = timeout > 0 ? timeout : chosen.timeout;
    nd_status status = nd__versioned_read(operation, "ND_COMMUNICATOR_OPTIONS_INIT", options,
                                          &chosen, sizeof chosen);
    *ret_call = (nd_transport_call){.operation = operation, .seconds = chosen.timeout};
    return status == ND_OK ? check_timeout(operation, chosen.timeout) : status;
}
