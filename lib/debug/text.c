// Text in memory, and the quoting of two formats.
#include "lib/debug/text.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
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
                           text->size, nd__error_reason(errno));
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

void nd__text_write_json(FILE *stream, const char *text) {
    fputc('"', stream);
    const char *at = text, *end = text + strlen(text);
    while (at < end) {
        size_t length = nd__utf8_length(at, (size_t)(end - at));
        if (length == 0) {
            fputs("\\ufffd", stream);
            at++;
        } else if (length == 1 && (*at == '"' || *at == '\\')) {
            fputc('\\', stream);
            fputc(*at++, stream);
        } else if (length == 1 && (unsigned char)*at < 0x20) {
            fprintf(stream, "\\u%04x", (unsigned)*at++);
        } else {
            fwrite(at, 1, length, stream);
            at += length;
        }
    }
    fputc('"', stream);
}

void nd__text_write_dot(FILE *stream, const char *text) {
    const char *end = text + strlen(text);
    while (text < end) {
        size_t length = nd__utf8_length(text, (size_t)(end - text));
        if (length == 0) {
            fputs("\xef\xbf\xbd", stream); // U+FFFD
            text++;
            continue;
        }
        if (*text == '"' || *text == '\\')
            fputc('\\', stream);
        if ((unsigned char)*text < 0x20)
            fputc(' ', stream);
        else
            fwrite(text, 1, length, stream);
        text += length;
    }
}

const char *nd__text_plain(char ret_text[ND__TEXT_PLAIN], const char *name) {
    nd__utf8_print(ret_text, ND__TEXT_PLAIN, name, strlen(name));
    return ret_text;
}
