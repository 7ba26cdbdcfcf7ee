// UTF-8: what it is, and how bytes that may be none are shown.
#include "lib/base/utf8.h"
#include <string.h>

size_t nd__utf8_length(const char *text, size_t size) {
    const unsigned char *byte = (const unsigned char *)text;
    if (size == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    size_t length = byte[0] >= 0xf0 ? 4 : byte[0] >= 0xe0 ? 3 : 2;
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || size < length)
        return 0;
    // The second byte's range shuts out overlong forms, surrogates and code points above U+10FFFF.
    unsigned char low = byte[0] == 0xe0 ? 0xa0 : byte[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = byte[0] == 0xed ? 0x9f : byte[0] == 0xf4 ? 0x8f : 0xbf;
    if (byte[1] < low || byte[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (byte[i] < 0x80 || byte[i] > 0xbf)
            return 0;
    return length;
}

bool nd__utf8_is_valid(const char *text) {
    size_t size = strlen(text);
    while (size > 0) {
        size_t length = nd__utf8_length(text, size);
        if (length == 0)
            return false;
        text += length;
        size -= length;
    }
    return true;
}

void nd__utf8_copy(char *ret_text, size_t room, const char *text) {
    size_t length = strnlen(text, room);
    if (length == room) {
        // At most three bytes belong to a character whose end is beyond; more are no UTF-8.
        const size_t most = room - 1;
        length = most;
        while (length > 0 && most - length < 3 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
        if (((unsigned char)text[length] & 0xc0) == 0x80)
            length = most;
    }
    memcpy(ret_text, text, length);
    ret_text[length] = '\0';
}

/// Length of the printable character that `text` begins with; 0 when it is none.
static size_t printable_length(const char *text, size_t size) {
    size_t length = nd__utf8_length(text, size);
    const unsigned char *byte = (const unsigned char *)text;
    if (length == 1)
        return byte[0] >= 0x20 && byte[0] < 0x7f;
    if (length == 2)
        return byte[0] == 0xc2 && byte[1] < 0xa0 ? 0 : 2; // C1 controls
    if (length == 4)
        return 4;
    if (length == 0)
        return 0;
    unsigned code = (unsigned)(byte[0] & 0xf) << 12 | (unsigned)(byte[1] & 0x3f) << 6 |
                    (unsigned)(byte[2] & 0x3f);
    bool changes_others = (code >= 0x200b && code <= 0x200f) ||
                          (code >= 0x2028 && code <= 0x202e) ||
                          (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
    return changes_others ? 0 : 3;
}

void nd__utf8_print(char *ret_text, size_t room, const char *text, size_t size) {
    static const char digits[] = "0123456789abcdef";
    size_t at = 0, length = 0;
    for (size_t i = 0; i < size; i += length) {
        length = printable_length(text + i, size - i);
        bool is_printable = length > 0;
        if (!is_printable)
            length = nd__utf8_length(text + i, size - i);
        length = length ? length : 1;
        if ((is_printable ? length : 4 * length) >= room - at)
            break;
        for (size_t j = i; j < i + length; j++) {
            unsigned char byte = (unsigned char)text[j];
            if (is_printable) {
                ret_text[at++] = text[j];
                continue;
            }
            ret_text[at++] = '\\';
            ret_text[at++] = 'x';
            ret_text[at++] = digits[byte >> 4];
            ret_text[at++] = digits[byte & 15];
        }
    }
    ret_text[at] = '\0';
}
