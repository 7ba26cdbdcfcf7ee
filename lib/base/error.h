// Setting the thread's error. A thread gets the memory for its messages at its first error, and
// there is a little for threads that get none, so composing a message never fails.
#ifndef ND_LIB_BASE_ERROR_H
#define ND_LIB_BASE_ERROR_H
#include <nd/error.h>

/// Sets the thread's error and returns `status`, so that `return nd__error(...)` works. The
/// sentence names the operation first: "add: shapes [2, 3] and [4] do not broadcast".
nd_status nd__error(nd_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// What the system says of an errno, in English whatever the program's language, so that a message is
/// of one language and encoding. Static storage.
const char *nd__error_reason(int number);

/// For an operand that is NULL: keeps the error that is already there, else sets "NAME: ARGUMENT is
/// NULL".
nd_status nd__error_null(const char *operation, const char *argument);

/// In a function that is made of operations: from here to the end of the block, an error that one of
/// them sets begins with `name` in place of the operation's own, since the program called this one. An
/// error from before is left alone, and so is a message that begins with no operation.
#define ND__ERROR_NAMED(name)                             \
    __attribute__((cleanup(nd__error_named_end), unused)) \
    const nd_error_name nd__error_named = {name, nd__error_count()}
typedef struct nd_error_name {
    const char *name;
    unsigned before;
} nd_error_name;
/// How many errors the thread has set.
unsigned nd__error_count(void);
void nd__error_named_end(const nd_error_name *named);

/// The thread's error, to be put back after something whose failures do not matter.
#define ND__MESSAGE_SIZE 1024
typedef struct nd_error_state nd_error_state;
struct nd_error_state {
    nd_status status;
    unsigned count;                 ///< nd__error_count() when it was set
    char message[ND__MESSAGE_SIZE]; ///< both meaningless when the status is ND_OK
};
void nd__error_save(nd_error_state *ret_state);
void nd__error_restore(const nd_error_state *state);

/// Around a callback of the program's that runs where it does not expect one, such as a finalizer.
/// In between the thread's error is another one, which begins empty: what the callback sets and
/// clears is its own, and the program's error is as it was. Costs no copy of a message. Nests.
void nd__error_begin(nd_error_state *own, nd_error_state **ret_outer);
void nd__error_end(nd_error_state *outer);

/// The thread ends: gives back the memory for its messages. It may still fail again.
void nd__error_thread_ends(void);

/// A programming error that cannot be answered (count underflow, revival of a dead object): prints
/// a line on stderr, of what is printable, and aborts.
_Noreturn void nd__error_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
/// Prints such a line, for who has more to say before abort(), or means no end.
void nd__error_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
