// einsum's notation: from an equation to labelled terms, which contraction.c multiplies.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/ops/contraction.h"
#include "lib/ops/operands.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/shape.h"
#include <nd/contraction.h>
#include <string.h>

/// Where one is in the equation.
typedef struct reader {
    const char *equation, *at;
} reader;

static void skip_spaces(reader *r) {
    while (*r->at == ' ')
        r->at++;
}

/// Label of a letter; -1.
static int label_of(char letter) {
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 26 : -1;
}

/// Labels up to the next ",", "->" or the end. An ellipsis stands for `ellipsis` axes; for -1, for
/// as many as make `ndim`. Returns how many labels, of which ret_labels gets the first ND_MAX_DIMS, or
/// -1 with an error.
static int read_labels(reader *r, int ndim, int ellipsis, int *ret_labels) {
    const char *begin = r->at;
    int letters = 0, count = 0, dots = 0;
    for (const char *c = begin; *c && *c != ',' && *c != '-'; c++)
        letters += label_of(*c) >= 0;
    int hidden = ellipsis >= 0 ? ellipsis : ndim - letters;
    for (skip_spaces(r); *r->at && *r->at != ',' && *r->at != '-'; skip_spaces(r)) {
        int label = label_of(*r->at), wanted = label >= 0 ? 1 : hidden;
        bool is_dots = strncmp(r->at, "...", 3) == 0;
        if ((label < 0 && !is_dots) || (is_dots && dots++ > 0) || wanted < 0) {
            nd__error(ND_ERROR_INVALID_ARGUMENT,
                      "einsum: \"%s\" has letters, and one \"...\" for the other axes, for each "
                      "operand and the result, not \"%.8s\"",
                      r->equation, r->at);
            return -1;
        }
        for (int i = wanted - 1; i >= 0; i--, count++)
            if (count < ND_MAX_DIMS)
                ret_labels[count] = is_dots ? ND__CONTRACTION_ELLIPSIS + i : label;
        r->at += is_dots ? 3 : 1;
    }
    return count;
}

/// The operands' labels, as terms that own nothing yet.
static nd_status read_operands(reader *r, size_t count, const nd_tensor *const *operands,
                               nd__term *ret_terms) {
    for (size_t i = 0; i < count; i++) {
        const nd_tensor *x = operands[i];
        int ndim = read_labels(r, x->ndim, -1, ret_terms[i].labels);
        if (ndim < 0)
            return nd_error_get_status();
        bool is_last = i + 1 == count;
        if (ndim != x->ndim) {
            char text[ND__SHAPE_TEXT];
            return nd__error(ND_ERROR_SHAPE,
                             "einsum: \"%s\" gives operand %zu %d axes, and its shape is %s",
                             r->equation, i, ndim, nd__shape_text(text, x->ndim, x->shape));
        }
        if (is_last ? *r->at == ',' : *r->at != ',')
            return nd__error(ND_ERROR_INVALID_ARGUMENT, "einsum: \"%s\" does not have %zu operands",
                             r->equation, count);
        r->at += !is_last;
        ret_terms[i].ndim = ndim;
    }
    return ND_OK;
}

/// Axes of one label are of one size, or 1.
static nd_status check_sizes(const reader *r, const nd__term *terms, size_t count,
                             const nd_tensor *const *operands) {
    int64_t sizes[ND__CONTRACTION_LABELS];
    for (int label = 0; label < ND__CONTRACTION_LABELS; label++)
        sizes[label] = 1;
    for (size_t i = 0; i < count; i++) {
        // Within one operand a diagonal has no room for an axis that repeats.
        for (int a = 0; a < terms[i].ndim; a++) {
            int64_t size = operands[i]->shape[a], *known = &sizes[terms[i].labels[a]];
            bool fits = size == 1 || *known == 1 || size == *known;
            for (int b = 0; b < a; b++)
                if (terms[i].labels[a] == terms[i].labels[b])
                    fits = fits && size == operands[i]->shape[b];
            if (!fits)
                return nd__error(ND_ERROR_SHAPE,
                                 "einsum: \"%s\" gives axis %d of operand %zu, of %lld elements, "
                                 "the letter of one of %lld",
                                 r->equation, a, i, (long long)size, (long long)*known);
            *known = size != 1 ? size : *known;
        }
    }
    return ND_OK;
}

