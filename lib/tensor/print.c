// Text of a tensor, as NumPy writes it: nested brackets, aligned numbers, long axes cut in the
// middle.
//
// Written in two walks over the elements that show: the first finds the width and the style all of
// them share, the second writes. Device memory is copied to the host first. The text is the same in
// every locale.
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/float_mode.h"
#include "lib/base/locale.h"
#include "lib/device/registry.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/node.h"
#include "lib/tensor/number.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define SUMMARISED_ABOVE 1000
#define EDGE_ITEMS 3
#define ELEMENT_TEXT 40
#define MAX_DECIMALS 4

/// Where text goes: a stream, or a buffer that keeps what fits and is always terminated.
typedef struct sink {
    FILE *stream;
    char *buffer;
    size_t size;
    int64_t length;
} sink;

typedef struct layout {
    bool summarised;
    bool exponent;            ///< numbers as 1.2345e+06
    int decimals;             ///< digits behind the point
    int width;                ///< of the widest element
    double largest, smallest; ///< magnitudes seen; smallest of those that are not zero
} layout;

typedef struct printer {
    const nd_tensor *x; ///< on the host
    layout layout;
    sink sink;
    void (*visit)(struct printer *printer, const char *element);
} printer;

static void put(sink *to, const char *text) {
    size_t length = strlen(text);
    if (to->stream) {
        fputs(text, to->stream);
    } else if (to->buffer && (size_t)to->length + 1 < to->size) {
        size_t room = to->size - (size_t)to->length - 1;
        size_t copied = length < room ? length : room;
        memcpy(to->buffer + to->length, text, copied);
        to->buffer[(size_t)to->length + copied] = '\0';
    }
    to->length += (int64_t)length;
}

static void put_spaces(sink *to, int count) {
    for (int i = 0; i < count; i++)
        put(to, " ");
}

// ------------------------------------------------------------------------------------------------
// elements

static double float_at(const printer *printer, const char *element) {
    return nd__number_as_f64(nd__number_at(printer->x->dtype, element));
}

