// That lib/distributed and NCCL's header, where there is one, say the same of the library that is
// opened at run time. Compiled, not run.
#include "lib/distributed/nccl_numbers.h"

#if !defined(CUDART_FAKE) && __has_include(<nccl.h>)
#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
#define TAKES(function, result, ...)                                                             \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&function), result (*)(__VA_ARGS__)), \
                   #function)

_Static_assert(NCCL_VERSION_CODE >= ND__NCCL_VERSION, "NCCL 2.14 or newer");
SAME(ND__NCCL_VERSION, NCCL_VERSION(2, 14, 0));
SAME(ND__NCCL_SUCCESS, ncclSuccess);
SAME(ND__NCCL_IN_PROGRESS, ncclInProgress);
SAME(ND__NCCL_I8, ncclInt8);
SAME(ND__NCCL_U8, ncclUint8);
SAME(ND__NCCL_I32, ncclInt32);
SAME(ND__NCCL_U32, ncclUint32);
SAME(ND__NCCL_I64, ncclInt64);
SAME(ND__NCCL_U64, ncclUint64);
SAME(ND__NCCL_F16, ncclFloat16);
SAME(ND__NCCL_F32, ncclFloat32);
SAME(ND__NCCL_F64, ncclFloat64);
SAME(ND__NCCL_BF16, ncclBfloat16);
SAME(ND__NCCL_SUM, ncclSum);
SAME(ND__NCCL_MAX, ncclMax);
SAME(ND__NCCL_MIN, ncclMin);
SAME(ND__NCCL_MEAN, ncclAvg);
SAME(sizeof(nd_nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(int), sizeof(ncclResult_t));
SAME(sizeof(int), sizeof(ncclDataType_t));
SAME(sizeof(int), sizeof(ncclRedOp_t));
SAME(offsetof(nd_nccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(nd_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(nd_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(nd_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(sizeof(nd_nccl_config) <= sizeof(ncclConfig_t), "a struct of 2.14");
TAKES(ncclGetUniqueId, ncclResult_t, ncclUniqueId *);
TAKES(ncclCommInitRankConfig, ncclResult_t, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
TAKES(ncclCommDestroy, ncclResult_t, ncclComm_t);
TAKES(ncclCommAbort, ncclResult_t, ncclComm_t);
TAKES(ncclCommGetAsyncError, ncclResult_t, ncclComm_t, ncclResult_t *);
TAKES(ncclGetErrorString, const char *, ncclResult_t);
TAKES(ncclAllReduce, ncclResult_t, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
      ncclComm_t, cudaStream_t);
TAKES(ncclReduce, ncclResult_t, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
      ncclComm_t, cudaStream_t);
TAKES(ncclReduceScatter, ncclResult_t, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
      ncclComm_t, cudaStream_t);
TAKES(ncclAllGather, ncclResult_t, const void *, void *, size_t, ncclDataType_t, ncclComm_t,
      cudaStream_t);
TAKES(ncclBroadcast, ncclResult_t, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
      cudaStream_t);
TAKES(ncclSend, ncclResult_t, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TAKES(ncclRecv, ncclResult_t, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TAKES(ncclGroupStart, ncclResult_t, void);
TAKES(ncclGroupEnd, ncclResult_t, void);

#ifdef NCCL_API_MAGIC // older ones have the number in their initialiser alone
_Static_assert(NCCL_API_MAGIC == ND__NCCL_MAGIC, "NCCL_API_MAGIC");
#endif
#elif defined(NCCL_IS_THERE)
#error "nccl.h was found, and is not"
#endif
