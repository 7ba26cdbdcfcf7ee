// The thread's last error: a status and a sentence in a fixed thread-local buffer.
#include "lib/core/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local nd_status last_status;
static _Thread_local char last_message[ND__MESSAGE_SIZE];

nd_status nd_error_status(void) {
    return last_status;
}

const char *nd_error_message(void) {
    return last_status == ND_OK ? "no error" : last_message;
}

void nd_error_clear(void) {
    last_status = ND_OK;
}

const char *nd_status_name(nd_status status) {
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
    __builtin_memcpy(last_message, message, sizeof message);
    last_status = status;
    return status;
}

nd_status nd__error_null(const char *operation, const char *argument) {
    if (last_status != ND_OK)
        return last_status;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", operation, argument);
}

void nd__error_save(nd_error_state *ret_state) {
    ret_state->status = last_status;
    if (last_status != ND_OK)
        __builtin_memcpy(ret_state->message, last_message, sizeof last_message);
}

void nd__error_restore(const nd_error_state *state) {
    last_status = state->status;
    if (last_status != ND_OK)
        __builtin_memcpy(last_message, state->message, sizeof last_message);
}

void nd__fatal(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("ndarc: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}
