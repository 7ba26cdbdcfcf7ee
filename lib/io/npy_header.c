// Headers of .npy files, read strictly and written as NumPy writes them.
//
// Invariant: the scanner never passes the end of the text, and takes no memory but that for the
// text. It must not evaluate anything: what is no literal of the three keys is refused.
#include "lib/io/npy_header.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/io/elements.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/shape.h"

#include <stdio.h>
#include <string.h>

/// What version 1.0 can say. Later ones allow more, for dtypes of many fields.
#define HEADER_BYTES_MAX 65535u

static const char magic[6] = "\x93NUMPY";

// Codes of the format by our dtype; NULL: the format has none.
static const char *const dtype_codes[ND_DTYPE_COUNT] = {
    [ND_BOOL] = "b1", [ND_U8] = "u1",  [ND_I32] = "i4", [ND_I64] = "i8",
    [ND_F32] = "f4",  [ND_F64] = "f8", [ND_I8] = "i1",  [ND_I16] = "i2",
    [ND_U16] = "u2",  [ND_U32] = "u4", [ND_U64] = "u8", [ND_F16] = "f2",
};

// What else NumPy calls what a code stands for: letters, which may follow the order of bytes as a code
// does, and names, which may not. Those whose size is the system's are meant as 64-bit Linux has them.
static const struct {
    const char *code, *letters;
    const char *names[6];
} aliases[] = {
    {"b1", "?", {"bool", "bool_"}},
    {"i1", "b", {"int8", "byte"}},
    {"u1", "B", {"uint8", "ubyte"}},
    {"i2", "h", {"int16", "short"}},
    {"u2", "H", {"uint16", "ushort"}},
    {"i4", "i", {"int32", "intc"}},
    {"u4", "I", {"uint32", "uintc"}},
    {"i8", "lqpn", {"int64", "int", "int_", "intp", "long", "longlong"}},
    {"u8", "LQPN", {"uint64", "uint", "uintp", "ulong", "ulonglong"}},
    {"f2", "e", {"float16", "half"}},
    {"f4", "f", {"float32", "single"}},
    {"f8", "d", {"float64", "double", "float"}},
    {"f16", "g", {"float128", "longdouble"}},
    {"c8", "F", {"complex64", "csingle"}},
    {"c16", "D", {"complex128", "cdouble", "complex"}},
    {"c32", "G", {"complex256", "clongdouble"}},
    {"O", "", {"object", "object_"}},
    {"S", "c", {"bytes", "bytes_"}},
    {"U", "", {"str", "str_", "unicode"}},
    {"M8", "", {"datetime64"}},
    {"m8", "", {"timedelta64"}},
    {"V", "", {"void"}},
};

// The text of a header as it is read. The first problem sticks.
typedef struct nd_npy_text {
    const nd_content *content;
    char *text;
    size_t size;
    size_t position;
    const char *problem;
} nd_npy_text;

static nd_status read_text(nd_content *content, nd_npy_text *ret_text);
static nd_status parse(nd_npy_text *text, nd_npy_header *header);
static nd_status parse_value(nd_npy_text *text, int key, nd_npy_header *header);
static nd_status add_axis_of_pairs(const nd_npy_text *text, nd_npy_header *header);
static nd_status parse_shape(nd_npy_text *text, nd_npy_header *header);
static nd_status set_dtype(const nd_npy_text *text, const char *descr, nd_npy_header *header);
static nd_status check_size(const nd_content *content, nd_npy_header *header);

nd_status nd__npy_header_read(nd_content *content, nd_npy_header *ret_header) {
    nd_npy_text text = {.content = content};
    nd_npy_header header = {.ndim = 0};
    nd_status status = read_text(content, &text);
    if (status == ND_OK)
        status = parse(&text, &header);
    if (status == ND_OK)
        status = check_size(content, &header);
    nd__alloc_free(text.text);
    if (status == ND_OK)
        *ret_header = header;
    return status;
}

