// How much a thread counts before it tells the collector.
#include "lib/manager/trigger.h"

_Atomic uint64_t nd__trigger_at[ND__MADE_COUNT] = {UINT64_C(1) << 20, UINT64_C(1) << 20,
                                                   UINT64_C(1) << 20, 4096};
