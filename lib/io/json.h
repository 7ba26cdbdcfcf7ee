// A small strict scanner over a JSON text in memory: exactly what the header of a safetensors file,
// and the index of several, need.
//
// The text is changed: strings are decoded in place (a decoded string is never longer than its
// source), so scanning needs no memory and cannot be made to use any. The caller walks the
// structure it expects and refuses everything else, so a text cannot make it recurse. The first
// problem sticks: all later calls answer false.
#ifndef ND_LIB_IO_JSON_H
#define ND_LIB_IO_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nd_json {
    char *text;
    size_t size;
    size_t position;
    const char *problem; ///< NULL while all is well; "expected ..." otherwise
} nd_json;

/// The next character that is not white space, not consumed; 0 at the end.
char nd__json_peek(nd_json *json);
/// Consumes the next character if it is `character`.
bool nd__json_take(nd_json *json, char character);
/// Consumes `character` or has a problem, called `problem`.
bool nd__json_expect(nd_json *json, char character, const char *problem);
/// A string: decoded, valid UTF-8, without a zero byte, terminated; lives in the text.
bool nd__json_string(nd_json *json, const char **ret_string);
/// An integer 0 ... INT64_MAX without sign, fraction, exponent or leading zero.
bool nd__json_integer(nd_json *json, int64_t *ret_value);
/// Any value, read and left out: objects and lists at most 64 deep.
bool nd__json_skip(nd_json *json);
/// Whether only white space is left.
bool nd__json_at_end(nd_json *json);
#endif