size_t nd__npy_header_compose(const char *operation, const char *path, const nd_tensor *tensor,
                              char ret_text[ND__NPY_HEADER_BYTES]) {
    enum { BEGIN = 10, GROWTH = 21, ALIGNMENT = 64 };
    nd_dtype dtype = nd_get_dtype(tensor);
    int ndim = nd_get_ndim(tensor);
    if (!dtype_codes[dtype]) {
        nd__error(ND_ERROR_DTYPE,
                  "%s: a tensor of %s cannot be written to '%s': the format has no such dtype",
                  operation, nd_dtype_get_name(dtype), path);
        return 0;
    }
    char *text = ret_text + BEGIN;
    size_t room = ND__NPY_HEADER_BYTES - BEGIN;
    size_t size =
        (size_t)snprintf(text, room, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                         nd__dtype_bytes[dtype] == 1 ? '|' : '<', dtype_codes[dtype]);
    size_t growth = 0;
    for (int axis = 0; axis < ndim; axis++) {
        int digits = snprintf(text + size, room - size, axis ? ", %lld" : "%lld",
                              (long long)nd_get_size(tensor, axis));
        size += (size_t)digits;
        // NumPy leaves room for the first size to become any number of 64 bits and three more.
        growth = axis ? growth : (size_t)(GROWTH - digits);
    }
    size += (size_t)snprintf(text + size, room - size, ndim == 1 ? ",), }" : "), }");
    memset(text + size, ' ', room - size);
    size += growth + 1; // the line feed at the end
    size += ALIGNMENT - (BEGIN + size) % ALIGNMENT;
    text[size - 1] = '\n';
    uint16_t length = (uint16_t)size;
    memcpy(ret_text, magic, sizeof magic);
    memcpy(ret_text + 6, "\x01\x00", 2);
    memcpy(ret_text + 8, &length, sizeof length);
    return BEGIN + size;
}

// ------------------------------------------------------------------------------------------------
// the text

static nd_status format_error(const nd_npy_text *text) {
    char name[ND__CONTENT_TEXT];
    return nd__error(ND_ERROR_FORMAT, "%s: the header of %s is malformed at byte %zu: %s",
                     text->content->file->operation, nd__content_text(text->content, name),
                     text->position, text->problem ? text->problem : "unexpected text");
}

/// Magic, version, length and text; the length is checked against what the content has.
static nd_status read_text(nd_content *content, nd_npy_text *ret_text) {
    const char *operation = content->file->operation;
    char name[ND__CONTENT_TEXT];
    unsigned char start[12];
    size_t known = content->bytes < 10 ? (size_t)content->bytes : 10;
    nd_status status = nd__content_read(content, start, known);
    if (status != ND_OK)
        return status;
    if (known < 10 || memcmp(start, magic, sizeof magic) != 0)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: %s is no .npy file: it does not begin with \\x93NUMPY, a version and "
                         "a length",
                         operation, nd__content_text(content, name));
    if (start[6] < 1 || start[6] > 3 || start[7] != 0)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: %s is of version %d.%d, ndarc reads 1.0 to 3.0",
                         operation, nd__content_text(content, name), start[6], start[7]);
    uint32_t length = nd__elements_u16(start + 8);
    if (start[6] > 1) {
        status = nd__content_read(content, start + 10, 2);
        if (status != ND_OK)
            return status;
        length = nd__elements_u32(start + 8);
    }
    uint64_t left = content->bytes - content->position;
    if (length > left)
        return nd__error(ND_ERROR_FORMAT, "%s: %s announces a header of %u bytes; %llu follow",
                         operation, nd__content_text(content, name), length,
                         (unsigned long long)left);
    if (length > HEADER_BYTES_MAX)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: %s has a header of %u bytes; ndarc reads %u, which only dtypes of "
                         "many fields exceed",
                         operation, nd__content_text(content, name), length, HEADER_BYTES_MAX);
    ret_text->text = nd__pressure_alloc((size_t)length + 1);
    if (!ret_text->text)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the header of %s, %u bytes",
                         operation, nd__content_text(content, name), length);
    ret_text->text[length] = '\0';
    ret_text->size = length;
    return nd__content_read(content, ret_text->text, length);
}

static bool fail(nd_npy_text *text, const char *problem) {
    if (!text->problem)
        text->problem = problem;
    return false;
}

/// The next character that is not white space, not consumed; 0 at the end.
static char peek(nd_npy_text *text) {
    while (text->position < text->size) {
        char c = text->text[text->position];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        text->position++;
    }
    return 0;
}

static bool take(nd_npy_text *text, char character) {
    if (text->problem || peek(text) != character)
        return false;
    text->position++;
    return true;
}

static bool take_word(nd_npy_text *text, const char *word) {
    size_t length = strlen(word);
    peek(text);
    if (text->size - text->position < length ||
        memcmp(text->text + text->position, word, length) != 0)
        return false;
    text->position += length;
    return true;
}

