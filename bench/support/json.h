// Writes one JSON document to a stream, value by value.
//
// Invariant: every begin is closed by its end, in order; commas and indentation follow from that.
// Inside an object every value has a key, inside an array the key is NULL.
#ifndef ND_BENCH_JSON_H
#define ND_BENCH_JSON_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { BENCH_JSON_DEPTH = 16 };

typedef struct bench_json {
    FILE *stream;
    int depth;
    bool filled[BENCH_JSON_DEPTH]; ///< whether the open object or array of that depth has a value
} bench_json;

/// A writer that has written nothing yet.
bench_json bench_json_on(FILE *stream);
void bench_json_begin_object(bench_json *json, const char *key);
void bench_json_end_object(bench_json *json);
void bench_json_begin_array(bench_json *json, const char *key);
void bench_json_end_array(bench_json *json);
/// NULL is written as null.
void bench_json_string(bench_json *json, const char *key, const char *value);
/// What JSON cannot say (NaN, infinities) is written as null.
void bench_json_number(bench_json *json, const char *key, double value);
void bench_json_integer(bench_json *json, const char *key, uint64_t value);
void bench_json_bool(bench_json *json, const char *key, bool value);
/// A number of the object "metrics", under a name of letters, digits and underscores: everything else in
/// the text that the format makes becomes one. What JSON cannot say is left out.
void bench_json_metric(bench_json *json, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/// A number of the object "metrics", under a name of letters, digits and underscores: everything else in
/// the text that the format makes becomes one. What JSON cannot say is left out.
void bench_json_metric(bench_json *json, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/// Ends the document with a newline and closes the stream. False when anything could not be
/// written.
bool bench_json_close(bench_json *json);

#endif
