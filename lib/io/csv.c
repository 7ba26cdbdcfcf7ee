// Writing texts of numbers, and the options of both ways.
//
// Invariant: a float is written with the fewest of a few numbers of digits that read back as the
// same float, in the C locale.
#include "lib/io/csv.h"
#include "kernels/half.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/float_mode.h"
#include "lib/base/locale.h"
#include "lib/base/versioned.h"
#include "lib/io/elements.h"
#include "lib/tensor/tensor.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// More than any number has.
#define NUMBER_BYTES 40

static nd_status write_rows(nd_file_writer *writer, const nd_tensor *tensor,
                            const nd_elements *elements, char separator);
static size_t compose_number(char *text, nd_dtype dtype, const unsigned char *element);

nd_status nd_save_csv(const char *path, const nd_tensor *tensor, const nd_csv_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "save_csv";
    nd_csv_options chosen;
    nd_status status = nd__csv_options_read(operation, options, &chosen);
    if (status != ND_OK)
        return status;
    if (!path)
        return nd__error_null(operation, "path");
    status = nd__tensor_check_operand(operation, "the tensor", tensor);
    if (status != ND_OK)
        return status;
    if (tensor->ndim != 1 && tensor->ndim != 2)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: a tensor of %d dimensions; a text has rows, or rows and columns",
                         operation, tensor->ndim);
    nd_elements elements;
    status = nd__elements_get(&elements, operation, tensor);
    if (status != ND_OK)
        return status;
    nd_file_writer writer;
    status = nd__file_create(&writer, operation, path);
    if (status == ND_OK) {
        locale_t before = nd__locale_begin_plain();
        nd__float_mode mode;
        nd__float_mode_begin(&mode);
        status = before
                     ? write_rows(&writer, tensor, &elements, chosen.separator)
                     : nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a locale", operation);
        nd__float_mode_end(&mode);
        nd__locale_end(before);
        if (status == ND_OK)
            status = nd__file_commit(&writer);
        nd__file_abandon(&writer);
    }
    nd__elements_drop(&elements);
    return status;
}

nd_status nd__csv_options_read(const char *operation, const nd_csv_options *given,
                               nd_csv_options *ret_options) {
    nd_csv_options chosen = ND_CSV_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(operation, "ND_CSV_OPTIONS_INIT", given, &chosen, sizeof chosen);
    if (status != ND_OK)
        return status;
    chosen.separator = chosen.separator ? chosen.separator : ',';
    unsigned char separator = (unsigned char)chosen.separator;
    bool fine = separator == ' ' || separator == '\t' ||
                (separator > ' ' && separator < 0x7f && !isalnum(separator) &&
                 !strchr("+-.\"'()", separator));
    if (!fine)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the character %d cannot separate numbers",
                         operation, separator);
    *ret_options = chosen;
    return ND_OK;
}

static nd_status write_rows(nd_file_writer *writer, const nd_tensor *tensor,
                            const nd_elements *elements, char separator) {
    char text[1 << 14];
    size_t size = 0;
    const unsigned char *element = elements->data;
    const int64_t columns = tensor->ndim == 2 ? tensor->shape[1] : 1;
    for (int64_t i = 0; i < tensor->numel; i++) {
        size += compose_number(text + size, tensor->dtype, element);
        text[size++] = (i + 1) % columns ? separator : '\n';
        element += nd__dtype_bytes[tensor->dtype];
        if (size + NUMBER_BYTES + 1 < sizeof text)
            continue;
        nd_status status = nd__file_write(writer, text, size);
        if (status != ND_OK)
            return status;
        size = 0;
    }
    return nd__file_write(writer, text, size);
}

static size_t compose_double(char *text, double number) {
    int length = 0;
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, NUMBER_BYTES, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    return (size_t)length;
}

static size_t compose_float(char *text, float number) {
    int length = 0;
    for (int digits = 6; digits <= 9; digits++) {
        length = snprintf(text, NUMBER_BYTES, "%.*g", digits, (double)number);
        if (strtof(text, NULL) == number)
            break;
    }
    return (size_t)length;
}

static size_t compose_number(char *text, nd_dtype dtype, const unsigned char *element) {
    double wide;
    float narrow;
    size_t bytes = nd__dtype_bytes[dtype];
    if (nd__dtype_is_float(dtype)) {
        if (dtype == ND_F64)
            memcpy(&wide, element, bytes);
        else if (dtype == ND_F32)
            memcpy(&narrow, element, bytes);
        else
            narrow = dtype == ND_F16 ? nd__f16_to_f32(nd__elements_u16(element))
                                     : nd__bf16_to_f32(nd__elements_u16(element));
        // A NaN has no sign worth writing.
        if (dtype == ND_F64 ? isnan(wide) : isnan(narrow))
            return (size_t)snprintf(text, NUMBER_BYTES, "nan");
        return dtype == ND_F64 ? compose_double(text, wide) : compose_float(text, narrow);
    }
    uint64_t bits = 0;
    memcpy(&bits, element, bytes);
    if (nd__dtype_kinds[dtype] != ND_KIND_SIGNED)
        return (size_t)snprintf(text, NUMBER_BYTES, "%llu", (unsigned long long)bits);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return (size_t)snprintf(text, NUMBER_BYTES, "%lld",
                            (long long)((int64_t)(bits << unused) >> unused));
}
