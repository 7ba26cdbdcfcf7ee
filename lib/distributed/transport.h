// What a communicator asks of whatever moves the data: a table of functions, as a backend's.
//
// Contract of every transport: one call at a time on one of them. It moves memory of its `device`.
// A call waits at most `seconds`, and answers ND_OK or, with the thread's error set, another
// status. After an error no further call is made but `free`, which never waits; and of the host's
// memory it may read and write what it was given for as long as the process lives, so that is never
// freed (nd__transport_keep).
#ifndef ND_LIB_DISTRIBUTED_TRANSPORT_H
#define ND_LIB_DISTRIBUTED_TRANSPORT_H
#include <nd/distributed.h>
#include <nd/error.h>

typedef struct nd_transport nd_transport;

/// One call: its name, for errors, and its deadline.
typedef struct nd_transport_call {
    const char *operation;
    double seconds;
    bool staged; ///< what is to be reduced was given to `stage` before the ranks agreed on it
} nd_transport_call;

/// What an error says of a rank whose deadline has passed: the operation, the seconds.
#define ND__TRANSPORT_SILENCE \
    "%s: nothing came from the other ranks for %g s: one of them has died, hangs, or has left"

typedef struct nd_transport_functions {
    const char *name;                ///< "MPI"
    bool (*reduces)(nd_dtype dtype); ///< whether there are reductions of it
    /// ND_OK when calls can be made: MPI is not finalized.
    nd_status (*check)(nd_transport *transport, const char *operation);
    /// What a duplicate needs of this rank alone, such as memory: nothing is sent. NULL with an
    /// error; ends with `free`.
    nd_transport *(*reserve)(nd_transport *transport, const nd_transport_call *call);
    /// Makes a duplicate of what all ranks have reserved. Not ND_OK: that can be freed as broken.
    nd_status (*duplicate)(nd_transport *transport, const nd_transport_call *call,
                           nd_transport *reserved);
    void (*free)(nd_transport *transport, bool broken);
    /// The largest of each value over all ranks.
    nd_status (*agree)(nd_transport *transport, const nd_transport_call *call, uint64_t *values,
                       int count);
    /// records[rank] of each rank to all; `bytes` each.
    nd_status (*gather_records)(nd_transport *transport, const nd_transport_call *call,
                                void *records, int bytes);
    /// This rank's record to a rank, and that one's.
    nd_status (*exchange_records)(nd_transport *transport, const nd_transport_call *call, int rank,
                                  const void *record, void *ret_record, int bytes);
    /// Before an all-reduce in place at `data`, and before the ranks agree on that: takes its elements
    /// from elsewhere (`from`; or `data`), with what of them the others need where they find it when
    /// they have agreed. For one that `stages`.
    void (*stage)(nd_transport *transport, const void *from, void *data, int64_t count,
                  nd_dtype dtype);
    /// In place.
    nd_status (*all_reduce)(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t count, nd_dtype dtype, nd_collective op);
    /// In place: `count` elements for each rank; this one's come to begin at element *ret_first.
    /// What the others are then is not defined.
    nd_status (*reduce_scatter)(nd_transport *transport, const nd_transport_call *call, void *data,
                                int64_t count, nd_dtype dtype, nd_collective op,
                                int64_t *ret_first);
    /// In place: `bytes` of each rank, of which this one's stand at their place.
    nd_status (*all_gather)(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t bytes);
    /// In place: counts[rank] elements of each rank, one rank's behind the other's. Of the first
    /// this rank's stand reduced at their place, and what the others are then is not defined; the
    /// second brings those of all.
    nd_status (*reduce_shares)(nd_transport *transport, const nd_transport_call *call, void *data,
                               const int64_t *counts, nd_dtype dtype, nd_collective op);
    nd_status (*gather_shares)(nd_transport *transport, const nd_transport_call *call, void *data,
                               const int64_t *counts, nd_dtype dtype);
    nd_status (*broadcast)(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int root);
    /// The same, and all_reduce, of a little memory of the host.
    nd_status (*broadcast_values)(nd_transport *transport, const nd_transport_call *call,
                                  void *values, int64_t bytes, int root);
    nd_status (*reduce_values)(nd_transport *transport, const nd_transport_call *call, void *values,
                               int64_t count, nd_dtype dtype, nd_collective op);
    nd_status (*send)(nd_transport *transport, const nd_transport_call *call, void *data,
                      int64_t bytes, int rank);
    nd_status (*receive)(nd_transport *transport, const nd_transport_call *call, void *data,
                         int64_t bytes, int rank);
} nd_transport_functions;

struct nd_transport {
    const nd_transport_functions *functions;
    int rank, size;
    nd_device device;
    bool stages;       ///< on all ranks the same
    nd_status noticed; ///< what work queued earlier on this rank's device made of its data: told to
                       ///< all ranks when they agree next
};

/// Keeps memory of the host's that a transport of the host's may still use: for ever.
void nd__transport_keep(void *memory);
#endif
