// Libraries that nothing links with, opened when they are first wanted: a machine without one lacks
// only what needs it.
//
// Invariant: only success is remembered. Where a file is not there the next call looks again, and so
// it does where there was no memory, no address space or no file descriptor to open it: that is not
// a machine's lack of the library, and is told apart from it. A fork waits until nobody is opening
// anything here, so that its child may open what another thread of its parent was opening.
#ifndef ND_LIB_BASE_OPTIONAL_H
#define ND_LIB_BASE_OPTIONAL_H
#include <nd/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/// A library: what it is called, where it is looked for, and which functions are wanted of it.
typedef struct nd_optional {
    const char *what;          ///< "FFTW"
    const char *package;       ///< Debian's
    const char *variable;      ///< of the environment, which names the only file to look for
    const char *const *files;  ///< looked for otherwise, in this order; NULL behind the last
    size_t count;              ///< of functions
    const char *const *names;  ///< theirs
    _Atomic(void *) functions; ///< once found, for good
} nd_optional;

enum { ND__OPTIONAL_TEXT = 512 };

/// Pointers to the functions in the order of their names, as one block for as long as the process
/// runs. NULL: nd__optional_explain says why.
const void *nd__optional_functions(nd_optional *library);

/// Why a library could not be opened a moment ago, as the rest of a sentence: "needs FFTW, ...".
/// It is tried once more for that. `text` has ND__OPTIONAL_TEXT bytes. ND_ERROR_OUT_OF_MEMORY: for
/// want of memory or descriptors, and it may be there; else ND_ERROR_UNSUPPORTED.
nd_status nd__optional_explain(nd_optional *library, char *text);

/// Opens a file for good, by the loader's rules. NULL sets *ret_short to true where memory or
/// descriptors were wanting, and leaves it alone where the file is not there or no such library.
void *nd__optional_open_file(const char *file, bool *ret_short);
#endif
