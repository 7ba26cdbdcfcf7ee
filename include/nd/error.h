// The last error of the calling thread.
//
// A function that fails returns NULL or a status other than ND_OK, sets the thread's error, and has
// changed nothing. A function that succeeds leaves the error alone. NULL operands propagate: an
// operation given NULL returns NULL and keeps the error that is already there, so a chain of calls
// needs one check at its end.
#ifndef ND_ERROR_H
#define ND_ERROR_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Status of the thread's last error; ND_OK when there is none.
ND_API nd_status nd_error_status(void);

/// The thread's last error as a sentence: operation, shapes, dtypes, devices, manager. Never NULL.
/// Borrowed: valid until the thread's next failing call. Composing it needs no memory.
ND_API const char *nd_error_message(void);

/// Forgets the thread's error.
ND_API void nd_error_clear(void);

/// Name of a status, such as "ND_ERROR_SHAPE". Never NULL.
ND_API const char *nd_status_name(nd_status status);

#ifdef __cplusplus
}
#endif
#endif
