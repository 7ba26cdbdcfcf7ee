// UTF-8 (Unicode 15, table 3-7). None of these allocates or depends on the locale.
#ifndef ND_LIB_BASE_UTF8_H
#define ND_LIB_BASE_UTF8_H
#include <nd/base.h>

/// Length of the well-formed character that `text`, of so many bytes, begins with; 0 when there is
/// none.
size_t nd__utf8_length(const char *text, size_t size);
/// Whether a terminated string is UTF-8.
bool nd__utf8_is_valid(const char *text);
/// Copies a terminated string into `room` bytes (1 or more): all of it, or what comes before the first
/// character that finds no room.
void nd__utf8_copy(char *ret_text, size_t room, const char *text);
/// Copies bytes, with a terminator, to `ret_text` of `room` bytes (1 or more). What is not printable
/// becomes \xNN: control characters, bytes that are no UTF-8, and characters that only change how
/// others are shown (their direction, line or width). What finds no room is left out whole. Text that
/// came out of this comes out as it went in.
void nd__utf8_print(char *ret_text, size_t room, const char *text, size_t size);
#endif
