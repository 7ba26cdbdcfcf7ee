// Text in memory, and the quoting of two formats.
#include "lib/debug/text.h"
#include "lib/base/error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool nd__text_begin(nd__text *text) {
    *text = (nd__text){0};
    text->stream = open_memstream(&text->data, &text->size);
    return text->stream != NULL;
}

nd_status nd__text_end(nd__text *text, const char *operation, FILE *stream) {
    if (!text->stream)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the text", operation);
    bool cut = ferror(text->stream) != 0;
    cut |= fclose(text->stream) != 0;
    nd_status status = ND_OK;
    errno = 0;
    if (text->data && fwrite(text->data, 1, text->size, stream) != text->size)
        status = nd__error(ND_ERROR_IO, "%s: %zu bytes could not be written: %s", operation,
                           text->size, strerror(errno));
    else if (cut || !text->data)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the text", operation);
    free(text->data);
    *text = (nd__text){0};
    return status;
}

void nd__text_drop(nd__text *text) {
    if (text->stream)
        fclose(text->stream);
    free(text->data);
    *text = (nd__text){0};
}

/// Length of the UTF-8 sequence that begins here; 0 when it is none.
static size_t sequence_length(const unsigned char *at) {
    uint32_t lead = at[0];
    size_t length = lead < 0x80                   ? 1
                    : lead >= 0xC2 && lead < 0xE0 ? 2
                    : lead >= 0xE0 && lead < 0xF0 ? 3
                    : lead >= 0xF0 && lead < 0xF5 ? 4
                                                  : 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    // Longer than needed, a surrogate, or beyond the last code point.
    if ((lead == 0xE0 && at[1] < 0xA0) || (lead == 0xED && at[1] > 0x9F) ||
        (lead == 0xF0 && at[1] < 0x90) || (lead == 0xF4 && at[1] > 0x8F))
        return 0;
    return length;
}

void nd__text_write_json(FILE *stream, const char *text) {
    fputc('"', stream);
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        size_t length = sequence_length(at);
        if (length == 0) {
            fputs("\\ufffd", stream);
            at++;
        } else if (length == 1 && (*at == '"' || *at == '\\')) {
            fputc('\\', stream);
            fputc(*at++, stream);
        } else if (length == 1 && *at < 0x20) {
            fprintf(stream, "\\u%04x", *at++);
        } else {
            fwrite(at, 1, length, stream);
            at += length;
        }
    }
    fputc('"', stream);
}

void nd__text_write_dot(FILE *stream, const char *text) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', stream);
        fputc((unsigned char)*text < 0x20 ? ' ' : *text, stream);
    }
}
