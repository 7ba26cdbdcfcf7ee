// Attention as a graph of one operation, with a second inside it that hides what comes later: see
// cudnn_plan.h.
//
// After the first refusal nothing more is asked: `status` keeps it, and every step looks there first.
// A plan keeps all that it was made of, for cuDNN does not say what it still reads.
#include "lib/device/cuda/cudnn_plan.h"
#include <math.h>

enum { OFFERS = 8, NOTES = 16, NDIM = 4, ALIGNMENT = 16 };

/// Tensors by their numbers.
enum {
    QUERY = 1,
    KEY,
    VALUE,
    OUT,
    LOG_SUMS,
    SCALE,
    PLAIN_IDS = SCALE,
    SHIFT,
    FILL,
    CAUSAL_IDS = FILL,
    SCORES,
    SEEN_SCORES
};

typedef struct making {
    const nd_dnn_backend *backend;
    nd_dnn_plan *plan;
    int status;
} making;

static void *create(making *m, int kind) {
    void *made = NULL;
    if (m->status == ND__DNN_SUCCESS && m->plan->count == ND__DNN_PARTS)
        m->status = ND__DNN_NO_HOST_MEMORY;
    if (m->status == ND__DNN_SUCCESS)
        m->status = m->backend->create(kind, &made);
    if (m->status != ND__DNN_SUCCESS)
        return NULL;
    m->plan->parts[m->plan->count++] = made;
    return made;
}

static void set(making *m, void *made, int attribute, int type, int64_t count, const void *values) {
    if (m->status == ND__DNN_SUCCESS)
        m->status = m->backend->set(made, attribute, type, count, values);
}

static void set_number(making *m, void *made, int attribute, int64_t number) {
    set(m, made, attribute, ND__DNN_OF_I64, 1, &number);
}

static void set_part(making *m, void *made, int attribute, void *part) {
    set(m, made, attribute, ND__DNN_OF_DESCRIPTOR, 1, &part);
}

static void finalize(making *m, void *made) {
    if (m->status == ND__DNN_SUCCESS)
        m->status = m->backend->finalize(made);
}

/// Destroys the last parts, down to `count`.
static void shorten(const nd_dnn_backend *backend, nd_dnn_plan *plan, int count) {
    while (plan->count > count)
        (void)backend->destroy(plan->parts[--plan->count]);
}

// ------------------------------------------------------------------------------------------------
// the operation

typedef enum place { IN_MEMORY, IN_BETWEEN, BY_VALUE } place;

static void *describe_tensor(making *m, int64_t id, int type, const int64_t *sizes,
                             const int64_t *strides, place where) {
    const bool yes = true;
    void *tensor = create(m, ND__DNN_TENSOR);
    set(m, tensor, ND__DNN_TENSOR_TYPE, ND__DNN_OF_TYPE, 1, &type);
    set(m, tensor, ND__DNN_TENSOR_SIZES, ND__DNN_OF_I64, NDIM, sizes);
    set(m, tensor, ND__DNN_TENSOR_STRIDES, ND__DNN_OF_I64, NDIM, strides);
    set_number(m, tensor, ND__DNN_TENSOR_ID, id);
    set_number(m, tensor, ND__DNN_TENSOR_ALIGNMENT, ALIGNMENT);
    if (where != IN_MEMORY)
        set(m, tensor, where == BY_VALUE ? ND__DNN_TENSOR_BY_VALUE : ND__DNN_TENSOR_VIRTUAL,
            ND__DNN_OF_BOOL, 1, &yes);
    finalize(m, tensor);
    return tensor;
}

static void *describe_rows(making *m, int64_t id, const nd_dnn_attention *a, int64_t heads,
                           int64_t rows, int64_t columns, const int64_t *strides) {
    return describe_tensor(m, id, (int)a->type, (int64_t[]){a->batches, heads, rows, columns},
                           (int64_t[]){strides[0], strides[1], strides[2], 1}, IN_MEMORY);
}

/// Of f32, without gaps.
static void *describe_dense(making *m, int64_t id, const nd_dnn_attention *a, int64_t columns,
                            place where) {
    const int64_t rows = a->queries;
    return describe_tensor(m, id, ND__DNN_F32, (int64_t[]){a->batches, a->heads, rows, columns},
                           (int64_t[]){a->heads * rows * columns, rows * columns, columns, 1},
                           where);
}

static void *describe_value(making *m, int64_t id, int type) {
    const int64_t ones[NDIM] = {1, 1, 1, 1};
    return describe_tensor(m, id, type, ones, ones, BY_VALUE);
}

