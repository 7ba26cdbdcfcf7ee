// Reading texts of numbers.
//
// The text is looked over twice: once for its rows and columns, then for its numbers, which go
// where they belong at once.
//
// Invariant: a field lies within its line and is not empty where it is read as a number; a number is
// read as in the C locale and ends where its field does.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/float_mode.h"
#include "lib/base/utf8.h"
#include "lib/io/csv.h"
#include "lib/io/elements.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/tensor.h"
#include <nd/io.h>

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char operation[] = "load_csv";

// A text on the way.
typedef struct nd_csv_text {
    const char *path;
    char *text; ///< owned, terminated
    const char *end;
    const char *at; ///< the next line
    uint64_t line;  ///< number of the line that was taken last, from 1
    int64_t rows;
    int64_t columns; ///< of each row; -1 before the first
    nd_csv_options options;
    nd_dtype dtype;
    locale_t locale;
} nd_csv_text;

// A piece of the text.
typedef struct nd_csv_field {
    const char *begin, *end;
} nd_csv_field;

static nd_status check_dtype(nd_dtype dtype);
static nd_status read_text(nd_csv_text *csv);
static void go_to_start(nd_csv_text *csv);
static bool take_row(nd_csv_text *csv, nd_csv_field *ret_row);
static bool take_field(const nd_csv_text *csv, nd_csv_field *row, nd_csv_field *ret_field);
static nd_status count_fields(nd_csv_text *csv);
static nd_status read_numbers(nd_csv_text *csv, nd_tensor *tensor);
static nd_status read_number(const nd_csv_text *csv, nd_csv_field field, int64_t column,
                             void *ret_element);

nd_tensor *nd_load_csv(const char *path, nd_dtype dtype, const nd_csv_options *options) {
    ND__UNCANCELLED;
    nd_csv_text csv = {.path = path, .dtype = dtype};
    if (nd__csv_options_read(operation, options, &csv.options) != ND_OK ||
        check_dtype(dtype) != ND_OK)
        return NULL;
    csv.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    nd_status status = ND_OK;
    if (!csv.locale)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a locale", operation);
    if (status == ND_OK)
        status = read_text(&csv);
    if (status == ND_OK)
        status = count_fields(&csv);
    const int64_t shape[] = {csv.rows, csv.columns};
    nd_tensor *tensor = status == ND_OK ? nd__elements_new(operation, dtype, 2, shape) : NULL;
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    if (tensor && read_numbers(&csv, tensor) != ND_OK) {
        nd_release(tensor);
        tensor = NULL;
    }
    nd__float_mode_end(&mode);
    nd__alloc_free(csv.text);
    if (csv.locale)
        freelocale(csv.locale);
    return tensor;
}

static nd_status check_dtype(nd_dtype dtype) {
    bool known = (unsigned)dtype < ND_DTYPE_COUNT;
    if (known && (nd__dtype_is_integer(dtype) || dtype == ND_F32 || dtype == ND_F64))
        return ND_OK;
    return nd__error(ND_ERROR_DTYPE, "%s: numbers are read as f32, f64 or integers, not as %s",
                     operation, known ? nd_dtype_get_name(dtype) : "an unknown dtype");
}

static nd_status read_text(nd_csv_text *csv) {
    nd_file file;
    nd_status status = nd__file_open(&file, operation, csv->path);
    if (status != ND_OK)
        return status;
    size_t bytes = (size_t)file.size;
    csv->text = nd__pressure_alloc(bytes + 1);
    if (!csv->text)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the text of '%s', %zu bytes",
                           operation, csv->path, bytes);
    else
        status = nd__file_read(&file, csv->text, bytes);
    nd__file_close(&file);
    if (status != ND_OK)
        return status;
    csv->text[bytes] = '\0';
    csv->end = csv->text + bytes;
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// lines and fields

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/// The field without the blanks around it. A tab that separates fields is never in one.
static nd_csv_field trimmed(nd_csv_field field) {
    while (field.begin < field.end && is_blank(*field.begin))
        field.begin++;
    while (field.begin < field.end && is_blank(field.end[-1]))
        field.end--;
    return field;
}

static nd_csv_field take_line(nd_csv_text *csv) {
    const char *end = memchr(csv->at, '\n', (size_t)(csv->end - csv->at));
    nd_csv_field line = {csv->at, end ? end : csv->end};
    csv->at = end ? end + 1 : csv->end;
    csv->line++;
    if (line.begin < line.end && line.end[-1] == '\r')
        line.end--;
    return line;
}

/// Behind a byte order mark and the lines to be left out.
static void go_to_start(nd_csv_text *csv) {
    csv->at = csv->text;
    csv->line = 0;
    if (csv->end - csv->at >= 3 && memcmp(csv->at, "\xef\xbb\xbf", 3) == 0)
        csv->at += 3;
    for (uint64_t i = 0; i < csv->options.skip && csv->at < csv->end; i++)
        take_line(csv);
}

/// Whether a line has no number and no separator. Spaces are none here: around a row they separate
/// nothing.
static bool is_blank_line(const nd_csv_text *csv, nd_csv_field line) {
    const nd_csv_field content = trimmed(line);
    return content.begin == content.end &&
           (csv->options.separator != '\t' ||
            !memchr(line.begin, '\t', (size_t)(line.end - line.begin)));
}

/// The next line that is not blank. false at the end.
static bool take_row(nd_csv_text *csv, nd_csv_field *ret_row) {
    while (csv->at < csv->end) {
        nd_csv_field line = take_line(csv);
        if (is_blank_line(csv, line))
            continue;
        *ret_row = csv->options.separator == ' ' ? trimmed(line) : line;
        return true;
    }
    return false;
}

