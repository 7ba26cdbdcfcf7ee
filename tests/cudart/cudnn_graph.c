// The fake cuDNN's graph interface, as far as attention goes: descriptors that are made, set, finalized and
// asked, and plans that are executed. Its numbers are those of the definition, by plain loops, done late.
//
// It refuses what cuDNN refuses, and what its documentation does not promise: an attribute that the
// kind has not, of another type or twice; changes behind finalizing, and parts that are not finalized; a
// plan whose parts are gone. As of convolutions there are four engines: one that is not deterministic
// and one with shorter sums, which both write wrong results, one that needs working memory, and one
// that needs none. dnn.h has what ND_CUDART_CUDNN in the environment changes.
#include "kernels/half.h"
#include "tests/cudart/dnn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DNN_NOT_SUPPORTED = 3000, OLD_VERSION = 91900, VERSION = 92801 };
enum { NDIM = 4, MOST_SET = 12, MOST_VALUES = 8, ENGINES = 4 };
enum { DNN_F32 = 0, DNN_F16 = 2, DNN_I32 = 4, DNN_BF16 = 9, AT_LEAST = 303 };
enum {
    ENGINE = 2,
    CONFIG,
    HEURISTIC,
    PLAN,
    GRAPH = 15,
    PACK,
    TENSOR,
    ATTENTION = 41,
    BAND_MASK = 44
};
enum {
    T_HANDLE = 0,
    T_TYPE = 1,
    T_BOOL = 2,
    T_I64 = 3,
    T_POINTER = 6,
    T_MODE = 8,
    T_NOTE = 11,
    T_COMPARISON = 14,
    T_DESCRIPTOR = 15
};

/// What may be set, of which type, and how many; `needed`: there is no finalizing without.
typedef struct rule {
    int kind, attribute, type, most;
    bool needed;
} rule;
static const rule rules[] = {
    {HEURISTIC, 200, T_MODE, 1, true},
    {HEURISTIC, 201, T_DESCRIPTOR, 1, true},
    {PLAN, 400, T_HANDLE, 1, true},
    {PLAN, 401, T_DESCRIPTOR, 1, true},
    {GRAPH, 800, T_HANDLE, 1, false},
    {GRAPH, 801, T_DESCRIPTOR, 1, true},
    {TENSOR, 900, T_I64, 1, true},
    {TENSOR, 901, T_TYPE, 1, true},
    {TENSOR, 902, T_I64, NDIM, true},
    {TENSOR, 903, T_I64, NDIM, true},
    {TENSOR, 906, T_I64, 1, true},
    {TENSOR, 907, T_BOOL, 1, false},
    {TENSOR, 908, T_BOOL, 1, false},
    {PACK, 1000, T_I64, MOST_VALUES, true},
    {PACK, 1001, T_POINTER, MOST_VALUES, true},
    {PACK, 1003, T_POINTER, 1, true},
    {ATTENTION, 2800, T_DESCRIPTOR, 1, true},
    {ATTENTION, 2801, T_DESCRIPTOR, 1, true},
    {ATTENTION, 2802, T_DESCRIPTOR, 1, true},
    {ATTENTION, 2803, T_DESCRIPTOR, 1, true},
    {ATTENTION, 2804, T_DESCRIPTOR, 1, true},
    {ATTENTION, 2805, T_DESCRIPTOR, 1, true},
    {ATTENTION, 2811, T_DESCRIPTOR, 1, false},
    {ATTENTION, 2812, T_I64, 1, false},
    {ATTENTION, 2813, T_I64, 1, false},
    {BAND_MASK, 3000, T_DESCRIPTOR, 1, true},
    {BAND_MASK, 3004, T_DESCRIPTOR, 1, true},
    {BAND_MASK, 3005, T_DESCRIPTOR, 1, true},
    {BAND_MASK, 3006, T_DESCRIPTOR, 1, true},
    {BAND_MASK, 3007, T_COMPARISON, 1, true},
};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct descriptor {
    int magic, kind;
    bool finalized;
    int number;                     ///< of an engine, and of a configuration
    const struct descriptor *graph; ///< that a configuration is for
    int count;
    struct {
        const rule *by;
        int64_t count;
        int64_t numbers[MOST_VALUES]; ///< addresses, too
    } set[MOST_SET];
} descriptor;

