// The strict JSON scanner (RFC 8259) of lib/io.
//
// Invariant: position never passes size, and the write position of a string never passes its read
// position. It must not accept what the standard refuses: stray commas, control characters in
// strings, lone surrogates, numbers like 01.
#include "lib/io/json.h"
#include "lib/base/utf8.h"
#include <string.h>

static bool fail(nd_json *json, const char *problem);
static bool skip_key(nd_json *json);
static bool skip_simple(nd_json *json);
static bool read_escape(nd_json *json, char **write);
static bool read_hex4(nd_json *json, uint32_t *ret_unit);
static size_t encode_utf8(uint32_t code_point, char *ret_text);

char nd__json_peek(nd_json *json) {
    while (json->position < json->size) {
        char c = json->text[json->position];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        json->position++;
    }
    return 0;
}

bool nd__json_take(nd_json *json, char character) {
    if (json->problem || nd__json_peek(json) != character || json->position >= json->size)
        return false;
    json->position++;
    return true;
}

bool nd__json_expect(nd_json *json, char character, const char *problem) {
    return nd__json_take(json, character) || fail(json, problem);
}

bool nd__json_string(nd_json *json, const char **ret_string) {
    if (!nd__json_expect(json, '"', "a string was expected"))
        return false;
    char *start = json->text + json->position;
    char *write = start;
    while (json->position < json->size) {
        const char *read = json->text + json->position;
        if (*read == '"') {
            json->position++;
            *write = 0; // at the latest where the closing quote was
            *ret_string = start;
            return true;
        }
        if (*read == '\\') {
            if (!read_escape(json, &write))
                return false;
            continue;
        }
        if ((unsigned char)*read < 0x20)
            return fail(json, "a control character stands in a string");
        size_t length = nd__utf8_length(read, json->size - json->position);
        if (length == 0)
            return fail(json, "a string is not valid UTF-8");
        memmove(write, read, length);
        write += length;
        json->position += length;
    }
    return fail(json, "a string does not end");
}

bool nd__json_integer(nd_json *json, int64_t *ret_value) {
    char first = nd__json_peek(json);
    if (json->problem || first < '0' || first > '9')
        return fail(json, "a non-negative integer was expected");
    int64_t value = 0;
    size_t start = json->position;
    while (json->position < json->size) {
        char c = json->text[json->position];
        if (c == '.' || c == 'e' || c == 'E')
            return fail(json, "a number is not an integer");
        if (c < '0' || c > '9')
            break;
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(c - '0'), &value))
            return fail(json, "a number does not fit 64 bits");
        json->position++;
    }
    if (first == '0' && json->position - start > 1)
        return fail(json, "a number begins with zero");
    *ret_value = value;
    return true;
}

bool nd__json_skip(nd_json *json) {
    uint64_t objects = 0; // a bit for each level: whether it is an object
    int depth = 0;
    bool fine = true;
    do {
        bool object = nd__json_take(json, '{');
        if (object || nd__json_take(json, '[')) {
            if (depth == 64)
                return fail(json, "values are more than 64 deep");
            objects = objects << 1 | object;
            depth++;
            if (!nd__json_take(json, object ? '}' : ']')) {
                fine = !object || skip_key(json);
                continue;
            }
            objects >>= 1;
            depth--;
        } else {
            fine = skip_simple(json);
        }
        while (fine && depth > 0 && nd__json_take(json, objects & 1 ? '}' : ']')) {
            objects >>= 1;
            depth--;
        }
        if (fine && depth > 0)
            fine = nd__json_expect(json, ',', "a comma or the end of a value was expected") &&
                   (!(objects & 1) || skip_key(json));
    } while (fine && depth > 0);
    return fine;
}

bool nd__json_at_end(nd_json *json) {
    nd__json_peek(json);
    return !json->problem && json->position == json->size;
}

