// The harness of the JSON scanner and of the check of UTF-8: whole texts by a walk that takes
// whatever comes, and the answer on UTF-8 beside a second reading by code points.
#include "lib/io/json.h"
#include "lib/base/utf8.h"
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 20 };

/// Decodes one character the plain way: bytes to a code point, and its shortest form's length.
static size_t plain_utf8_length(const uint8_t *text, size_t size) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80       ? 1
                    : text[0] >> 5 == 6  ? 2
                    : text[0] >> 4 == 14 ? 3
                    : text[0] >> 3 == 30 ? 4
                                         : 0;
    if (length == 0 || length > size)
        return 0;
    uint32_t code = length == 1 ? text[0] : text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    bool valid = code >= smallest[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? length : 0;
}

static void check_utf8(const uint8_t *data, size_t size) {
    for (size_t at = 0; at < size; at++)
        if (nd__utf8_length((const char *)data + at, size - at) !=
            plain_utf8_length(data + at, size - at))
            fuzz_die("nd__utf8_length answers wrongly at byte %zu", at);
}

static bool walk(nd_json *json, int depth);

static bool walk_members(nd_json *json, int depth, char end, bool named) {
    const char *name;
    if (nd__json_take(json, end))
        return true;
    do {
        if (named && (!nd__json_string(json, &name) || !nd__json_expect(json, ':', "no colon")))
            return false;
        if (!walk(json, depth + 1))
            return false;
    } while (nd__json_take(json, ','));
    return nd__json_expect(json, end, "no end");
}

static bool walk_string(nd_json *json) {
    const char *string;
    size_t before = json->position;
    if (!nd__json_string(json, &string))
        return false;
    size_t length = strlen(string);
    if (string < json->text || string + length >= json->text + json->position ||
        length >= json->position - before)
        fuzz_die("a decoded string is longer than its source");
    if (!nd__utf8_is_valid(string))
        fuzz_die("a decoded string is not UTF-8");
    return true;
}

static bool walk(nd_json *json, int depth) {
    int64_t number;
    if (depth > DEPTH_MAX)
        return false;
    if (nd__json_take(json, '{'))
        return walk_members(json, depth, '}', true);
    if (nd__json_take(json, '['))
        return walk_members(json, depth, ']', false);
    if (nd__json_peek(json) == '"')
        return walk_string(json);
    return nd__json_integer(json, &number) && number >= 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // Of exactly its size, so that a sanitizer sees the first byte beyond.
    char *text = malloc(size ? size : 1);
    if (!text)
        fuzz_die("no memory");
    if (size)
        memcpy(text, data, size);
    check_utf8(data, size);
    nd_json json = {.text = text, .size = size};
    bool whole = walk(&json, 0) && nd__json_at_end(&json);
    if (json.position > size)
        fuzz_die("the scanner left its text");
    if (whole && json.problem)
        fuzz_die("a text was accepted with a problem: %s", json.problem);
    if (json.problem && nd__json_at_end(&json))
        fuzz_die("a problem was forgotten");
    free(text);
    return 0;
}
