// The state of a training: a list of named parts, and its file.
//
// Invariant: parts that are objects are edges, through a list of the state's own; the array of
// parts holds plain values beside it. Loading asks every part twice (state_stream.h), so nothing
// changes before all of it fits.
#include "lib/nn/state.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/nn/ema.h"
#include "lib/nn/loss_scaler.h"
#include "lib/nn/optimizer.h"
#include "lib/nn/schedule.h"
#include "lib/nn/state_parts.h"
#include "lib/pressure/pressure_alloc.h"

#include <string.h>

struct nd_state {
    nd_object header;
    nd_list *objects; ///< edge
    nd_state_part *parts;
    size_t count;
    size_t capacity;
};

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type state_type = {.size = sizeof(nd_type),
                                   .version = 1,
                                   .name = "state",
                                   .traverse = traverse,
                                   .clear = clear,
                                   .destroy = destroy};

static nd_status check_state(const char *operation, const nd_state *state);
static nd_state_part *find(const nd_state *state, const char *name);
static nd_status add_part(const char *operation, nd_state *state, const char *name,
                          nd_state_kind kind, const void *object, nd_state_part **ret_part);
static nd_status set_value(const char *operation, nd_state *state, const char *name,
                           nd_state_kind kind, const void *value, size_t bytes);
static nd_status get_value(const char *operation, const nd_state *state, const char *name,
                           nd_state_kind kind, void *ret_value, size_t bytes);
static nd_status exchange_all(const nd_state *state, nd_state_stream *stream);

nd_state *nd_state_new(void) {
    nd_list *objects = nd_list_new();
    nd_state *state = objects ? (nd_state *)nd__object_new(&state_type, sizeof(*state)) : NULL;
    if (!state) {
        nd_release(objects);
        return NULL;
    }
    state->objects = objects;
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &state->header);
}

// -------------------------------------------------------------------------------------------------
// parts

nd_status nd_state_add_module(nd_state *state, const char *name, const nd_module *module) {
    nd_status status = nd__module_check("state_add_module", module);
    return status == ND_OK
               ? add_part("state_add_module", state, name, ND__STATE_MODULE, module, NULL)
               : status;
}

nd_status nd_state_add_optimizer(nd_state *state, const char *name, const nd_optimizer *optimizer) {
    nd_status status = nd__optimizer_check("state_add_optimizer", optimizer);
    return status == ND_OK
               ? add_part("state_add_optimizer", state, name, ND__STATE_OPTIMIZER, optimizer, NULL)
               : status;
}

nd_status nd_state_add_schedule(nd_state *state, const char *name, const nd_schedule *schedule) {
    nd_status status = nd__schedule_check("state_add_schedule", schedule);
    return status == ND_OK
               ? add_part("state_add_schedule", state, name, ND__STATE_SCHEDULE, schedule, NULL)
               : status;
}

nd_status nd_state_add_dataset(nd_state *state, const char *name, const nd_dataset *dataset) {
    if (!dataset)
        return nd__error_null("state_add_dataset", "dataset");
    return add_part("state_add_dataset", state, name, ND__STATE_DATASET, dataset, NULL);
}

nd_status nd_state_add_ema(nd_state *state, const char *name, const nd_ema *ema) {
    nd_status status = nd__ema_check("state_add_ema", ema);
    return status == ND_OK ? add_part("state_add_ema", state, name, ND__STATE_EMA, ema, NULL)
                           : status;
}

nd_status nd_state_add_loss_scaler(nd_state *state, const char *name,
                                   const nd_loss_scaler *scaler) {
    static const char operation[] = "state_add_loss_scaler";
    nd_status status = nd__loss_scaler_check(operation, scaler);
    return status == ND_OK ? add_part(operation, state, name, ND__STATE_LOSS_SCALER, scaler, NULL)
                           : status;
}

nd_status nd_state_add_tensor(nd_state *state, const char *name, const nd_tensor *tensor) {
    static const char operation[] = "state_add_tensor";
    nd_status status = nd__tensor_check_operand(operation, "tensor", tensor);
    if (status == ND_OK && (!nd__tensor_is_contiguous(tensor) || nd__tensor_requires_grad(tensor)))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the tensor %s", operation,
                           nd__tensor_is_contiguous(tensor)
                               ? "requires a gradient; a module's part has those"
                               : "is no contiguous one (nd_contiguous)");
    return status == ND_OK ? add_part(operation, state, name, ND__STATE_TENSOR, tensor, NULL)
                           : status;
}

