// Inputs as people write them: what the corpus holds, and what a failure is shown as.
//
// A program is one call on a line, by name, with up to four numbers; those left out are 0
// (text_program.c). Content of a file is bytes of two hexadecimal digits and "text" in quotes
// (text_bytes.c). Both may say something behind a #.
#ifndef ND_TESTS_FUZZ_TEXT_H
#define ND_TESTS_FUZZ_TEXT_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/// The bytes that a text means, to be freed; stops the program with the line that is wrong.
uint8_t *fuzz_read_text(const char *name, const char *text, size_t *ret_size);
/// Bytes as such a text.
void fuzz_write_text(FILE *stream, const uint8_t *data, size_t size);

/// What libFuzzer calls, and replay.c.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