static void element_text(const printer *printer, const char *element, char *text) {
    nd_dtype dtype = printer->x->dtype;
    if (dtype == ND_BOOL) {
        snprintf(text, ELEMENT_TEXT, "%s", *element ? "true" : "false");
        return;
    }
    if (!nd__dtype_is_float(dtype)) {
        nd__number_text(text, nd__number_at(dtype, element));
        return;
    }
    const layout *layout = &printer->layout;
    double value = float_at(printer, element);
    if (!isfinite(value))
        snprintf(text, ELEMENT_TEXT, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    else if (layout->exponent)
        snprintf(text, ELEMENT_TEXT, "%.*e", MAX_DECIMALS, value);
    else
        snprintf(text, ELEMENT_TEXT, "%.*f%s", layout->decimals, value,
                 layout->decimals ? "" : ".");
}

/// First walk, floats only: magnitudes, and how many decimals show everything.
static void measure_value(printer *printer, const char *element) {
    layout *layout = &printer->layout;
    double value = float_at(printer, element);
    double magnitude = fabs(value);
    if (!isfinite(value) || magnitude == 0.0)
        return;
    layout->largest = fmax(layout->largest, magnitude);
    layout->smallest = fmin(layout->smallest, magnitude);
    if (magnitude >= 1e8)
        return;
    char most[ELEMENT_TEXT];
    snprintf(most, sizeof most, "%.*f", MAX_DECIMALS, value);
    size_t last = strlen(most) - 1;
    int decimals = MAX_DECIMALS;
    while (decimals > layout->decimals && most[last] == '0') {
        last--;
        decimals--;
    }
    if (decimals > layout->decimals)
        layout->decimals = decimals;
}

static void measure_width(printer *printer, const char *element) {
    char text[ELEMENT_TEXT];
    element_text(printer, element, text);
    int width = (int)strlen(text);
    if (width > printer->layout.width)
        printer->layout.width = width;
}

static void write_element(printer *printer, const char *element) {
    char text[ELEMENT_TEXT];
    element_text(printer, element, text);
    put_spaces(&printer->sink, printer->layout.width - (int)strlen(text));
    put(&printer->sink, text);
}

// ------------------------------------------------------------------------------------------------
// walks

static bool is_cut(const printer *printer, int axis) {
    return printer->layout.summarised && printer->x->shape[axis] > 2 * EDGE_ITEMS;
}

/// Bytes from one item of an axis to the next; an axis of one item may have any stride.
static int64_t step_along(const nd_tensor *x, int axis) {
    return x->shape[axis] > 1 ? nd__tensor_strides(x)[axis] * nd__dtype_bytes[x->dtype] : 0;
}

static void measure(printer *printer, int axis, const char *at) {
    const nd_tensor *x = printer->x;
    if (axis == x->ndim) {
        printer->visit(printer, at);
        return;
    }
    int64_t step = step_along(x, axis);
    for (int64_t i = 0; i < x->shape[axis]; i++) {
        if (is_cut(printer, axis) && i == EDGE_ITEMS)
            i = x->shape[axis] - EDGE_ITEMS;
        measure(printer, axis + 1, at + i * step);
    }
}

/// What stands between two items of an axis: a comma, and new lines unless it is the last axis.
static void separate(printer *printer, int axis, int indent) {
    int below = printer->x->ndim - 1 - axis;
    put(&printer->sink, ",");
    for (int i = 0; i < below; i++)
        put(&printer->sink, "\n");
    put_spaces(&printer->sink, below > 0 ? indent + axis + 1 : 1);
}

static void write_axis(printer *printer, int axis, const char *at, int indent) {
    const nd_tensor *x = printer->x;
    if (axis == x->ndim) {
        write_element(printer, at);
        return;
    }
    int64_t step = step_along(x, axis);
    put(&printer->sink, "[");
    for (int64_t i = 0; i < x->shape[axis]; i++) {
        if (i > 0)
            separate(printer, axis, indent);
        if (is_cut(printer, axis) && i == EDGE_ITEMS) {
            put(&printer->sink, "...");
            separate(printer, axis, indent);
            i = x->shape[axis] - EDGE_ITEMS;
        }
        write_axis(printer, axis + 1, at + i * step, indent);
    }
    put(&printer->sink, "]");
}

static void choose_layout(printer *printer) {
    layout *layout = &printer->layout;
    layout->summarised = printer->x->numel > SUMMARISED_ABOVE;
    layout->smallest = INFINITY;
    if (nd__dtype_is_float(printer->x->dtype)) {
        printer->visit = measure_value;
        measure(printer, 0, printer->x->data);
        bool whole = layout->decimals == 0 && layout->smallest >= 1.0;
        layout->exponent = layout->largest >= 1e8 || (!whole && layout->smallest < 1e-4);
    }
    printer->visit = measure_width;
    measure(printer, 0, printer->x->data);
}

static nd_status write_tensor(const char *operation, const nd_tensor *x, sink *to) {
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status != ND_OK)
        return status;
    nd_grad_block unrecorded = nd__grad_block_begin(false);
    nd_tensor *on_host = nd__copy_to(operation, x, (nd_device){ND_CPU, 0});
    nd__grad_block_end(&unrecorded);
    if (!on_host)
        return nd_error_get_status();
    locale_t before = nd__locale_begin_plain();
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    printer printer = {.x = on_host, .sink = *to};
    put(&printer.sink, "tensor(");
    if (x->numel > 0) {
        choose_layout(&printer);
        write_axis(&printer, 0, on_host->data, (int)strlen("tensor("));
    } else {
        put(&printer.sink, "[]");
    }
    char shape[ND__SHAPE_TEXT];
    put(&printer.sink, ", shape=");
    put(&printer.sink, nd__shape_text(shape, x->ndim, x->shape));
    put(&printer.sink, ", dtype=");
    put(&printer.sink, nd_dtype_get_name(x->dtype));
    if (x->device.kind != ND_CPU) {
        put(&printer.sink, ", device=");
        put(&printer.sink, nd__registry_device_text(x->device));
    }
    put(&printer.sink, ")");
    nd__float_mode_end(&mode);
    nd__locale_end(before);
    nd_object_release(on_host);
    *to = printer.sink;
    return ND_OK;
}

nd_status nd_print(const nd_tensor *x, FILE *stream) {
    ND__UNCANCELLED;
    if (!stream)
        return nd__error_null("print", "stream");
    if (fwide(stream, 0) > 0)
        return nd__error(ND_ERROR_IO, "print: the stream is one of wide characters");
    sink to = {.stream = stream};
    nd_status status = write_tensor("print", x, &to);
    if (status == ND_OK && (fputc('\n', stream) == EOF || ferror(stream)))
        return nd__error(ND_ERROR_IO, "print: the stream does not take the text");
    return status;
}

int64_t nd_format(const nd_tensor *x, char *buffer, size_t size) {
    if (!buffer && size > 0) {
        nd__error_null("format", "buffer");
        return -1;
    }
    if (size > 0)
        buffer[0] = '\0';
    sink to = {.buffer = buffer, .size = size};
    return write_tensor("format", x, &to) == ND_OK ? to.length : -1;
}
