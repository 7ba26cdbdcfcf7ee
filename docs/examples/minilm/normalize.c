// One look into a table for each character; characters.py says where its numbers are from.
//
// Invariant: from `settled` on, the characters that are written have a combining class, those of a
// smaller one first. One of class 0, kept or dropped, is a border that none of them crosses.
#include "normalize.h"

#include <string.h>

enum kind {
    DROPPED,   ///< a control character, or a mark
    BORDER,    ///< a mark of class 0: dropped, but none is sorted across it
    BLANK,     ///< any white space
    LETTER,    ///< becomes another one
    IDEOGRAPH, ///< a word of its own; some become another one
    SEQUENCE,  ///< becomes two or three; `value` is which
    HANGUL,    ///< a syllable, taken apart by its formula
    CLASS,     ///< stays, and is sorted by its combining class, which is `value`
};

/// Characters of one kind, each `step` behind the one before. value: what is added to each; for
/// step 0, where their results are listed.
typedef struct character_run {
    uint32_t first, last;
    int8_t step;
    uint8_t kind;
    int32_t value;
} character_run;

typedef struct character_range {
    uint32_t first, last;
} character_range;

#include "characters.inc"

enum { SEQUENCE_LENGTH = sizeof *character_sequences / sizeof **character_sequences };

typedef struct sink {
    uint32_t *characters;
    size_t count;
    size_t settled;
} sink;

/// Reads a character and moves on; 0, which is dropped, for a byte that begins none.
static uint32_t read_character(const unsigned char **at, const unsigned char *end) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    unsigned first = *(*at)++;
    if (first < 0x80)
        return first;
    size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || (size_t)(end - *at) < more)
        return 0;
    uint32_t character = first & (0x3Fu >> more);
    for (size_t i = 0; i < more; i++) {
        if (((*at)[i] & 0xC0) != 0x80)
            return 0;
        character = character << 6 | ((*at)[i] & 0x3F);
    }
    bool surrogate = character >= 0xD800 && character < 0xE000;
    if (character < least[more] || character > 0x10FFFF || surrogate)
        return 0;
    *at += more;
    return character;
}

/// NULL: the character stays as it is.
static const character_run *find_run(uint32_t character) {
    size_t low = 0, high = sizeof character_runs / sizeof *character_runs;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (character_runs[middle].last < character)
            low = middle + 1;
        else
            high = middle;
    }
    const character_run *run = &character_runs[low];
    if (low == sizeof character_runs / sizeof *character_runs || character < run->first)
        return NULL;
    return run->step == 2 && (character - run->first) % 2 ? NULL : run;
}

static void write_starter(sink *out, uint32_t character) {
    out->characters[out->count++] = character;
    out->settled = out->count;
}

static uint32_t class_of(uint32_t character) {
    const character_run *run = find_run(character);
    return run && run->kind == CLASS ? (uint32_t)run->value : 0;
}

/// Writes one that is kept, before those of a larger class.
static void write_sorted(sink *out, uint32_t character) {
    uint32_t class = class_of(character);
    if (class == 0) {
        write_starter(out, character);
        return;
    }
    size_t at = out->count++;
    for (; at > out->settled && class_of(out->characters[at - 1]) > class; at--)
        out->characters[at] = out->characters[at - 1];
    out->characters[at] = character;
}

/// The Unicode Standard, 3.12: a syllable is a leading consonant, a vowel, and perhaps a trailing
/// consonant.
static void write_hangul(sink *out, uint32_t syllable) {
    enum { FIRST = 0xAC00, LEADING = 0x1100, VOWEL = 0x1161, TRAILING = 0x11A7 };
    enum { VOWELS = 21, TRAILINGS = 28 };
    uint32_t index = syllable - FIRST, trailing = index % TRAILINGS;
    write_starter(out, LEADING + index / (VOWELS * TRAILINGS));
    write_starter(out, VOWEL + index / TRAILINGS % VOWELS);
    if (trailing > 0)
        write_starter(out, TRAILING + trailing);
}

static void write_run(sink *out, const character_run *run, uint32_t character) {
    uint32_t result = run->step == 0
                          ? character_results[(uint32_t)run->value + character - run->first]
                          : (uint32_t)((int32_t)character + run->value);
    switch ((enum kind)run->kind) {
    case DROPPED:
        break;
    case BORDER:
        out->settled = out->count;
        break;
    case BLANK:
        write_starter(out, ' ');
        break;
    case LETTER:
        write_starter(out, result);
        break;
    case IDEOGRAPH:
        write_starter(out, ' ');
        write_starter(out, result);
        write_starter(out, ' ');
        break;
    case SEQUENCE:
        for (int i = 0; i < SEQUENCE_LENGTH && character_sequences[run->value][i]; i++)
            write_sorted(out, character_sequences[run->value][i]);
        break;
    case HANGUL:
        write_hangul(out, character);
        break;
    case CLASS:
        write_sorted(out, character);
        break;
    }
}

size_t normalize_text(const char *text, size_t bytes, uint32_t *ret_characters) {
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    sink out = {ret_characters, 0, 0};
    while (at < end) {
        uint32_t character = read_character(&at, end);
        if (character >= 'a' && character <= 'z') {
            write_starter(&out, character);
            continue;
        }
        const character_run *run = find_run(character);
        if (run)
            write_run(&out, run, character);
        else
            write_starter(&out, character);
    }
    return out.count;
}

bool normalize_is_punctuation(uint32_t character) {
    size_t low = 0, high = sizeof character_punctuation / sizeof *character_punctuation;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (character_punctuation[middle].last < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof character_punctuation / sizeof *character_punctuation &&
           character_punctuation[low].first <= character;
}

size_t normalize_write(uint32_t character, char *ret_bytes) {
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    if (character < 0x80) {
        *ret_bytes = (char)character;
        return 1;
    }
    size_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; character >>= 6)
        ret_bytes[i] = (char)(0x80 | (character & 0x3F));
    ret_bytes[0] = (char)(first[length] | character);
    return length;
}