/// A string in either kind of quotes, without escapes; terminated in the text.
static bool take_string(nd_npy_text *text, const char **ret_string) {
    char quote = peek(text);
    if (quote != '\'' && quote != '"')
        return fail(text, "a string was expected");
    const char *start = text->text + ++text->position;
    for (; text->position < text->size; text->position++) {
        char c = text->text[text->position];
        if (c == quote) {
            text->text[text->position++] = '\0';
            *ret_string = start;
            return true;
        }
        if (c == '\\' || (unsigned char)c < 0x20)
            break;
    }
    return fail(text, "a string does not end, or has a character that none of the format has");
}

static bool take_size(nd_npy_text *text, int64_t *ret_size) {
    char first = peek(text);
    size_t start = text->position;
    int64_t size = 0;
    if (first < '0' || first > '9')
        return fail(text, "a size was expected");
    for (; text->position < text->size; text->position++) {
        char c = text->text[text->position];
        if (c < '0' || c > '9')
            break;
        if (__builtin_mul_overflow(size, (int64_t)10, &size) ||
            __builtin_add_overflow(size, (int64_t)(c - '0'), &size))
            return fail(text, "a size does not fit 64 bits");
    }
    if (first == '0' && text->position - start > 1)
        return fail(text, "a size begins with zero");
    take(text, 'L'); // long integers of Python 2
    *ret_size = size;
    return true;
}

// ------------------------------------------------------------------------------------------------
// the dictionary

enum { DESCR = 1, FORTRAN = 2, SHAPE = 4 };

/// Bytes of a text in brackets up to the one that closes the first, of 80 at most.
static int bracketed(const char *text) {
    int depth = 0, at = 0;
    do {
        depth += text[at] == '[' || text[at] == '(';
        depth -= text[at] == ']' || text[at] == ')';
        at++;
    } while (depth > 0 && text[at] && at < 80);
    return at;
}

/// {'descr': ..., 'fortran_order': ..., 'shape': ...}, in any order, each once, nothing else.
static nd_status parse(nd_npy_text *text, nd_npy_header *header) {
    int seen = 0;
    if (!take(text, '{')) {
        fail(text, "a dictionary was expected");
        return format_error(text);
    }
    while (!take(text, '}')) {
        const char *name = NULL;
        if (!take_string(text, &name) || (!take(text, ':') && !fail(text, "a colon was expected")))
            return format_error(text);
        int key = strcmp(name, "descr") == 0           ? DESCR
                  : strcmp(name, "fortran_order") == 0 ? FORTRAN
                  : strcmp(name, "shape") == 0         ? SHAPE
                                                       : 0;
        if (key == 0 || (seen & key)) {
            fail(text, key ? "a key is there twice" : "an unknown key");
            return format_error(text);
        }
        seen |= key;
        nd_status status = parse_value(text, key, header);
        if (status != ND_OK)
            return status;
        if (!take(text, ',') && peek(text) != '}') {
            fail(text, "a comma or } was expected");
            return format_error(text);
        }
    }
    if (seen != (DESCR | FORTRAN | SHAPE))
        fail(text, "descr, fortran_order or shape is missing");
    else if (peek(text) != 0 || text->position != text->size)
        fail(text, "it goes on after its end");
    if (text->problem)
        return format_error(text);
    return header->is_complex ? add_axis_of_pairs(text, header) : ND_OK;
}

static nd_status parse_value(nd_npy_text *text, int key, nd_npy_header *header) {
    if (key == SHAPE)
        return parse_shape(text, header);
    if (key == FORTRAN) {
        header->fortran = take_word(text, "True");
        if (header->fortran || take_word(text, "False"))
            return ND_OK;
        fail(text, "True or False was expected");
        return format_error(text);
    }
    const char *descr = NULL;
    char name[ND__CONTENT_TEXT];
    if (peek(text) == '[' || peek(text) == '(')
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: %s holds the structured dtype %.*s, which ndarc does not have",
                         text->content->file->operation, nd__content_text(text->content, name),
                         bracketed(text->text + text->position), text->text + text->position);
    return take_string(text, &descr) ? set_dtype(text, descr, header) : format_error(text);
}

static nd_status too_many_axes(const nd_npy_text *text) {
    char name[ND__CONTENT_TEXT];
    return nd__error(
        ND_ERROR_UNSUPPORTED, "%s: %s has more than %d dimensions, which ndarc does not have",
        text->content->file->operation, nd__content_text(text->content, name), ND_MAX_DIMS);
}