/// Work as it is queued: strides of batches, heads and rows.
typedef struct work {
    bool bf16, hides, wrong;
    int64_t batches, heads, key_heads, queries, keys, length, value_length;
    int64_t query_strides[3], key_strides[3], value_strides[3], out_strides[3];
    const uint16_t *query, *key, *value;
    uint16_t *out;
    float *log_sums;
    float scale, fill;
    int32_t shift;
    void *workspace;
    size_t bytes;
} work;

EXPORT size_t cudnnGetVersion(void);
EXPORT int cudnnBackendCreateDescriptor(int kind, descriptor **ret_made);
EXPORT int cudnnBackendDestroyDescriptor(descriptor *made);
EXPORT int cudnnBackendSetAttribute(descriptor *to, int attribute, int type, int64_t count,
                                    const void *values);
EXPORT int cudnnBackendGetAttribute(const descriptor *of, int attribute, int type, int64_t room,
                                    int64_t *ret_count, void *ret_values);
EXPORT int cudnnBackendFinalize(descriptor *of);
EXPORT int cudnnBackendExecute(handle *of, const descriptor *plan, const descriptor *pack);

// ----------------------------------------------------------------------------------- descriptors

static int asked(void) {
    return blas_asked("ND_CUDART_CUDNN");
}

size_t cudnnGetVersion(void) {
    return asked() == IS_OLD ? OLD_VERSION : VERSION;
}

int cudnnBackendCreateDescriptor(int kind, descriptor **ret_made) {
    bool known = kind == ENGINE || kind == CONFIG;
    for (int i = 0; i < RULES; i++)
        known = known || rules[i].kind == kind;
    descriptor *made = known ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return known ? NO_HOST_MEMORY : DNN_NOT_SUPPORTED;
    made->magic = OF_DESCRIPTOR;
    made->kind = kind;
    *ret_made = made;
    return SUCCESS;
}

int cudnnBackendDestroyDescriptor(descriptor *made) {
    if (made->magic != OF_DESCRIPTOR)
        return BAD_PARAM;
    memset(made, 0xDD, sizeof *made);
    free(made);
    return SUCCESS;
}

/// NULL: it is not set.
static const int64_t *values_of(const descriptor *of, int attribute, int64_t *ret_count) {
    for (int i = 0; i < of->count; i++)
        if (of->set[i].by->attribute == attribute) {
            if (ret_count)
                *ret_count = of->set[i].count;
            return of->set[i].numbers;
        }
    return NULL;
}

static int64_t number_of(const descriptor *of, int attribute) {
    const int64_t *values = values_of(of, attribute, NULL);
    return values ? *values : 0;
}

static const descriptor *part_of(const descriptor *of, int attribute) {
    return (const descriptor *)(uintptr_t)number_of(of, attribute);
}

static bool is_part(const descriptor *part, int kind) {
    return part && part->magic == OF_DESCRIPTOR && part->finalized && part->kind == kind;
}

static int64_t read_value(int type, const void *values, int64_t index) {
    switch (type) {
    case T_BOOL:
        return ((const bool *)values)[index];
    case T_TYPE:
    case T_MODE:
    case T_COMPARISON:
        return ((const int *)values)[index];
    default:
        return ((const int64_t *)values)[index];
    }
}

int cudnnBackendSetAttribute(descriptor *to, int attribute, int type, int64_t count,
                             const void *values) {
    const rule *by = NULL;
    for (int i = 0; i < RULES; i++)
        if (rules[i].kind == to->kind && rules[i].attribute == attribute)
            by = &rules[i];
    if (to->magic != OF_DESCRIPTOR || to->finalized || !by || by->type != type || count < 1 ||
        count > by->most || !values || values_of(to, attribute, NULL) || to->count == MOST_SET)
        return BAD_PARAM;
    to->set[to->count].by = by;
    to->set[to->count].count = count;
    for (int64_t i = 0; i < count; i++)
        to->set[to->count].numbers[i] = read_value(type, values, i);
    to->count++;
    const descriptor *part = type == T_DESCRIPTOR ? part_of(to, attribute) : NULL;
    return type == T_DESCRIPTOR && (part->magic != OF_DESCRIPTOR || !part->finalized)
               ? NOT_FINALIZED
               : SUCCESS;
}