nd_status nd_state_set_i64(nd_state *state, const char *name, int64_t value) {
    return set_value("state_set_i64", state, name, ND__STATE_I64, &value, sizeof value);
}

nd_status nd_state_get_i64(const nd_state *state, const char *name, int64_t *ret_value) {
    return get_value("state_get_i64", state, name, ND__STATE_I64, ret_value, sizeof *ret_value);
}

nd_status nd_state_set_f64(nd_state *state, const char *name, double value) {
    return set_value("state_set_f64", state, name, ND__STATE_F64, &value, sizeof value);
}

nd_status nd_state_get_f64(const nd_state *state, const char *name, double *ret_value) {
    return get_value("state_get_f64", state, name, ND__STATE_F64, ret_value, sizeof *ret_value);
}

nd_status nd_state_set_key(nd_state *state, const char *name, nd_key key) {
    return set_value("state_set_key", state, name, ND__STATE_KEY, &key, sizeof key);
}

nd_status nd_state_get_key(const nd_state *state, const char *name, nd_key *ret_key) {
    return get_value("state_get_key", state, name, ND__STATE_KEY, ret_key, sizeof *ret_key);
}

static nd_status check_state(const char *operation, const nd_state *state) {
    if (!state)
        return nd__error_null(operation, "state");
    if (nd__object_is_closed(state))
        return nd__error(ND_ERROR_CLOSED, "%s: the state was closed", operation);
    return ND_OK;
}

static nd_state_part *find(const nd_state *state, const char *name) {
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->parts[i].name, name) == 0)
            return &state->parts[i];
    return NULL;
}

static nd_status reserve_part(const char *operation, nd_state *state) {
    if (state->count < state->capacity)
        return ND_OK;
    const size_t capacity = state->capacity ? 2 * state->capacity : 8;
    nd_state_part *parts = nd__pressure_alloc(capacity * sizeof *parts);
    if (!parts)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu parts", operation,
                         capacity);
    // A callback for memory may have used the state meanwhile, or closed it.
    nd_status status = check_state(operation, state);
    if (status != ND_OK || capacity <= state->capacity) {
        nd__alloc_free(parts);
        return status;
    }
    if (state->count > 0)
        memcpy(parts, state->parts, state->count * sizeof *parts);
    nd__alloc_free(state->parts);
    state->parts = parts;
    state->capacity = capacity;
    return ND_OK;
}

static nd_status add_part(const char *operation, nd_state *state, const char *name,
                          nd_state_kind kind, const void *object, nd_state_part **ret_part) {
    nd_status status = check_state(operation, state);
    if (status == ND_OK && !name)
        status = nd__error_null(operation, "name");
    while (status == ND_OK && state->count == state->capacity)
        status = reserve_part(operation, state);
    if (status != ND_OK)
        return status;
    const size_t length = strlen(name);
    if (length == 0 || length > ND__MODULE_NAME_MAX || strchr(name, '.'))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the name '%.80s'; a name has 1 to %d bytes and no dot", operation,
                         name, ND__MODULE_NAME_MAX);
    status = nd__module_check_in_file(operation, name);
    if (status != ND_OK)
        return status;
    if (find(state, name))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the state has a part '%s' already",
                         operation, name);
    nd_state_part part = {.kind = kind, .object = nd_list_get_size(state->objects)};
    strcpy(part.name, name);
    if (object)
        status = nd_list_append(state->objects, object);
    if (status == ND_OK && (nd__object_is_closed(state) || state->count == state->capacity))
        status = nd__error(ND_ERROR_STATE, "%s: a callback for memory used the state", operation);
    if (status != ND_OK)
        return status;
    state->parts[state->count] = part;
    if (ret_part)
        *ret_part = &state->parts[state->count];
    state->count++;
    return ND_OK;
}

static nd_status set_value(const char *operation, nd_state *state, const char *name,
                           nd_state_kind kind, const void *value, size_t bytes) {
    nd_status status = check_state(operation, state);
    if (status != ND_OK)
        return status;
    nd_state_part *part = name ? find(state, name) : NULL;
    if (!part)
        status = add_part(operation, state, name, kind, NULL, &part);
    else if (part->kind != kind)
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%s' is a part of another kind",
                           operation, name);
    if (status == ND_OK)
        memcpy(&part->value, value, bytes);
    return status;
}

