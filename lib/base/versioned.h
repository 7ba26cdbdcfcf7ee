// Public structs that say how long they are: options that a program hands in, reports that it gets.
//
// Each begins with `uint32_t size, version`, set by its ..._INIT. Such a struct grows at its end
// only, so its size says which fields the program knows: a shorter one leaves the others at their
// defaults, and in a longer one only zeros may stand where this library knows nothing. The version
// changes when a field's meaning does; all are 1.
#ifndef ND_LIB_BASE_VERSIONED_H
#define ND_LIB_BASE_VERSIONED_H
#include <nd/base.h>

/// What every such struct begins with.
typedef struct nd__versioned {
    uint32_t size, version;
} nd__versioned;

/// Reads options. `ret_options`, of `size` bytes, begins with the defaults and takes what the
/// program has set; `given` NULL: they stay. `init` is the macro that the program should have begun
/// with. Errors: ND_ERROR_INVALID_ARGUMENT (no size or version), ND_ERROR_UNSUPPORTED (something
/// unknown is set); then nothing is written.
nd_status nd__versioned_read(const char *operation, const char *init, const void *given,
                             void *ret_options, size_t size);
/// The same check for a struct that the library keeps by its address, such as a type: not NULL, and
/// at least of `size` bytes.
nd_status nd__versioned_check_kept(const char *operation, const char *init, const void *given,
                                   size_t size);
/// Whether a report can be written there, to be asked before anything happens: not NULL, with size
/// and version. Errors: ND_ERROR_INVALID_ARGUMENT.
nd_status nd__versioned_check(const char *operation, const char *init, const void *ret_report);
/// Writes as much of a report of `size` bytes as the program knows. Its size becomes that of what
/// was written.
void nd__versioned_write(void *ret_report, const void *report, size_t size);
#endif
