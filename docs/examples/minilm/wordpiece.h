// The tokenizer of BERT's uncased models: texts become numbers of a vocabulary's tokens.
//
// It gives what PyPI's `tokenizers` gives for the same vocabulary (tests/reference/wordpiece.py).
#ifndef MINILM_WORDPIECE_H
#define MINILM_WORDPIECE_H
#include <stddef.h>
#include <stdint.h>

typedef struct wordpiece wordpiece;

/// Reads a vocabulary: a token in each line, counted from 0; "##" begins those that go on inside a
/// word. NULL, with errno: it cannot be read, there is no memory, or (EINVAL) one of [PAD], [UNK],
/// [CLS] and [SEP] is missing.
wordpiece *wordpiece_open(const char *path);
/// Frees it. NULL is fine.
void wordpiece_close(wordpiece *pieces);

/// Number of tokens.
size_t wordpiece_get_size(const wordpiece *pieces);
/// The number of [PAD], with which batches are filled up.
int32_t wordpiece_get_padding(const wordpiece *pieces);

/// Writes [CLS], the tokens of a text, and [SEP], at most `limit` (2 or more) numbers: a longer
/// text is cut. Malformed UTF-8 is dropped, as control characters are. Returns how many; 0 when there is no memory. Any
/// number of threads at once.
size_t wordpiece_encode(const wordpiece *pieces, const char *text, size_t bytes, size_t limit,
                        int32_t *ret_ids);

#endif