static int too_many(const reader *r, int ndim) {
    nd__error(ND_ERROR_SHAPE, "einsum: the result of \"%s\" has %d dimensions; %d are possible",
              r->equation, ndim, ND_MAX_DIMS);
    return -1;
}

/// Labels of the result; -1 with an error.
static int read_output(reader *r, const nd__term *terms, size_t count, int *ret_output) {
    int uses[ND__CONTRACTION_LABELS] = {0}, ellipsis = 0, noutput = 0;
    for (size_t i = 0; i < count; i++)
        for (int axis = 0; axis < terms[i].ndim; axis++) {
            int label = terms[i].labels[axis], hidden = label - ND__CONTRACTION_ELLIPSIS + 1;
            uses[label]++;
            ellipsis = hidden > ellipsis ? hidden : ellipsis;
        }
    if (!*r->at) {
        for (int i = ellipsis - 1; i >= 0; i--)
            ret_output[noutput++] = ND__CONTRACTION_ELLIPSIS + i;
        int single = noutput;
        for (int label = 0; label < ND__CONTRACTION_ELLIPSIS; label++)
            if (uses[label] == 1 && single++ < ND_MAX_DIMS)
                ret_output[noutput++] = label;
        return single <= ND_MAX_DIMS ? noutput : too_many(r, single);
    }
    bool arrow = strncmp(r->at, "->", 2) == 0;
    r->at += arrow ? 2 : 0;
    noutput = arrow ? read_labels(r, 0, ellipsis, ret_output) : 0;
    if (noutput > ND_MAX_DIMS)
        return too_many(r, noutput);
    bool fits = arrow && noutput >= 0 && !*r->at;
    for (int i = 0; i < noutput && fits; i++) {
        fits = uses[ret_output[i]] > 0;
        uses[ret_output[i]] = 0;
    }
    if (fits || noutput < 0)
        return noutput;
    nd__error(ND_ERROR_INVALID_ARGUMENT,
              "einsum: \"%s\" must end in \"->\" and letters of the operands, each once",
              r->equation);
    return -1;
}

static nd_status check_operands(const char *equation, size_t count,
                                const nd_tensor *const *operands) {
    if (!equation || !operands || count == 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "einsum: %zu operands at %s for %s", count,
                         operands ? "an address" : "NULL", equation ? equation : "NULL");
    for (size_t i = 0; i < count; i++) {
        nd_status status =
            nd__operands_check_pair("einsum", "operand 0", operands[0], "an operand", operands[i]);
        if (status != ND_OK)
            return status;
        if (operands[i]->dtype == ND_BOOL)
            return nd__error(ND_ERROR_DTYPE, "einsum: does not take bool, as operand %zu is", i);
    }
    return ND_OK;
}

nd_tensor *nd_einsum(const char *equation, size_t count, const nd_tensor *const *operands) {
    ND__ERROR_NAMED("einsum");
    if (check_operands(equation, count, operands) != ND_OK)
        return NULL;
    nd__term *terms = nd__pressure_alloc_zeroed(count * sizeof *terms);
    if (!terms) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "einsum: no memory for %zu operands", count);
        return NULL;
    }
    reader r = {equation, equation};
    int output[ND_MAX_DIMS], noutput = -1;
    if (read_operands(&r, count, operands, terms) == ND_OK &&
        check_sizes(&r, terms, count, operands) == ND_OK)
        noutput = read_output(&r, terms, count, output);
    nd_tensor *result = NULL;
    if (noutput >= 0) {
        for (size_t i = 0; i < count; i++)
            terms[i].x = nd_retain(operands[i]);
        result = nd__contraction_run("einsum", terms, count, output, noutput);
    }
    nd__alloc_free(terms);
    return result;
}
