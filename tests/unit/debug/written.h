// What a function writes to a stream, as a string.
#ifndef ND_TESTS_UNIT_DEBUG_WRITTEN_H
#define ND_TESTS_UNIT_DEBUG_WRITTEN_H
#include "tests/testing.h"
#include <stdlib.h>

typedef struct written {
    char *text;
    size_t size;
    FILE *stream;
} written;

/// The stream to write to; written_end makes the text.
static inline FILE *written_stream(written *out) {
    out->stream = open_memstream(&out->text, &out->size);
    assert_non_null(out->stream);
    return out->stream;
}

static inline const char *written_text(written *out) {
    if (out->stream)
        fclose(out->stream);
    out->stream = NULL;
    return out->text;
}

static inline void written_free(written *out) {
    written_text(out);
    free(out->text);
}

static inline void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
}

static inline void assert_lacks(const char *text, const char *part) {
    if (strstr(text, part))
        fail_msg("\"%s\" in:\n%s", part, text);
}

static inline size_t occurrences(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}
#endif
