// Checks of named tensors, before a file is begun.
#include "lib/io/named.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

static nd_status check_unique(const char *operation, size_t count, const char *const *names);

nd_status nd__named_check(const char *operation, const char *path, size_t count,
                          const char *const *names, const nd_tensor *const *tensors) {
    if (!path)
        return nd__error_null(operation, "path");
    if (count > 0 && !names)
        return nd__error_null(operation, "names");
    if (count > 0 && !tensors)
        return nd__error_null(operation, "tensors");
    for (size_t i = 0; i < count; i++) {
        nd_status status = nd__tensor_check_operand(operation, "a tensor", tensors[i]);
        if (status != ND_OK)
            return status;
        if (!names[i])
            return nd__error_null(operation, "a name");
        if (!nd__utf8_is_valid(names[i]))
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: the name of tensor %zu is not valid UTF-8", operation, i);
    }
    return check_unique(operation, count, names);
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static nd_status check_unique(const char *operation, size_t count, const char *const *names) {
    if (count < 2)
        return ND_OK;
    const char **sorted = nd__pressure_alloc(count * sizeof *sorted);
    if (!sorted)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors",
                         operation, count);
    memcpy(sorted, names, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    nd_status status = ND_OK;
    for (size_t i = 1; status == ND_OK && i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the name '%.100s' was given twice",
                               operation, sorted[i]);
    nd__alloc_free(sorted);
    return status;
}
