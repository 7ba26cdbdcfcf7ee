#include "lib/base/versioned.h"

#include "lib/base/error.h"
#include <string.h>

/// No struct will ever be as large: a size beyond it is none.
enum { LARGEST = 1 << 16 };

static nd_status check_beginning(const char *operation, const char *init, const void *given) {
    const nd__versioned *begun = given;
    if (!begun)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: NULL where a struct of %s is wanted",
                         operation, init);
    if (begun->version != 1 || begun->size < sizeof *begun || begun->size > LARGEST)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: a struct of size %u and version %u; begin it with %s", operation,
                         begun->size, begun->version, init);
    return ND_OK;
}

/// Nothing is set where this library knows of no field.
static nd_status check_rest(const char *operation, const char *init, const void *given,
                            size_t size) {
    const unsigned char *bytes = given;
    for (size_t at = size; at < ((const nd__versioned *)given)->size; at++)
        if (bytes[at])
            return nd__error(ND_ERROR_UNSUPPORTED,
                             "%s: something is set behind the %zu bytes of %s that this version of "
                             "the library knows",
                             operation, size, init);
    return ND_OK;
}

nd_status nd__versioned_read(const char *operation, const char *init, const void *given,
                             void *ret_options, size_t size) {
    if (!given)
        return ND_OK;
    nd_status status = check_beginning(operation, init, given);
    if (status == ND_OK)
        status = check_rest(operation, init, given, size);
    if (status != ND_OK)
        return status;
    size_t said = ((const nd__versioned *)given)->size;
    size_t known = said < size ? said : size;
    memcpy((char *)ret_options + sizeof(nd__versioned), (const char *)given + sizeof(nd__versioned),
           known - sizeof(nd__versioned));
    return ND_OK;
}

nd_status nd__versioned_check_kept(const char *operation, const char *init, const void *given,
                                   size_t size) {
    nd_status status = check_beginning(operation, init, given);
    if (status != ND_OK)
        return status;
    if (((const nd__versioned *)given)->size < size)
        return nd__error(
            ND_ERROR_INVALID_ARGUMENT,
            "%s: a struct of %u bytes where %s has %zu; it is kept, so all must be there",
            operation, ((const nd__versioned *)given)->size, init, size);
    return check_rest(operation, init, given, size);
}

nd_status nd__versioned_check(const char *operation, const char *init, const void *ret_report) {
    return check_beginning(operation, init, ret_report);
}

void nd__versioned_write(void *ret_report, const void *report, size_t size) {
    nd__versioned *begun = ret_report;
    if (begun->size > size)
        begun->size = (uint32_t)size;
    memcpy((char *)ret_report + sizeof *begun, (const char *)report + sizeof *begun,
           begun->size - sizeof *begun);
}
