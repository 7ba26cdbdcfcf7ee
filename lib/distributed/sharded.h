// Steps of all ranks or of none, and the optimizer's state where each rank has a share of it, inside
// a call on an nd_data_parallel.
#ifndef ND_LIB_DISTRIBUTED_SHARDED_H
#define ND_LIB_DISTRIBUTED_SHARDED_H
#include "lib/distributed/data_parallel.h"

/// ND_ERROR_STATE where a step has ended with other values here than on other ranks.
nd_status nd__sharded_check_together(const char *operation, const nd_parallel_work *work);
/// Brings the whole state to rank 0: a collective call. What one rank fails at is an error on it
/// and on the rank it was to get something from or to give something to.
nd_status nd__sharded_gather(const char *operation, nd_data_parallel *parallel,
                             const nd_parallel_work *work, nd_optimizer *optimizer);
/// Drops the state of what other ranks own.
nd_status nd__sharded_drop(const char *operation, nd_data_parallel *parallel,
                           const nd_parallel_work *work, nd_optimizer *optimizer);
#endif