/// Scores of a query as they are up to its own key, which is `shift` further, and `fill` behind it.
static void hide_what_is_later(making *m, void *attention, const nd_dnn_attention *a) {
    const int comparison = ND__DNN_AT_LEAST;
    void *scores = describe_dense(m, SCORES, a, a->keys, IN_BETWEEN);
    void *seen = describe_dense(m, SEEN_SCORES, a, a->keys, IN_BETWEEN);
    void *shift = describe_value(m, SHIFT, ND__DNN_I32);
    void *fill = describe_value(m, FILL, ND__DNN_F32);
    void *mask = create(m, ND__DNN_BAND_MASK);
    set_part(m, mask, ND__DNN_BAND_X, scores);
    set_part(m, mask, ND__DNN_BAND_Y, seen);
    set_part(m, mask, ND__DNN_BAND_SHIFT, shift);
    set_part(m, mask, ND__DNN_BAND_FILL, fill);
    set(m, mask, ND__DNN_BAND_COMPARISON, ND__DNN_OF_COMPARISON, 1, &comparison);
    finalize(m, mask);
    void *graph = create(m, ND__DNN_GRAPH);
    set_part(m, graph, ND__DNN_GRAPH_OPERATIONS, mask);
    finalize(m, graph);
    set_part(m, attention, ND__DNN_ATTENTION_SCORES, graph);
    set_number(m, attention, ND__DNN_ATTENTION_SCORES_IN, SCORES);
    set_number(m, attention, ND__DNN_ATTENTION_SCORES_OUT, SEEN_SCORES);
}

static void *describe_attention(making *m, const nd_dnn_attention *a) {
    void *query = describe_rows(m, QUERY, a, a->heads, a->queries, a->length, a->query);
    void *key = describe_rows(m, KEY, a, a->key_heads, a->keys, a->length, a->key);
    void *value = describe_rows(m, VALUE, a, a->key_heads, a->keys, a->value_length, a->value);
    void *out = describe_rows(m, OUT, a, a->heads, a->queries, a->value_length, a->out);
    void *log_sums = describe_dense(m, LOG_SUMS, a, 1, IN_MEMORY);
    void *scale = describe_value(m, SCALE, ND__DNN_F32);
    void *attention = create(m, ND__DNN_ATTENTION);
    set_part(m, attention, ND__DNN_ATTENTION_QUERY, query);
    set_part(m, attention, ND__DNN_ATTENTION_KEY, key);
    set_part(m, attention, ND__DNN_ATTENTION_VALUE, value);
    set_part(m, attention, ND__DNN_ATTENTION_OUT, out);
    set_part(m, attention, ND__DNN_ATTENTION_LOG_SUMS, log_sums);
    set_part(m, attention, ND__DNN_ATTENTION_SCALE, scale);
    if (a->causal)
        hide_what_is_later(m, attention, a);
    finalize(m, attention);
    return attention;
}

// ------------------------------------------------------------------------------------------------
// the plan

/// Of what an engine computes.
static bool are_acceptable(const making *m, void *engine) {
    int notes[NOTES];
    int64_t count = 0;
    if (m->backend->get(engine, ND__DNN_ENGINE_NOTES, ND__DNN_OF_NOTE, NOTES, &count, notes) !=
            ND__DNN_SUCCESS ||
        count > NOTES)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] != ND__DNN_NOTE_TENSOR_CORES && notes[i] != ND__DNN_NOTE_KEEPS_NAN)
            return false;
    return true;
}

/// Of one offer; false, with none of its parts left, where it does not do.
static bool follow(making *m, void *handle, void *described, void *config, size_t most) {
    const int before = m->plan->count;
    int64_t count = 0, workspace = -1;
    void *engine = create(m, ND__DNN_ENGINE);
    if (m->status == ND__DNN_SUCCESS)
        m->status = m->backend->get(config, ND__DNN_CONFIG_ENGINE, ND__DNN_OF_DESCRIPTOR, 1, &count,
                                    &engine);
    if (m->status == ND__DNN_SUCCESS && !are_acceptable(m, engine))
        m->status = ND__DNN_NOT_SUPPORTED;
    void *plan = create(m, ND__DNN_PLAN);
    if (handle)
        set(m, plan, ND__DNN_PLAN_HANDLE, ND__DNN_OF_HANDLE, 1, &handle);
    else
        set_part(m, plan, ND__DNN_PLAN_DEVICE, described);
    set_part(m, plan, ND__DNN_PLAN_CONFIG, config);
    finalize(m, plan);
    if (m->status == ND__DNN_SUCCESS)
        m->status =
            m->backend->get(plan, ND__DNN_PLAN_WORKSPACE, ND__DNN_OF_I64, 1, &count, &workspace);
    if (m->status == ND__DNN_SUCCESS && workspace >= 0 && (uint64_t)workspace <= most) {
        m->plan->plan = plan;
        m->plan->workspace = (size_t)workspace;
        return true;
    }
    shorten(m->backend, m->plan, before);
    return false;
}

