// Libraries that only pictures need: not linked, but opened when the first picture is read or
// written, so that a program without pictures needs neither.
#ifndef ND_LIB_IO_CODEC_H
#define ND_LIB_IO_CODEC_H
#include <stdbool.h>
#include <stddef.h>

/// Opens a library for good and finds all of `names`, into as many pointers to functions at
/// `ret_functions`. The environment's `variable` names another file. False when the library or a
/// function is missing; then nothing stays open.
bool nd__codec_open(const char *variable, const char *file, size_t count, const char *const *names,
                    void *ret_functions);
#endif
