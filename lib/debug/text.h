// Text that reports are composed of before they are written.
//
// A stream may block, so nothing is written to it under a lock or with the gate closed: text is
// collected in memory and written when it is whole.
#ifndef ND_LIB_DEBUG_TEXT_H
#define ND_LIB_DEBUG_TEXT_H
#include "lib/object/object.h"
#include <stdio.h>

/// Text that grows; an allocation that fails cuts it.
typedef struct nd__text {
    char *data;
    size_t size;
    FILE *stream; ///< to write to
} nd__text;

bool nd__text_begin(nd__text *text);
/// Writes all of it to `stream` and frees it. ND_ERROR_OUT_OF_MEMORY when it was cut, ND_ERROR_IO
/// when the stream did not take it; `operation` begins the error's sentence.
nd_status nd__text_end(nd__text *text, const char *operation, FILE *stream);
/// Frees it unwritten.
void nd__text_drop(nd__text *text);

/// A name of the program's for a line of text, of which it cannot make another line: what is not
/// printable becomes \xNN. Written to `ret_text`, which is returned, as far as there is room.
enum { ND__TEXT_PLAIN = 4 * 64 };
const char *nd__text_plain(char ret_text[ND__TEXT_PLAIN], const char *name);

/// `text` as a JSON string with its quotes. What is no UTF-8 becomes U+FFFD.
void nd__text_write_json(FILE *stream, const char *text);
/// `text` between the quotes of a DOT string, likewise.
void nd__text_write_dot(FILE *stream, const char *text);
#endif