static nd_status get_value(const char *operation, const nd_state *state, const char *name,
                           nd_state_kind kind, void *ret_value, size_t bytes) {
    nd_status status = check_state(operation, state);
    if (status == ND_OK && (!name || !ret_value))
        status = nd__error_null(operation, name ? "the result" : "name");
    if (status != ND_OK)
        return status;
    const nd_state_part *part = find(state, name);
    if (!part)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the state has no part '%.80s'", operation,
                         name);
    if (part->kind != kind)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%.80s' is a part of another kind",
                         operation, name);
    memcpy(ret_value, &part->value, bytes);
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// files

nd_status nd__state_save(const char *operation, const nd_state *state, const char *path) {
    nd_status status = check_state(operation, state);
    if (status != ND_OK)
        return status;
    nd_state_stream stream;
    status = nd__state_stream_begin_save(&stream, operation, path);
    if (status == ND_OK)
        status = exchange_all(state, &stream);
    if (status == ND_OK)
        status = nd__state_stream_write(&stream);
    nd__state_stream_end(&stream);
    return status;
}

nd_status nd_save_state(const nd_state *state, const char *path) {
    ND__UNCANCELLED;
    ND__ERROR_NAMED("save_state");
    return nd__state_save("save_state", state, path);
}

nd_status nd__state_check_file(nd_state_stream *stream, const char *operation,
                               const nd_state *state, const char *path) {
    *stream = (nd_state_stream){.file.file.descriptor = -1};
    nd_status status = check_state(operation, state);
    if (status == ND_OK)
        status = nd__state_stream_begin_load(stream, operation, path);
    if (status == ND_OK)
        status = exchange_all(state, stream);
    return status == ND_OK ? nd__state_stream_check_all_taken(stream) : status;
}

nd_status nd__state_hash(const char *operation, const nd_state *state, uint64_t *ret_hash) {
    nd_status status = check_state(operation, state);
    uint64_t sum = 0; // in any order
    for (size_t i = 0; status == ND_OK && i < state->count; i++) {
        const nd_state_part *part = &state->parts[i];
        const nd_object *object =
            part->kind < ND__STATE_I64 ? nd_list_get(state->objects, part->object) : NULL;
        if (object && nd__object_is_closed(object))
            status = nd__error(ND_ERROR_CLOSED, "%s: the part '%s' of the state was closed",
                               operation, part->name);
        uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)part->kind; // FNV-1a
        for (const char *c = part->name; *c; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
        sum += hash ^ hash >> 29;
    }
    *ret_hash = sum;
    return status;
}

nd_status nd__state_commit(nd_state_stream *stream, const nd_state *state) {
    stream->phase = ND__STATE_COMMIT;
    return exchange_all(state, stream);
}

nd_status nd_load_state(const nd_state *state, const char *path) {
    ND__UNCANCELLED;
    nd_state_stream stream;
    nd_status status = nd__state_check_file(&stream, "load_state", state, path);
    if (status == ND_OK)
        status = nd__state_commit(&stream, state);
    nd__state_stream_end(&stream);
    return status;
}

static int turn_of(nd_state_kind kind) {
    return kind == ND__STATE_MODULE ? 0 : kind == ND__STATE_OPTIMIZER ? 1 : 2;
}

/// Modules, then optimizers, then the others, in any order of addition: what an optimizer makes for a
/// parameter (the master of a half) depends on the parameter's value, and may fail for want of memory.
static nd_status exchange_all(const nd_state *state, nd_state_stream *stream) {
    nd_status status = ND_OK;
    stream->objects = state->objects;
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; status == ND_OK && i < state->count; i++) {
            nd_state_part *part = &state->parts[i];
            if (turn_of(part->kind) != turn)
                continue;
            const nd_object *object =
                part->kind < ND__STATE_I64 ? nd_list_get(state->objects, part->object) : NULL;
            status = nd__state_parts_exchange(stream, part, object);
        }
    return status;
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    nd_visit(visitor, ((const nd_state *)self)->objects, "parts");
}

static void clear(nd_object *self) {
    nd_edge_clear(&((nd_state *)self)->objects);
}

static void destroy(nd_object *self) {
    nd_state *state = (nd_state *)self;
    nd__alloc_free(state->parts);
    state->parts = NULL;
    state->count = 0;
    state->capacity = 0;
}
