// A word becomes the longest token that it begins with, then the longest that goes on from there
// (Wu et al. 2016; Devlin et al. 2018); [UNK] when there is none.
//
// Invariant: a vocabulary is not changed once it is read. Tokens that go on inside a word are found
// under another hash, so that "##s" is not found at the beginning of one.
#include "wordpiece.h"
#include "normalize.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PADDING, UNKNOWN, BEGINNING, END, MASK, SPECIALS, NEEDED = MASK };
static const char *const special_names[SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

enum { LONGEST_WORD = 100 }; // characters; longer ones are [UNK]

typedef struct token {
    const char *text; ///< without "##"
    uint32_t length;
    bool inside; ///< goes on inside a word
} token;

struct wordpiece {
    char *text; ///< the file
    token *tokens;
    size_t count;
    int32_t *slots; ///< numbers of tokens by hash, -1 where there is none
    size_t slot_mask;
    size_t longest;            ///< bytes of a token
    int32_t special[SPECIALS]; ///< -1: not in the vocabulary
};

/// What is written; `count` goes on when there is no more room.
typedef struct output {
    int32_t *ids;
    size_t count, limit;
} output;

// ------------------------------------------------------------------------------------- vocabulary

/// Fowler, Noll and Vo's hash of what has this hash and one more byte.
static uint64_t hash_more(uint64_t hash, char byte) {
    return (hash ^ (unsigned char)byte) * 0x100000001B3;
}

static uint64_t hash_begin(bool inside) {
    return inside ? 0xCBF29CE484222325 : 0x84222325CBF29CE4;
}

static int32_t *find_slot(const wordpiece *pieces, uint64_t hash, const token *wanted) {
    size_t at = (size_t)(hash ^ hash >> 32) & pieces->slot_mask;
    for (;; at = (at + 1) & pieces->slot_mask) {
        int32_t id = pieces->slots[at];
        if (id < 0)
            return &pieces->slots[at];
        const token *found = &pieces->tokens[id];
        if (found->length == wanted->length && found->inside == wanted->inside &&
            memcmp(found->text, wanted->text, wanted->length) == 0)
            return &pieces->slots[at];
    }
}

static void add_token(wordpiece *pieces, const char *text, size_t length) {
    bool inside = length > 2 && memcmp(text, "##", 2) == 0;
    token *added = &pieces->tokens[pieces->count];
    *added = (token){inside ? text + 2 : text, (uint32_t)(inside ? length - 2 : length), inside};
    uint64_t hash = hash_begin(inside);
    for (uint32_t i = 0; i < added->length; i++)
        hash = hash_more(hash, added->text[i]);
    *find_slot(pieces, hash, added) = (int32_t)pieces->count++; // the last of two that are equal
    if (added->length > pieces->longest)
        pieces->longest = added->length;
    for (int i = 0; i < SPECIALS; i++)
        if (length == strlen(special_names[i]) && memcmp(text, special_names[i], length) == 0)
            pieces->special[i] = (int32_t)pieces->count - 1;
}

/// The whole file, which free() frees; NULL with errno.
static char *read_file(const char *path, size_t *ret_bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long end;
    if (file && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0) {
        rewind(file);
        *ret_bytes = (size_t)end;
        text = malloc(*ret_bytes + 1);
        if (text && fread(text, 1, *ret_bytes, file) != *ret_bytes) {
            free(text);
            text = NULL;
            errno = EIO;
        }
    }
    if (file)
        fclose(file);
    return text;
}

static size_t count_lines(const char *text, size_t bytes) {
    size_t lines = bytes > 0 && text[bytes - 1] != '\n';
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines;
}

static bool make_room(wordpiece *pieces, size_t tokens) {
    size_t slots = 2;
    while (slots < 2 * tokens + 2)
        slots *= 2;
    pieces->slot_mask = slots - 1;
    pieces->tokens = malloc((tokens + 1) * sizeof *pieces->tokens);
    pieces->slots = malloc(slots * sizeof *pieces->slots);
    if (!pieces->tokens || !pieces->slots)
        return false;
    memset(pieces->slots, -1, slots * sizeof *pieces->slots);
    memset(pieces->special, -1, sizeof pieces->special);
    return true;
}

wordpiece *wordpiece_open(const char *path) {
    size_t bytes = 0;
    wordpiece *pieces = calloc(1, sizeof *pieces);
    if (!pieces || !(pieces->text = read_file(path, &bytes)) ||
        !make_room(pieces, count_lines(pieces->text, bytes))) {
        wordpiece_close(pieces);
        return NULL;
    }
    for (char *line = pieces->text, *end = line + bytes; line < end;) {
        char *after = memchr(line, '\n', (size_t)(end - line));
        char *last = after ? after : end;
        size_t length = (size_t)(last - line);
        add_token(pieces, line, length > 0 && last[-1] == '\r' ? length - 1 : length);
        line = last + 1;
    }
    for (int i = 0; i < NEEDED; i++)
        if (pieces->special[i] < 0) {
            wordpiece_close(pieces);
            errno = EINVAL;
            return NULL;
        }
    return pieces;
}

void wordpiece_close(wordpiece *pieces) {
    if (!pieces)
        return;
    free(pieces->text);
    free(pieces->tokens);
    free(pieces->slots);
    free(pieces);
}

size_t wordpiece_get_size(const wordpiece *pieces) {
    return pieces->count;
}

int32_t wordpiece_get_padding(const wordpiece *pieces) {
    return pieces->special[PADDING];
}

// ------------------------------------------------------------------------------------------- words

static void write_id(output *out, int32_t id) {
    if (out->count < out->limit)
        out->ids[out->count] = id;
    out->count++;
}

/// The longest token that the text begins with; NULL when none does.
static const token *longest_token(const wordpiece *pieces, const char *text, size_t bytes,
                                  bool inside) {
    uint64_t hash = hash_begin(inside);
    const token *longest = NULL;
    for (uint32_t length = 1; length <= bytes && length <= pieces->longest; length++) {
        hash = hash_more(hash, text[length - 1]);
        const token wanted = {text, length, inside};
        int32_t id = *find_slot(pieces, hash, &wanted);
        if (id >= 0)
            longest = &pieces->tokens[id];
    }
    return longest;
}

static void encode_word(const wordpiece *pieces, const uint32_t *characters, size_t count,
                        output *out) {
    char word[4 * LONGEST_WORD];
    size_t bytes = 0, before = out->count;
    bool known = count <= LONGEST_WORD;
    for (size_t i = 0; known && i < count; i++)
        bytes += normalize_write(characters[i], word + bytes);
    for (size_t at = 0; known && at < bytes;) {
        const token *piece = longest_token(pieces, word + at, bytes - at, at > 0);
        known = piece != NULL;
        if (known) {
            write_id(out, (int32_t)(piece - pieces->tokens));
            at += piece->length;
        }
    }
    if (known)
        return;
    out->count = before;
    write_id(out, pieces->special[UNKNOWN]);
}

/// Words end at blanks, and before and behind each punctuation mark.
static void encode_words(const wordpiece *pieces, const uint32_t *characters, size_t count,
                         output *out) {
    size_t start = 0;
    for (size_t i = 0; i <= count && out->count < out->limit; i++) {
        bool mark = i < count && normalize_is_punctuation(characters[i]);
        if (i < count && characters[i] != ' ' && !mark)
            continue;
        if (start < i)
            encode_word(pieces, characters + start, i - start, out);
        if (mark)
            encode_word(pieces, characters + i, 1, out);
        start = i + 1;
    }
}

/// The special token that stands here, by its name; SPECIALS for none.
static int special_at(const wordpiece *pieces, const char *text, size_t bytes) {
    int which = 0;
    for (; which < SPECIALS; which++) {
        size_t length = strlen(special_names[which]);
        if (length <= bytes && memcmp(text, special_names[which], length) == 0 &&
            pieces->special[which] >= 0)
            break;
    }
    return which;
}

/// Names of special tokens are tokens as they stand; what is between them is text.
static void encode_text(const wordpiece *pieces, const char *text, size_t bytes,
                        uint32_t *characters, output *out) {
    size_t start = 0;
    for (size_t at = 0; at <= bytes && out->count < out->limit; at++) {
        bool bracket = at < bytes && text[at] == '[';
        int which = bracket ? special_at(pieces, text + at, bytes - at) : SPECIALS;
        if (at < bytes && which == SPECIALS)
            continue;
        size_t count = normalize_text(text + start, at - start, characters);
        encode_words(pieces, characters, count, out);
        if (which < SPECIALS) {
            write_id(out, pieces->special[which]);
            at += strlen(special_names[which]) - 1;
            start = at + 1;
        }
    }
}

size_t wordpiece_encode(const wordpiece *pieces, const char *text, size_t bytes, size_t limit,
                        int32_t *ret_ids) {
    uint32_t *characters = malloc((bytes + 1) * sizeof *characters);
    if (!characters)
        return 0;
    output out = {ret_ids, 0, limit - 1};
    write_id(&out, pieces->special[BEGINNING]);
    encode_text(pieces, text, bytes, characters, &out);
    free(characters);
    size_t count = out.count < out.limit ? out.count : out.limit;
    ret_ids[count] = pieces->special[END];
    return count + 1;
}