/// Keeps the first problem. Always false.
static bool fail(nd_json *json, const char *problem) {
    if (!json->problem)
        json->problem = problem;
    return false;
}

/// The name of a member and its colon.
static bool skip_key(nd_json *json) {
    const char *name;
    return nd__json_string(json, &name) && nd__json_expect(json, ':', "a colon was expected");
}

/// Passes digits; how many.
static size_t skip_digits(nd_json *json) {
    size_t start = json->position;
    while (json->position < json->size && json->text[json->position] >= '0' &&
           json->text[json->position] <= '9')
        json->position++;
    return json->position - start;
}

/// Passes a character that is next at once, one of two; 0 for none.
static bool skip_one_of(nd_json *json, char a, char b) {
    bool there = json->position < json->size &&
                 (json->text[json->position] == a || json->text[json->position] == b);
    json->position += there;
    return there;
}

/// A string, a number, true, false or null.
static bool skip_simple(nd_json *json) {
    static const char *const words[] = {"true", "false", "null"};
    const char *text;
    if (nd__json_peek(json) == '"')
        return nd__json_string(json, &text);
    for (size_t i = 0; !json->problem && i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if (json->size - json->position >= length &&
            memcmp(json->text + json->position, words[i], length) == 0) {
            json->position += length;
            return true;
        }
    }
    skip_one_of(json, '-', '-');
    bool zero = skip_one_of(json, '0', '0');
    bool fine = zero || skip_digits(json) > 0;
    if (fine && skip_one_of(json, '.', '.'))
        fine = skip_digits(json) > 0;
    if (fine && skip_one_of(json, 'e', 'E')) {
        skip_one_of(json, '+', '-');
        fine = skip_digits(json) > 0;
    }
    return (fine && !json->problem) || fail(json, "a value was expected");
}

/// Reads \n, \u00e9, \ud83d\ude00 and the like; the text they stand for is never longer.
static bool read_escape(nd_json *json, char **write) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    json->position++; // the backslash
    if (json->position == json->size)
        return fail(json, "a string does not end");
    char kind = json->text[json->position++];
    const char *letter = kind ? strchr(letters, kind) : NULL;
    if (letter) {
        *(*write)++ = meanings[letter - letters];
        return true;
    }
    uint32_t code_point = 0;
    if (kind != 'u')
        return fail(json, "a backslash stands before a character that cannot be escaped");
    if (!read_hex4(json, &code_point))
        return false;
    if (code_point >= 0xd800 && code_point < 0xdc00) {
        uint32_t low = 0;
        bool pair =
            json->size - json->position >= 2 && memcmp(json->text + json->position, "\\u", 2) == 0;
        json->position += pair ? 2 : 0;
        if (!pair || !read_hex4(json, &low) || low < 0xdc00 || low > 0xdfff)
            return fail(json, "half a surrogate pair stands in a string");
        code_point = 0x10000 + ((code_point - 0xd800) << 10) + (low - 0xdc00);
    } else if (code_point >= 0xdc00 && code_point < 0xe000) {
        return fail(json, "half a surrogate pair stands in a string");
    }
    if (code_point == 0)
        return fail(json, "a zero character stands in a string");
    *write += encode_utf8(code_point, *write);
    return true;
}

static bool read_hex4(nd_json *json, uint32_t *ret_unit) {
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        char c = json->position < json->size ? json->text[json->position] : 0;
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (uint32_t)((c | 0x20) - 'a') + 10;
        else
            return fail(json, "\\u is not followed by four hexadecimal digits");
        unit = unit << 4 | digit;
        json->position++;
    }
    *ret_unit = unit;
    return true;
}

static size_t encode_utf8(uint32_t code_point, char *ret_text) {
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t length = code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code_point >>= 6)
        ret_text[i] = (char)(0x80 | (code_point & 0x3f));
    ret_text[0] = (char)((length > 1 ? lead[length] : 0) | code_point);
    return length;
}
