// JSON output for the benchmarks. Keeps no memory: a level of nesting costs one flag.
#include "bench/support/json.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

static void write_escaped(FILE *stream, const char *text);
static void begin_value(bench_json *json, const char *key);
static void open_level(bench_json *json, const char *key, char bracket);
static void close_level(bench_json *json, char bracket);

bench_json bench_json_on(FILE *stream) {
    return (bench_json){.stream = stream};
}

void bench_json_begin_object(bench_json *json, const char *key) {
    open_level(json, key, '{');
}

void bench_json_end_object(bench_json *json) {
    close_level(json, '}');
}

void bench_json_begin_array(bench_json *json, const char *key) {
    open_level(json, key, '[');
}

void bench_json_end_array(bench_json *json) {
    close_level(json, ']');
}

void bench_json_string(bench_json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value)
        write_escaped(json->stream, value);
    else
        fputs("null", json->stream);
}

void bench_json_number(bench_json *json, const char *key, double value) {
    begin_value(json, key);
    if (isfinite(value))
        fprintf(json->stream, "%.9g", value);
    else
        fputs("null", json->stream);
}

void bench_json_integer(bench_json *json, const char *key, uint64_t value) {
    begin_value(json, key);
    fprintf(json->stream, "%" PRIu64, value);
}

void bench_json_bool(bench_json *json, const char *key, bool value) {
    begin_value(json, key);
    fputs(value ? "true" : "false", json->stream);
}

void bench_json_metric(bench_json *json, double value, const char *format, ...) {
    char text[128], name[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t length = 0;
    for (const char *c = text; *c; c++)
        if (isalnum((unsigned char)*c))
            name[length++] = *c;
        else if (length > 0 && name[length - 1] != '_')
            name[length++] = '_';
    name[length] = '\0';
    if (isfinite(value))
        bench_json_number(json, name, value);
}

bool bench_json_close(bench_json *json) {
    assert(json->depth == 0);
    fputc('\n', json->stream);
    bool whole = ferror(json->stream) == 0;
    return fclose(json->stream) == 0 && whole;
}

static void open_level(bench_json *json, const char *key, char bracket) {
    begin_value(json, key);
    fputc(bracket, json->stream);
    json->depth++;
    assert(json->depth < BENCH_JSON_DEPTH);
    json->filled[json->depth] = false;
}

static void close_level(bench_json *json, char bracket) {
    assert(json->depth > 0);
    bool filled = json->filled[json->depth];
    json->depth--;
    if (filled)
        fprintf(json->stream, "\n%*s", json->depth * 2, "");
    fputc(bracket, json->stream);
}

/// Comma, new line and key: everything before a value.
static void begin_value(bench_json *json, const char *key) {
    if (json->depth == 0)
        return;
    if (json->filled[json->depth])
        fputc(',', json->stream);
    json->filled[json->depth] = true;
    fprintf(json->stream, "\n%*s", json->depth * 2, "");
    if (key) {
        write_escaped(json->stream, key);
        fputs(": ", json->stream);
    }
}

static void write_escaped(FILE *stream, const char *text) {
    fputc('"', stream);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(stream, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(stream, "\\u%04x", *c);
        else
            fputc(*c, stream);
    }
    fputc('"', stream);
}