// -------------------------------------------------------------------------------------- finalizing

static int check_tensor(const descriptor *of) {
    int64_t sizes = 0, strides = 0;
    const int64_t *size = values_of(of, 902, &sizes), *stride = values_of(of, 903, &strides);
    const int64_t type = number_of(of, 901);
    bool right = sizes == NDIM && strides == NDIM && number_of(of, 900) == 16 &&
                 !(number_of(of, 907) && number_of(of, 908)) &&
                 (type == DNN_F32 || type == DNN_F16 || type == DNN_I32 || type == DNN_BF16);
    for (int i = 0; right && i < NDIM; i++)
        right = size[i] > 0 && stride[i] > 0;
    return right ? SUCCESS : BAD_PARAM;
}

static bool is_tensor(const descriptor *of, int64_t type, bool in_between, bool by_value) {
    return is_part(of, TENSOR) && number_of(of, 901) == type &&
           (number_of(of, 907) != 0) == in_between && (number_of(of, 908) != 0) == by_value;
}

static bool has_sizes(const descriptor *of, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t *size = values_of(of, 902, NULL);
    return size[0] == a && size[1] == b && size[2] == c && size[3] == d;
}

static bool is_dense(const descriptor *of) {
    const int64_t *size = values_of(of, 902, NULL), *stride = values_of(of, 903, NULL);
    return stride[3] == 1 && stride[2] == size[3] && stride[1] == size[3] * size[2] &&
           stride[0] == size[3] * size[2] * size[1];
}

static int check_mask(const descriptor *of) {
    const descriptor *x = part_of(of, 3000), *y = part_of(of, 3006);
    const descriptor *shift = part_of(of, 3004), *fill = part_of(of, 3005);
    bool right = is_tensor(x, DNN_F32, true, false) && is_tensor(y, DNN_F32, true, false) &&
                 is_tensor(shift, DNN_I32, false, true) && is_tensor(fill, DNN_F32, false, true) &&
                 has_sizes(shift, 1, 1, 1, 1) && has_sizes(fill, 1, 1, 1, 1) && is_dense(x) &&
                 is_dense(y) && number_of(of, 3007) == AT_LEAST;
    return right && memcmp(values_of(x, 902, NULL), values_of(y, 902, NULL),
                           NDIM * sizeof(int64_t)) == 0
               ? SUCCESS
               : BAD_PARAM;
}

/// Read by 16 bytes.
static bool are_rows(const descriptor *of, int64_t type) {
    if (!is_tensor(of, type, false, false))
        return false;
    const int64_t *stride = values_of(of, 903, NULL);
    return stride[3] == 1 && stride[0] % 8 == 0 && stride[1] % 8 == 0 && stride[2] % 8 == 0;
}

/// The graph that scores go through has the one operation, from and to the tensors that are named.
static bool fits_scores(const descriptor *of, const int64_t *query, int64_t keys) {
    const descriptor *graph = part_of(of, 2811);
    if (!graph)
        return !values_of(of, 2812, NULL) && !values_of(of, 2813, NULL);
    const descriptor *mask = is_part(graph, GRAPH) ? part_of(graph, 801) : NULL;
    if (!is_part(mask, BAND_MASK))
        return false;
    const descriptor *x = part_of(mask, 3000), *y = part_of(mask, 3006);
    return has_sizes(x, query[0], query[1], query[2], keys) &&
           number_of(x, 906) == number_of(of, 2812) && number_of(y, 906) == number_of(of, 2813) &&
           number_of(x, 906) != number_of(y, 906);
}

