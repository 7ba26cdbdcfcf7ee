// The thread's last error: a status and a sentence in a buffer that the thread gets at its first
// error, or in one on the stack while a callback has an error of its own.
#include "lib/base/error.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/locale.h"
#include "lib/base/thread.h"
#include "lib/base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// The thread's error outside of callbacks; NULL before the first one.
static _Thread_local nd_error_state *first;

/// For threads whose first error finds no memory.
static nd_error_state reserve[8];
enum { RESERVE = sizeof reserve / sizeof *reserve };
static _Atomic bool is_taken[RESERVE];
/// The status of a thread that has got none of these either.
static _Thread_local nd_status without_message;

/// Errors that the thread has set.
static _Thread_local unsigned count;

/// The thread's error: what a callback has to itself while one runs (nd__error_begin). NULL: there
/// was none so far.
static inline nd_error_state *last(void) {
    nd_error_state *inner = nd__thread_record.error;
    return __builtin_expect(inner != NULL, 0) ? inner : first;
}

__attribute__((noinline)) static nd_error_state *begin_first(void) {
#ifdef ND_MODEL // whose memory ends with each run
    static _Thread_local nd_error_state kept;
    first = &kept;
#else
    first = nd__alloc(sizeof *first);
    (void)nd__thread_await_end(); // gives it back
#endif
    for (int i = 0; i < RESERVE && !first; i++)
        if (!nd__atomic_exchange(&is_taken[i], true, acquire))
            first = &reserve[i];
    if (first)
        first->status = ND_OK;
    return first;
}

/// The same for who writes it. NULL: there is no memory for a message.
static inline nd_error_state *writable(void) {
    nd_error_state *error = last();
    return __builtin_expect(error != NULL, 1) ? error : begin_first();
}

void nd__error_thread_ends(void) {
    nd_error_state *ended = first;
    first = NULL;
    if (ended >= reserve && ended < reserve + RESERVE)
        nd__atomic_store(&is_taken[ended - reserve], false, release);
    else
        nd__alloc_free(ended);
}

nd_status nd_error_get_status(void) {
    const nd_error_state *error = last();
    return error ? error->status : without_message;
}

const char *nd_error_get_message(void) {
    const nd_error_state *error = last();
    if (nd_error_get_status() == ND_OK)
        return "no error";
    return error ? error->message : "no memory to say what failed";
}

void nd_error_clear(void) {
    nd_error_state *error = last();
    if (error)
        error->status = ND_OK;
    else
        without_message = ND_OK;
}

const char *nd_status_get_name(nd_status status) {
    static const char *const names[] = {
        [ND_OK] = "ND_OK",
        [ND_ERROR_INVALID_ARGUMENT] = "ND_ERROR_INVALID_ARGUMENT",
        [ND_ERROR_SHAPE] = "ND_ERROR_SHAPE",
        [ND_ERROR_DTYPE] = "ND_ERROR_DTYPE",
        [ND_ERROR_DEVICE] = "ND_ERROR_DEVICE",
        [ND_ERROR_OUT_OF_MEMORY] = "ND_ERROR_OUT_OF_MEMORY",
        [ND_ERROR_QUOTA] = "ND_ERROR_QUOTA",
        [ND_ERROR_CLOSED] = "ND_ERROR_CLOSED",
        [ND_ERROR_STATE] = "ND_ERROR_STATE",
        [ND_ERROR_NOT_DIFFERENTIABLE] = "ND_ERROR_NOT_DIFFERENTIABLE",
        [ND_ERROR_IO] = "ND_ERROR_IO",
        [ND_ERROR_FORMAT] = "ND_ERROR_FORMAT",
        [ND_ERROR_UNSUPPORTED] = "ND_ERROR_UNSUPPORTED",
    };
    if ((unsigned)status >= sizeof names / sizeof names[0])
        return "unknown status";
    return names[status];
}

nd_status nd__error(nd_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    // An argument may be part of the message that is being replaced.
    char message[ND__MESSAGE_SIZE];
    locale_t before = nd__locale_begin_plain();
    vsnprintf(message, sizeof message, format, arguments);
    nd__locale_end(before);
    va_end(arguments);
    nd_error_state *error = writable();
    if (__builtin_expect(error != NULL, 1)) {
        // Bytes of a file, or a name, may be anything.
        nd__utf8_print(error->message, sizeof error->message, message, strlen(message));
        error->status = status;
        error->count = ++count;
    } else {
        without_message = status;
    }
    return status;
}

unsigned nd__error_count(void) {
    return count;
}

/// Where the name of an operation ends that a message begins with; NULL: with none.
static const char *end_of_name(const char *message) {
    const char *end = message;
    while ((*end >= 'a' && *end <= 'z') || (*end >= '0' && *end <= '9') || *end == '_')
        end++;
    return end > message && end[0] == ':' && end[1] == ' ' ? end : NULL;
}

void nd__error_named_end(const nd_error_name *named) {
    const nd_error_state *error = count == named->before ? NULL : last();
    // Behind errors that did not matter the one from before has been put back.
    if (!error || error->status == ND_OK || (int)(error->count - named->before) <= 0)
        return;
    const char *rest = end_of_name(error->message);
    if (rest)
        nd__error(error->status, "%s%s", named->name, rest);
}

const char *nd__error_reason(int number) {
    const char *text = strerrordesc_np(number);
    return text ? text : "unknown error";
}

nd_status nd__error_null(const char *operation, const char *argument) {
    nd_status before = nd_error_get_status();
    if (before != ND_OK)
        return before;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", operation, argument);
}

static void copy(nd_error_state *to, const nd_error_state *from) {
    to->status = from->status;
    to->count = from->count;
    if (from->status != ND_OK)
        __builtin_memcpy(to->message, from->message, sizeof to->message);
}

void nd__error_save(nd_error_state *ret_state) {
    const nd_error_state *error = last();
    if (error)
        copy(ret_state, error);
    else
        *ret_state->message = 0, ret_state->count = count, ret_state->status = without_message;
}

void nd__error_restore(const nd_error_state *state) {
    nd_error_state *error = state->status == ND_OK ? last() : writable();
    if (error)
        copy(error, state);
    else
        without_message = state->status;
}

void nd__error_begin(nd_error_state *own, nd_error_state **ret_outer) {
    own->status = ND_OK;
    *ret_outer = nd__thread_record.error;
    nd__thread_record.error = own;
}

void nd__error_end(nd_error_state *outer) {
    nd__thread_record.error = outer;
}

static void complain(const char *format, va_list arguments) {
    ND__UNCANCELLED;
    char message[ND__MESSAGE_SIZE], line[ND__MESSAGE_SIZE];
    vsnprintf(message, sizeof message, format, arguments);
    nd__utf8_print(line, sizeof line, message,
                   strlen(message)); // of names and of the environment, too
    fprintf(stderr, "ndarc: %s\n", line);
}

void nd__error_print(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
}

void nd__error_fatal(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    abort();
}
