// Content of files as text: `1f 8b`, `"text"`, `00*7` for seven of them.
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const size_t fuzz_unit = 1;

typedef struct output {
    uint8_t *bytes;
    size_t size, capacity;
} output;

static void add(output *out, uint8_t byte, unsigned long times) {
    for (; times > 0; times--) {
        if (out->size == out->capacity) {
            out->capacity = out->capacity * 2 + 64;
            out->bytes = realloc(out->bytes, out->capacity);
            if (!out->bytes)
                fuzz_die("no memory");
        }
        out->bytes[out->size++] = byte;
    }
}

/// A byte, perhaps several times; returns where the text goes on.
static const char *read_number(output *out, const char *name, const char *text) {
    char *behind;
    unsigned long byte = strtoul(text, &behind, 16), times = 1;
    if (behind != text + 2)
        fuzz_die("%s: expected two hexadecimal digits at %.20s", name, text);
    if (*behind == '*')
        times = strtoul(behind + 1, &behind, 10);
    add(out, (uint8_t)byte, times);
    return behind;
}

uint8_t *fuzz_read_text(const char *name, const char *text, size_t *ret_size) {
    output out = {NULL, 0, 0};
    while (*text) {
        if (isspace((unsigned char)*text)) {
            text++;
        } else if (*text == '#') {
            text += strcspn(text, "\n");
        } else if (*text == '"') {
            for (text++; *text && *text != '"'; text++)
                add(&out, (uint8_t)*text, 1);
            text += *text == '"';
        } else {
            text = read_number(&out, name, text);
        }
    }
    *ret_size = out.size;
    return out.bytes;
}

void fuzz_write_text(FILE *stream, const uint8_t *data, size_t size) {
    size_t column = 0;
    for (size_t i = 0; i < size;) {
        size_t plain = 0;
        while (i + plain < size && isprint(data[i + plain]) && data[i + plain] != '"')
            plain++;
        if (plain > 3) {
            fprintf(stream, "\"%.*s\"\n", (int)plain, (const char *)data + i);
            i += plain;
            column = 0;
        } else {
            fprintf(stream, "%02x%c", data[i++], ++column % 16 ? ' ' : '\n');
        }
    }
    fputc('\n', stream);
}
