// Text as BERT's models were trained on it: without control characters, accents and capitals.
#ifndef MINILM_NORMALIZE_H
#define MINILM_NORMALIZE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Reads UTF-8 and writes characters, of which there are at most as many as bytes: control
/// characters are dropped, ideographs stand between blanks, what can be taken apart is (NFD), then
/// marks are dropped and letters are small. Every blank is ' '. Malformed bytes are dropped.
/// Returns the number of characters.
size_t normalize_text(const char *text, size_t bytes, uint32_t *ret_characters);

/// Whether a character is a word by itself.
bool normalize_is_punctuation(uint32_t character);

/// Writes a character as UTF-8, at most 4 bytes. Returns how many.
size_t normalize_write(uint32_t character, char *ret_bytes);

#endif