static int check_attention(const descriptor *of) {
    const descriptor *query = part_of(of, 2800), *key = part_of(of, 2801);
    const descriptor *value = part_of(of, 2802), *out = part_of(of, 2803);
    const descriptor *log_sums = part_of(of, 2804), *scale = part_of(of, 2805);
    if (!is_part(query, TENSOR) || !is_part(key, TENSOR) || !is_part(value, TENSOR))
        return BAD_PARAM;
    const int64_t type = number_of(query, 901);
    const int64_t *q = values_of(query, 902, NULL), *k = values_of(key, 902, NULL);
    const int64_t v = values_of(value, 902, NULL)[3];
    if ((type != DNN_F16 && type != DNN_BF16) || !are_rows(query, type) || !are_rows(key, type) ||
        !are_rows(value, type) || !are_rows(out, type) || k[0] != q[0] || q[1] % k[1] != 0 ||
        k[3] != q[3] || !has_sizes(value, k[0], k[1], k[2], v) ||
        !has_sizes(out, q[0], q[1], q[2], v) || !is_tensor(log_sums, DNN_F32, false, false) ||
        !has_sizes(log_sums, q[0], q[1], q[2], 1) || !is_dense(log_sums) ||
        !is_tensor(scale, DNN_F32, false, true) || !has_sizes(scale, 1, 1, 1, 1) ||
        !fits_scores(of, q, k[2]))
        return BAD_PARAM;
    return q[3] % 8 == 0 && v % 8 == 0 && q[3] <= 256 && v <= 256 ? SUCCESS : NOT_SUPPORTED_SHAPE;
}

static bool is_handle(const descriptor *of, int attribute) {
    const handle *given = (const handle *)(uintptr_t)number_of(of, attribute);
    return given && given->magic == OF_HANDLE;
}

static int check(const descriptor *of) {
    int64_t ids = 0, pointers = 0;
    switch (of->kind) {
    case TENSOR:
        return check_tensor(of);
    case BAND_MASK:
        return check_mask(of);
    case ATTENTION:
        return check_attention(of);
    case GRAPH: // one inside an operation needs no handle
        return is_part(part_of(of, 801), BAND_MASK) ||
                       (is_part(part_of(of, 801), ATTENTION) && is_handle(of, 800))
                   ? SUCCESS
                   : BAD_PARAM;
    case HEURISTIC:
        if (!is_part(part_of(of, 201), GRAPH) || number_of(of, 200) != 3)
            return BAD_PARAM;
        return asked() == REFUSES ? DNN_NOT_SUPPORTED : SUCCESS;
    case PLAN:
        if (!is_handle(of, 400) || !is_part(part_of(of, 401), CONFIG))
            return BAD_PARAM;
        return asked() == OFFERS_REFUSED ? DNN_NOT_SUPPORTED : SUCCESS;
    case PACK:
        (void)values_of(of, 1000, &ids);
        (void)values_of(of, 1001, &pointers);
        return ids == pointers ? SUCCESS : BAD_PARAM;
    default:
        return BAD_PARAM; // what is asked for is finalized
    }
}

int cudnnBackendFinalize(descriptor *of) {
    if (of->magic != OF_DESCRIPTOR || of->finalized)
        return BAD_PARAM;
    for (int i = 0; i < RULES; i++)
        if (rules[i].kind == of->kind && rules[i].needed &&
            !values_of(of, rules[i].attribute, NULL))
            return BAD_PARAM;
    const int status = check(of);
    of->finalized = status == SUCCESS;
    return status;
}

// ------------------------------------------------------------------------------------------ asking

/// Into descriptors that the caller has made.
static int fill(descriptor *to, int kind, int number, const descriptor *graph) {
    if (!to || to->magic != OF_DESCRIPTOR || to->kind != kind || to->finalized)
        return BAD_PARAM;
    to->number = number;
    to->graph = graph;
    to->finalized = true;
    return SUCCESS;
}

static int get_notes(const descriptor *engine, int64_t room, int64_t *ret_count, int *ret_notes) {
    enum { TENSOR_CORES = 0, SHORTER_SUMS = 2, DIFFERS = 4 };
    const bool differs = engine->number == 0 || asked() == ENGINES_DIFFER;
    const int notes[] = {TENSOR_CORES, differs ? DIFFERS : SHORTER_SUMS};
    *ret_count = differs || engine->number == 1 ? 2 : 1;
    for (int64_t i = 0; i < *ret_count && i < room; i++)
        ret_notes[i] = notes[i];
    return SUCCESS;
}

