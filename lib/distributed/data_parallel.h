// Inside of nd_data_parallel.
//
//   object      edges to the module, its parameters, and a communicator of its own
//   work        what a step uses: the buckets and their thread; counted, so that an object that is
//               closed inside a step lets that end
#ifndef ND_LIB_DISTRIBUTED_DATA_PARALLEL_H
#define ND_LIB_DISTRIBUTED_DATA_PARALLEL_H
#include "lib/autograd/pending.h"
#include "lib/distributed/buckets.h"

typedef struct nd_parallel_work {
    _Atomic int users; ///< the object, and a step
    _Atomic bool busy; ///< a step is under way
    bool apart;        ///< a step has ended with other values here than on other ranks (sharded.c)
    nd_buckets *buckets;
    nd_pointer_map index; ///< parameter -> part
} nd_parallel_work;

struct nd_data_parallel {
    nd_object header;
    nd_module *module;      ///< edge
    nd_communicator *comm;  ///< edge
    uint32_t generation;    ///< of processes
    bool sharded;           ///< gradients go to the owners of their parameters alone
    nd_parallel_work *work; ///< NULL once closed
    size_t count;           ///< of tensors: parameters, then buffers
    size_t parameters;      ///< of these
    nd_tensor *tensors[];   ///< edges
};

/// Begins a call on `parallel`, of which there is one at a time; ends with nd__data_parallel_leave,
/// with the work. Errors: NULL, closed, forked, another call is under way.
nd_status nd__data_parallel_enter(const char *operation, nd_data_parallel *parallel,
                                  nd_parallel_work **ret_work);
void nd__data_parallel_leave(nd_parallel_work *work);
/// ND_ERROR_DTYPE where a parameter, or what has come of it, is not of the dtype that its part of a
/// bucket was laid out for.
nd_status nd__data_parallel_check_dtype(const char *operation, const nd_parallel_work *work,
                                        size_t part, nd_dtype dtype);
nd_status nd__data_parallel_check_dtypes(const char *operation, const nd_data_parallel *parallel,
                                         const nd_parallel_work *work);
/// Rank 0's values in the tensors from `first` on, and its random keys (keys.h): a collective call.
nd_status nd__data_parallel_take_values(const char *operation, const nd_data_parallel *parallel,
                                        size_t first);
#endif
