// Several results, all or none (several.h).
#include "lib/ops/several.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/pressure/pressure_alloc.h"

nd_tensor **nd__several_begin(const char *operation, size_t count) {
    nd_tensor **results = nd__pressure_alloc_zeroed((count + 1) * sizeof *results);
    if (!results)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu results", operation,
                  count);
    return results;
}

nd_status nd__several_end(nd_tensor **results, size_t count, nd_status status,
                          nd_tensor **ret_results) {
    for (size_t i = 0; i < count; i++) {
        if (status == ND_OK)
            ret_results[i] = results[i];
        else
            nd_release(results[i]);
    }
    nd__alloc_free(results);
    return status;
}