/// Takes a field off a row. The end of a row is told by begin NULL, since a separator at its end
/// has an empty field behind it.
static bool take_field(const nd_csv_text *csv, nd_csv_field *row, nd_csv_field *ret_field) {
    if (!row->begin)
        return false;
    const char *at = row->begin;
    bool blanks = csv->options.separator == ' ';
    while (at < row->end && (blanks ? !is_blank(*at) : *at != csv->options.separator))
        at++;
    *ret_field = trimmed((nd_csv_field){row->begin, at});
    if (at == row->end) {
        row->begin = NULL;
        return true;
    }
    for (at++; blanks && is_blank(*at);)
        at++;
    row->begin = at;
    return true;
}

static nd_status count_fields(nd_csv_text *csv) {
    nd_csv_field row, field;
    csv->columns = -1;
    for (go_to_start(csv); take_row(csv, &row); csv->rows++) {
        int64_t columns = 0;
        while (take_field(csv, &row, &field))
            columns++;
        if (csv->columns < 0)
            csv->columns = columns;
        if (columns != csv->columns)
            return nd__error(ND_ERROR_FORMAT,
                             "%s: line %llu of '%s' has %lld field%s, those before have %lld",
                             operation, (unsigned long long)csv->line, csv->path,
                             (long long)columns, columns == 1 ? "" : "s", (long long)csv->columns);
    }
    csv->columns = csv->columns < 0 ? 0 : csv->columns;
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// numbers

static nd_status read_numbers(nd_csv_text *csv, nd_tensor *tensor) {
    char *element = tensor->data;
    nd_csv_field row, field;
    nd_status status = ND_OK;
    for (go_to_start(csv); status == ND_OK && take_row(csv, &row);)
        for (int64_t column = 1; status == ND_OK && take_field(csv, &row, &field); column++) {
            status = read_number(csv, field, column, element);
            element += nd__dtype_bytes[csv->dtype];
        }
    return status;
}

static nd_status field_error(const nd_csv_text *csv, nd_csv_field field, int64_t column,
                             const char *problem) {
    enum { SHOWN = 40 };
    size_t length = (size_t)(field.end - field.begin);
    char shown[4 * SHOWN + 1];
    nd__utf8_print(shown, sizeof shown, field.begin, length < SHOWN ? length : SHOWN);
    return nd__error(ND_ERROR_FORMAT, "%s: line %llu, column %lld of '%s': '%s%s' %s", operation,
                     (unsigned long long)csv->line, (long long)column, csv->path, shown,
                     length > SHOWN ? "..." : "", problem);
}

/// Whether a text is a word in small letters, or in capitals, whatever the locale.
static bool is_word(const char *at, const char *end, const char *word) {
    while (at < end && *word && (*at | 0x20) == *word) {
        at++;
        word++;
    }
    return at == end && !*word;
}

/// Whether a field has only what decimal numbers are made of, or says that it is none or infinite.
static bool is_decimal(nd_csv_field field) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    const char *at = field.begin + (*field.begin == '+' || *field.begin == '-');
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(at, field.end, words[i]))
            return true;
    for (; at < field.end; at++)
        if (!isdigit((unsigned char)*at) && (!*at || !strchr("+-.eE", *at)))
            return false;
    return true;
}

static nd_status read_float(const nd_csv_text *csv, nd_csv_field field, int64_t column,
                            void *ret_element) {
    char *end = NULL;
    bool wide = csv->dtype == ND_F64;
    double number = (double)NAN;
    float narrow = NAN;
    if (field.begin == field.end) {
        if (!csv->options.missing)
            return field_error(csv, field, column, "stands where a number is missing");
    } else {
        if (!is_decimal(field))
            return field_error(csv, field, column, "is no number");
        if (wide)
            number = strtod_l(field.begin, &end, csv->locale);
        else
            narrow = strtof_l(field.begin, &end, csv->locale);
        if (end != field.end)
            return field_error(csv, field, column, "is no number");
    }
    memcpy(ret_element, wide ? (const void *)&number : &narrow, nd__dtype_bytes[csv->dtype]);
    return ND_OK;
}

static nd_status read_integer(const nd_csv_text *csv, nd_csv_field field, int64_t column,
                              void *ret_element) {
    if (field.begin == field.end)
        return field_error(csv, field, column, "stands where a number is missing");
    bool negative = *field.begin == '-', fits = true;
    const char *at = field.begin + (negative || *field.begin == '+');
    if (at == field.end)
        return field_error(csv, field, column, "is no integer");
    uint64_t value = 0;
    for (; at < field.end; at++) {
        if (!isdigit((unsigned char)*at))
            return field_error(csv, field, column, "is no integer");
        fits &= !__builtin_mul_overflow(value, (uint64_t)10, &value);
        fits &= !__builtin_add_overflow(value, (uint64_t)(*at - '0'), &value);
    }
    unsigned bits = 8 * nd__dtype_bytes[csv->dtype];
    bool is_signed = nd__dtype_kinds[csv->dtype] == ND_KIND_SIGNED;
    uint64_t most = UINT64_MAX >> (64 - bits + is_signed);
    if (!fits || value > (negative ? (is_signed ? most + 1 : 0) : most))
        return field_error(csv, field, column, "does not fit the dtype");
    value = negative ? -value : value;
    memcpy(ret_element, &value, bits / 8);
    return ND_OK;
}

static nd_status read_number(const nd_csv_text *csv, nd_csv_field field, int64_t column,
                             void *ret_element) {
    return nd__dtype_is_float(csv->dtype) ? read_float(csv, field, column, ret_element)
                                          : read_integer(csv, field, column, ret_element);
}