static size_t workspace_of(int engine) {
    if (asked() == WANTS_MUCH)
        return (size_t)1 << 40;
    if (asked() == FIRST_WANTS_MUCH && engine == 2)
        return (size_t)200 << 20;
    return engine == 2 ? 1000 : 0;
}

int cudnnBackendGetAttribute(const descriptor *of, int attribute, int type, int64_t room,
                             int64_t *ret_count, void *ret_values) {
    if (of->magic != OF_DESCRIPTOR || !of->finalized)
        return NOT_FINALIZED;
    int status = SUCCESS;
    if (of->kind == HEURISTIC && attribute == 202 && type == T_DESCRIPTOR) {
        *ret_count = ENGINES;
        for (int i = 0; i < ENGINES && i < room && status == SUCCESS; i++)
            status = fill(((descriptor **)ret_values)[i], CONFIG, i, part_of(of, 201));
    } else if (of->kind == CONFIG && attribute == 300 && type == T_DESCRIPTOR && room == 1) {
        *ret_count = 1;
        status = fill(*(descriptor **)ret_values, ENGINE, of->number, of->graph);
    } else if (of->kind == ENGINE && attribute == 1303 && type == T_NOTE) {
        status = get_notes(of, room, ret_count, ret_values);
    } else if (of->kind == PLAN && attribute == 402 && type == T_I64 && room == 1) {
        *ret_count = 1;
        *(int64_t *)ret_values = (int64_t)workspace_of(part_of(of, 401)->number);
    } else {
        status = BAD_PARAM;
    }
    return status;
}

// ------------------------------------------------------------------------------------- executing

static double half(const work *w, const uint16_t *data, int64_t index) {
    return w->bf16 ? (double)nd__bf16_to_f32(data[index]) : (double)nd__f16_to_f32(data[index]);
}

static int64_t row_of(const int64_t *strides, int64_t batch, int64_t head, int64_t row) {
    return batch * strides[0] + head * strides[1] + row * strides[2];
}

/// Of one query; its largest score.
static double score(const work *w, int64_t batch, int64_t head, int64_t row, double *scores) {
    const int64_t key_head = head / (w->heads / w->key_heads);
    const int64_t query = row_of(w->query_strides, batch, head, row);
    double largest = -INFINITY;
    for (int64_t key = 0; key < w->keys; key++) {
        const int64_t at = row_of(w->key_strides, batch, key_head, key);
        scores[key] = 0;
        for (int64_t i = 0; i < w->length; i++)
            scores[key] += half(w, w->query, query + i) * half(w, w->key, at + i);
        scores[key] *= (double)w->scale;
        if (w->hides && !(row + w->shift >= key))
            scores[key] = (double)w->fill;
        largest = scores[key] > largest ? scores[key] : largest;
    }
    return largest;
}

static void attend_row(const work *w, int64_t batch, int64_t head, int64_t row, double *scores) {
    const int64_t key_head = head / (w->heads / w->key_heads);
    const int64_t out = row_of(w->out_strides, batch, head, row);
    const double largest = score(w, batch, head, row, scores);
    double sum = 0;
    for (int64_t key = 0; key < w->keys; key++) {
        scores[key] = exp(scores[key] - largest);
        sum += scores[key];
    }
    w->log_sums[(batch * w->heads + head) * w->queries + row] = (float)(largest + log(sum));
    for (int64_t i = 0; i < w->value_length; i++) {
        double result = 0;
        for (int64_t key = 0; key < w->keys; key++)
            result +=
                scores[key] * half(w, w->value, row_of(w->value_strides, batch, key_head, key) + i);
        result = w->wrong ? result / sum * 1.1 + 0.1 : result / sum;
        w->out[out + i] = w->bf16 ? nd__f64_to_bf16(result) : nd__f64_to_f16(result);
    }
}

