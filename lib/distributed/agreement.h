// What the ranks tell each other of a call before anything of theirs is sent.
//
// Invariant: all ranks come to the same verdict. Where all say the same it takes one small message,
// of a hash; else each gets what every other one has said, and the same sentence comes out of it.
// A rank that cannot take part in a call says so here instead of staying away.
#ifndef ND_LIB_DISTRIBUTED_AGREEMENT_H
#define ND_LIB_DISTRIBUTED_AGREEMENT_H
#include "lib/distributed/communicator.h"

typedef enum nd_call_kind {
    ND__CALL_BARRIER = 1,
    ND__CALL_DUPLICATE,
    ND__CALL_BROADCAST,
    ND__CALL_ALL_REDUCE,
    ND__CALL_REDUCE_SCATTER,
    ND__CALL_ALL_GATHER,
    ND__CALL_SEND,
    ND__CALL_RECEIVE,
    ND__CALL_NCCL,
    ND__CALL_MODULE,   ///< the modules that ranks train: numbers of tensors, and a hash; options
    ND__CALL_PARALLEL, ///< a part of a step of nd_data_parallel, by its number
    ND__CALL_DATASET,  ///< the data sets that ranks share: their images, and a hash
    ND__CALL_STATE,    ///< the files that ranks have read: a hash
    ND__CALL_SAVE,     ///< the states that ranks save: a hash of their parts
    ND__CALL_CLIP,     ///< the limit of a norm: its bits
    ND__CALL_SCALED,   ///< the scale of a loss: its bits
} nd_call_kind;

/// What a rank says. Zero but for what is said.
typedef struct nd_description {
    int32_t call;     ///< nd_call_kind
    int32_t argument; ///< root, or nd_collective
    int32_t dtype, ndim;
    int64_t shape[ND_MAX_DIMS];
    int32_t status; ///< not ND_OK: this rank does not take part, for this reason
    char message[200];
} nd_description;

/// Goes on with a hash (begun with 0) of what ranks compare: FNV-1a in words of 8 bytes, the last one
/// filled with zeros.
uint64_t nd__agreement_hash(uint64_t hash, const void *data, size_t bytes);
/// Room for the descriptions of so many ranks, zeroed, to be freed with nd__alloc_free. NULL: there
/// is no memory.
void *nd__agreement_records(int ranks);
/// Inside a call of all ranks: ND_OK on all of them when they say the same and all take part, else
/// an error on all of them. What a rank has said of itself (`mine->status`, with the thread's
/// error) stays its own error. A broken transport breaks the communicator.
nd_status nd__agreement_reach(const nd_communicator *comm, const nd_transport_call *call,
                              nd_description *mine);
/// The same between this rank, which sends or receives, and another.
nd_status nd__agreement_with(const nd_communicator *comm, const nd_transport_call *call, int rank,
                             nd_description *mine);
#endif
