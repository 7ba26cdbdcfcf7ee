/// @file
/// The last error of the calling thread.
///
/// A function that fails returns NULL or a status other than ND_OK (one that returns a number, what
/// its description says), sets the thread's error, and has changed nothing unless that says what. A
/// function that succeeds leaves the error alone. NULL operands propagate: an operation given NULL
/// returns NULL and keeps the error that is already there, unless another argument is wrong by itself
/// (without one it is ND_ERROR_INVALID_ARGUMENT), so a chain of calls needs one check at its end.
///
/// Callbacks that run where the program does not expect them (finalizers and destructors, those of
/// weak references, of memory that is freed or wanted, of a device's queue, of cycles that were
/// found) have an error of their own, which begins empty and is forgotten with them: the program's
/// stays as it was. A tensor's hook and the `backward` of an nd_function have one, too, with which
/// the pass fails where they give NULL (<nd/autograd.h>).
#ifndef ND_ERROR_H
#define ND_ERROR_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Status of the thread's last error.
///
/// @return ND_OK when there is none
/// @errors none
/// @threads any; each has its own
ND_API nd_status nd_error_get_status(void);

/// The thread's last error as a sentence: operation, shapes, dtypes, devices, manager. Composing it
/// needs no memory. Printable UTF-8 on one line: another byte, of a file or a name, stands there as a
/// backslash, an x and its two hexadecimal digits.
///
/// @return borrowed: valid until the thread's next failing call. "no error" when there is none;
///         never NULL
/// @errors none
/// @threads any; each has its own
ND_API const char *nd_error_get_message(void);

/// Forgets the thread's error.
///
/// @errors none
/// @threads any; each has its own
ND_API void nd_error_clear(void);

/// Name of a status, such as "ND_ERROR_SHAPE".
///
/// @param status any value
/// @return static storage; "unknown status" for a number that is none; never NULL
/// @errors none
/// @threads any
ND_API const char *nd_status_get_name(nd_status status);

#ifdef __cplusplus
}
#endif
#endif
