// The thread's last error: a status and a sentence in a fixed thread-local buffer, or in one on the
// stack while a callback has an error of its own.
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local nd_error_state first;

/// The thread's error: what a callback has to itself while one runs (nd__error_begin).
static inline nd_error_state *last(void) {
    nd_error_state *inner = nd__thread_record.error;
    return __builtin_expect(inner != NULL, 0) ? inner : &first;
}

nd_status nd_error_get_status(void) {
    return last()->status;
}

const char *nd_error_get_message(void) {
    const nd_error_state *error = last();
    return error->status == ND_OK ? "no error" : error->message;
}

void nd_error_clear(void) {
    last()->status = ND_OK;
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
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    nd_error_state *error = last();
    __builtin_memcpy(error->message, message, sizeof message);
    error->status = status;
    return status;
}

nd_status nd__error_null(const char *operation, const char *argument) {
    nd_status before = last()->status;
    if (before != ND_OK)
        return before;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", operation, argument);
}

static void copy(nd_error_state *to, const nd_error_state *from) {
    to->status = from->status;
    if (from->status != ND_OK)
        __builtin_memcpy(to->message, from->message, sizeof to->message);
}

void nd__error_save(nd_error_state *ret_state) {
    copy(ret_state, last());
}

void nd__error_restore(const nd_error_state *state) {
    copy(last(), state);
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
    fputs("ndarc: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
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
