// How many threads the CPU's kernels may use, and whether results may depend on it.
#include "lib/base/error.h"
#include "lib/base/pool.h"
#include "lib/object/callback.h"
#include <nd/threads.h>

_Static_assert(ND_MAX_THREADS == ND__POOL_MOST, "the header says what the pool takes");

nd_status nd_set_num_threads(int threads) {
    if (threads < 1 || threads > ND_MAX_THREADS)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "set_num_threads: %d threads were asked for; it takes 1 to %d", threads,
                         ND_MAX_THREADS);
    nd_status status = nd__callback_check("set_num_threads");
    if (status == ND_OK)
        nd__pool_set_limit(threads);
    return status;
}

int nd_get_num_threads(void) {
    return nd__pool_limit();
}

void nd_set_deterministic(bool deterministic) {
    nd__pool_set_deterministic(deterministic);
}

bool nd_is_deterministic(void) {
    return nd__pool_is_deterministic();
}
