// Numbers and layouts of NCCL's interface, whose header ndarc is built without; the same since 2.14.
// tests/cudart/abi_libraries.c compares them with that header where there is one.
#ifndef ND_LIB_DISTRIBUTED_NCCL_NUMBERS_H
#define ND_LIB_DISTRIBUTED_NCCL_NUMBERS_H
#include <stddef.h>

enum { ND__NCCL_SUCCESS = 0, ND__NCCL_IN_PROGRESS = 7 };
enum {
    ND__NCCL_I8 = 0,
    ND__NCCL_U8 = 1,
    ND__NCCL_I32 = 2,
    ND__NCCL_U32 = 3,
    ND__NCCL_I64 = 4,
    ND__NCCL_U64 = 5,
    ND__NCCL_F16 = 6,
    ND__NCCL_F32 = 7,
    ND__NCCL_F64 = 8,
    ND__NCCL_BF16 = 9
};
enum { ND__NCCL_SUM = 0, ND__NCCL_MAX = 2, ND__NCCL_MIN = 3, ND__NCCL_MEAN = 4 };
enum { ND__NCCL_VERSION = 21400 }; ///< whose struct of options this is
#define ND__NCCL_MAGIC 0xcafebeefU

/// What a communicator of NCCL is known by, until all ranks have joined.
typedef struct nd_nccl_id {
    char bytes[128];
} nd_nccl_id;

/// Options as version 2.14 has them; later ones grow at their end and read no more of it.
typedef struct nd_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nd_nccl_config;

typedef struct ncclComm *nd_nccl_comm;
typedef struct CUstream_st *nd_nccl_stream;

/// The functions: ONE(name, result, parameters).
#define ND__NCCL_FUNCTIONS(ONE)                                                                \
    ONE(ncclGetUniqueId, int, (nd_nccl_id *))                                                  \
    ONE(ncclCommInitRankConfig, int, (nd_nccl_comm *, int, nd_nccl_id, int, nd_nccl_config *)) \
    ONE(ncclCommDestroy, int, (nd_nccl_comm))                                                  \
    ONE(ncclCommAbort, int, (nd_nccl_comm))                                                    \
    ONE(ncclCommGetAsyncError, int, (nd_nccl_comm, int *))                                     \
    ONE(ncclGetErrorString, const char *, (int))                                               \
    ONE(ncclAllReduce, int,                                                                    \
        (const void *, void *, size_t, int, int, nd_nccl_comm, nd_nccl_stream))                \
    ONE(ncclReduce, int,                                                                       \
        (const void *, void *, size_t, int, int, int, nd_nccl_comm, nd_nccl_stream))           \
    ONE(ncclReduceScatter, int,                                                                \
        (const void *, void *, size_t, int, int, nd_nccl_comm, nd_nccl_stream))                \
    ONE(ncclAllGather, int, (const void *, void *, size_t, int, nd_nccl_comm, nd_nccl_stream)) \
    ONE(ncclBroadcast, int,                                                                    \
        (const void *, void *, size_t, int, int, nd_nccl_comm, nd_nccl_stream))                \
    ONE(ncclSend, int, (const void *, size_t, int, int, nd_nccl_comm, nd_nccl_stream))         \
    ONE(ncclRecv, int, (void *, size_t, int, int, nd_nccl_comm, nd_nccl_stream))               \
    ONE(ncclGroupStart, int, (void))                                                           \
    ONE(ncclGroupEnd, int, (void))
#endif