static nd_status add_axis_of_pairs(const nd_npy_text *text, nd_npy_header *header) {
    if (header->ndim == ND_MAX_DIMS)
        return too_many_axes(text);
    header->shape[header->ndim++] = 2;
    return ND_OK;
}

static nd_status parse_shape(nd_npy_text *text, nd_npy_header *header) {
    bool comma = true; // a tuple of one has one
    if (!take(text, '(') && !fail(text, "a tuple was expected as shape"))
        return format_error(text);
    while (!take(text, ')')) {
        if (!comma && !fail(text, "a comma or ) was expected"))
            return format_error(text);
        if (header->ndim == ND_MAX_DIMS)
            return too_many_axes(text);
        if (!take_size(text, &header->shape[header->ndim]))
            return format_error(text);
        header->ndim++;
        comma = take(text, ',');
    }
    if (header->ndim == 1 && !comma) {
        fail(text, "a number stands where a tuple was expected");
        return format_error(text);
    }
    return ND_OK;
}

/// What a kind of dtype that ndarc does not have holds; NULL for an unknown one.
static const char *foreign_kind(const char *code) {
    const bool is_sized = code[0] && code[1] >= '0' && code[1] <= '9';
    if (strchr(code, ','))
        return "a structure";
    switch (code[0]) {
    case 'O':
        return "pickled Python objects";
    case 'c':
        return is_sized ? "complex numbers of another size" : NULL;
    case 'S':
    case 'a':
    case 'U':
        return "strings";
    case 'M':
    case 'm':
        return "dates and times";
    case 'V':
        return "raw bytes, as which NumPy writes what it has no code for, such as bfloat16";
    case 'f':
        return is_sized ? "floats of another size" : NULL;
    default:
        return NULL;
    }
}

/// The code that a dtype's text stands for, which may be the text's own.
static const char *code_of(const char *descr) {
    const char *code = descr + (*descr && strchr("<>|=", *descr) ? 1 : 0);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (code[0] && !code[1] && strchr(aliases[i].letters, code[0]))
            return aliases[i].code;
        for (size_t name = 0; name < sizeof aliases->names / sizeof *aliases->names; name++)
            if (aliases[i].names[name] && strcmp(descr, aliases[i].names[name]) == 0)
                return aliases[i].code;
    }
    return code;
}

static nd_status set_dtype(const nd_npy_text *text, const char *descr, nd_npy_header *header) {
    char name[ND__CONTENT_TEXT];
    const char *code = code_of(descr);
    header->big_endian = *descr == '>';
    // Complex numbers of two floats that ndarc has.
    header->is_complex = strcmp(code, "c8") == 0 || strcmp(code, "c16") == 0;
    const char *of = !header->is_complex ? code : code[1] == '8' ? "f4" : "f8";
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        if (dtype_codes[dtype] && strcmp(of, dtype_codes[dtype]) == 0) {
            header->dtype = (nd_dtype)dtype;
            return ND_OK;
        }
    const char *kind = foreign_kind(code);
    if (kind)
        return nd__error(
            ND_ERROR_UNSUPPORTED, "%s: %s holds the dtype '%.40s' (%s), which ndarc does not have",
            text->content->file->operation, nd__content_text(text->content, name), descr, kind);
    return nd__error(ND_ERROR_FORMAT, "%s: %s has the unknown dtype '%.40s'",
                     text->content->file->operation, nd__content_text(text->content, name), descr);
}

/// Shape times element size must be what is left.
static nd_status check_size(const nd_content *content, nd_npy_header *header) {
    char name[ND__CONTENT_TEXT], shape[ND__SHAPE_TEXT];
    const char *operation = content->file->operation;
    int64_t bytes = nd__elements_bytes(header->dtype, header->ndim, header->shape);
    uint64_t left = content->bytes - content->position;
    nd__content_text(content, name);
    nd__shape_text(shape, header->ndim, header->shape);
    if (bytes < 0)
        return nd__error(ND_ERROR_FORMAT, "%s: %s has the shape %s, more bytes than 64 bits count",
                         operation, name, shape);
    if ((uint64_t)bytes != left)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: %s announces the shape %s of %s, %lld bytes; %llu follow", operation,
                         name, shape, nd_dtype_get_name(header->dtype), (long long)bytes,
                         (unsigned long long)left);
    header->bytes = (size_t)bytes;
    return ND_OK;
}