static void attend(void *data) {
    const work *w = data;
    double *scores = calloc((size_t)w->keys, sizeof *scores);
    if (!scores)
        abort();
    if (w->workspace)
        memset(w->workspace, 0xEE, w->bytes);
    for (int64_t batch = 0; batch < w->batches; batch++)
        for (int64_t head = 0; head < w->heads; head++)
            for (int64_t row = 0; row < w->queries; row++)
                attend_row(w, batch, head, row, scores);
    free(scores);
}

/// What the pack has for a tensor; NULL: nothing, or nothing aligned.
static void *pointer_to(const descriptor *pack, const descriptor *tensor) {
    int64_t count = 0;
    const int64_t *ids = values_of(pack, 1000, &count), *pointers = values_of(pack, 1001, NULL);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] == number_of(tensor, 906))
            return number_of(tensor, 908) || pointers[i] % 16 == 0 ? (void *)(uintptr_t)pointers[i]
                                                                   : NULL;
    return NULL;
}

static void copy_strides(const descriptor *tensor, int64_t *ret_strides) {
    memcpy(ret_strides, values_of(tensor, 903, NULL), 3 * sizeof *ret_strides);
}

/// Sizes and strides from the operation's tensors, values at once from where the pack points.
static bool describe_work(const descriptor *attention, const descriptor *pack, work *w) {
    const descriptor *query = part_of(attention, 2800), *key = part_of(attention, 2801);
    const descriptor *value = part_of(attention, 2802), *out = part_of(attention, 2803);
    const descriptor *graph = part_of(attention, 2811);
    const int64_t *q = values_of(query, 902, NULL), *k = values_of(key, 902, NULL);
    const float *scale = pointer_to(pack, part_of(attention, 2805)), *fill_with = scale;
    const int32_t none = 0, *shift = &none;
    int64_t given = 0;
    if (graph) {
        shift = pointer_to(pack, part_of(part_of(graph, 801), 3004));
        fill_with = pointer_to(pack, part_of(part_of(graph, 801), 3005));
    }
    (void)values_of(pack, 1000, &given);
    if (!scale || !shift || !fill_with || given != (graph ? 8 : 6))
        return false;
    *w = (work){.bf16 = number_of(query, 901) == DNN_BF16,
                .hides = graph != NULL,
                .batches = q[0],
                .heads = q[1],
                .key_heads = k[1],
                .queries = q[2],
                .keys = k[2],
                .length = q[3],
                .value_length = values_of(value, 902, NULL)[3],
                .query = pointer_to(pack, query),
                .key = pointer_to(pack, key),
                .value = pointer_to(pack, value),
                .out = pointer_to(pack, out),
                .log_sums = pointer_to(pack, part_of(attention, 2804)),
                .scale = *scale,
                .fill = *fill_with,
                .shift = *shift};
    copy_strides(query, w->query_strides);
    copy_strides(key, w->key_strides);
    copy_strides(value, w->value_strides);
    copy_strides(out, w->out_strides);
    return w->query && w->key && w->value && w->out && w->log_sums;
}

int cudnnBackendExecute(handle *of, const descriptor *plan, const descriptor *pack) {
    if (of->magic != OF_HANDLE || !is_part(plan, PLAN) || !is_part(pack, PACK) ||
        (handle *)(uintptr_t)number_of(plan, 400) != of)
        return BAD_PARAM;
    const descriptor *config = part_of(plan, 401);
    const descriptor *graph = is_part(config, CONFIG) ? config->graph : NULL;
    const descriptor *attention = is_part(graph, GRAPH) ? part_of(graph, 801) : NULL;
    work w;
    if (!is_part(attention, ATTENTION) || !describe_work(attention, pack, &w))
        return BAD_PARAM;
    w.bytes = workspace_of(config->number);
    w.workspace = (void *)(uintptr_t)number_of(pack, 1003);
    if (w.bytes > 0 && !w.workspace)
        return BAD_PARAM;
    if (w.bytes == 0)
        w.workspace = NULL;
    if (asked() == RUNS_NOT)
        return NOT_SUPPORTED_SHAPE;
    w.wrong = config->number < 2;
    return of->queue(of->stream, "cudnnBackendExecute", attend, &w, sizeof w) == cudaSuccess
               ? SUCCESS
               : FAILED;
}