/// By the first offer that does.
static void choose(making *m, void *handle, void *described, void *graph, size_t most) {
    const int mode = ND__DNN_BY_MODEL;
    void *offers[OFFERS] = {NULL};
    int64_t count = 0;
    void *heuristic = create(m, ND__DNN_HEURISTIC);
    set_part(m, heuristic, ND__DNN_HEURISTIC_GRAPH, graph);
    set(m, heuristic, ND__DNN_HEURISTIC_MODE, ND__DNN_OF_MODE, 1, &mode);
    if (described)
        set_part(m, heuristic, ND__DNN_HEURISTIC_DEVICE, described);
    finalize(m, heuristic);
    for (int i = 0; i < OFFERS; i++)
        offers[i] = create(m, ND__DNN_CONFIG);
    if (m->status == ND__DNN_SUCCESS)
        m->status = m->backend->get(heuristic, ND__DNN_HEURISTIC_RESULTS, ND__DNN_OF_DESCRIPTOR,
                                    OFFERS, &count, offers);
    if (m->status != ND__DNN_SUCCESS)
        return;
    for (int64_t i = 0; i < count && i < OFFERS; i++) {
        m->status = ND__DNN_SUCCESS;
        if (follow(m, handle, described, offers[i], most))
            return;
    }
    m->status = ND__DNN_NOT_SUPPORTED;
}

int nd__cudnn_plan_make(const nd_dnn_backend *backend, void *handle, void *described,
                        const nd_dnn_attention *attention, size_t most, nd_dnn_plan *ret_plan) {
    *ret_plan = (nd_dnn_plan){.causal = attention->causal != 0};
    making m = {backend, ret_plan, ND__DNN_SUCCESS};
    void *operation = describe_attention(&m, attention);
    void *graph = create(&m, ND__DNN_GRAPH);
    if (handle)
        set(&m, graph, ND__DNN_GRAPH_HANDLE, ND__DNN_OF_HANDLE, 1, &handle);
    set_part(&m, graph, ND__DNN_GRAPH_OPERATIONS, operation);
    finalize(&m, graph);
    choose(&m, handle, described, graph, most);
    if (m.status != ND__DNN_SUCCESS)
        nd__cudnn_plan_release(backend, ret_plan);
    return m.status;
}

void nd__cudnn_plan_release(const nd_dnn_backend *backend, nd_dnn_plan *plan) {
    shorten(backend, plan, 0);
    *plan = (nd_dnn_plan){0};
}

int nd__cudnn_plan_run(const nd_dnn_backend *backend, void *handle, const nd_dnn_plan *plan,
                       const nd_dnn_memory *memory) {
    static const int64_t ids[] = {QUERY, KEY, VALUE, OUT, LOG_SUMS, SCALE, SHIFT, FILL};
    int32_t shift = 0;
    float fill = -INFINITY, scale = memory->scale;
    const void *pointers[] = {memory->query,    memory->key, memory->value, memory->out,
                              memory->log_sums, &scale,      &shift,        &fill};
    const int64_t count = plan->causal ? CAUSAL_IDS : PLAIN_IDS;
    nd_dnn_plan pack = {0}; // of one part
    making m = {backend, &pack, ND__DNN_SUCCESS};
    void *made = create(&m, ND__DNN_PACK);
    set(&m, made, ND__DNN_PACK_IDS, ND__DNN_OF_I64, count, ids);
    set(&m, made, ND__DNN_PACK_POINTERS, ND__DNN_OF_POINTER, count, pointers);
    set(&m, made, ND__DNN_PACK_WORKSPACE, ND__DNN_OF_POINTER, 1, &memory->workspace);
    finalize(&m, made);
    if (m.status == ND__DNN_SUCCESS)
        m.status = backend->execute(handle, plan->plan, made);
    shorten(backend, &pack, 0);
    return m.status;
}
