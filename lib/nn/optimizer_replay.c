// A step in a captured graph: its numbers (rates, corrections by the count of steps) are read from
// memory of the device, which the host writes before each launch.
//
// Invariant: the numbers are made by the formulas that eager steps use, so both give the same bits.
// What a launch cannot change is the work itself: a formula that asks for other operations than were
// captured is refused.
#include "lib/nn/optimizer_replay.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/manager/place.h"
#include "lib/object/edge.h"
#include "lib/tensor/create.h"
#include "lib/tensor/graph.h"

#include <string.h>

static const char operation[] = "optimizer_step";

/// The update of a parameter as it was captured.
typedef struct captured_update {
    nd_chain chain;                    ///< without steps: it had no gradient
    const void *memory[1 + ND__SLOTS]; ///< of the parameter and its state
} captured_update;

typedef struct optimizer_replay {
    nd_replay replay;
    nd_optimizer *optimizer;   ///< edge
    nd_tensor *numbers;        ///< edge: [parameters of the optimizer, ND__OPTIMIZER_NUMBERS] u8
    captured_update *captured; ///< owned, one for each parameter
    char *values;              ///< owned: numbers on the host
} optimizer_replay;

static void replay_traverse(const nd_object *self, nd_visitor *visitor) {
    const optimizer_replay *replay = (const optimizer_replay *)self;
    nd_visit(visitor, replay->optimizer, "optimizer");
    nd_visit(visitor, replay->numbers, "numbers");
}

static void replay_clear(nd_object *self) {
    optimizer_replay *replay = (optimizer_replay *)self;
    nd_edge_clear(&replay->optimizer);
    nd_edge_clear(&replay->numbers);
}

static void replay_destroy(nd_object *self) {
    optimizer_replay *replay = (optimizer_replay *)self;
    nd__alloc_free(replay->captured);
    nd__alloc_free(replay->values);
    replay->captured = NULL;
    replay->values = NULL;
}

static const nd_type replay_type = {.size = sizeof(nd_type),
                                    .version = 1,
                                    .name = "captured step",
                                    .traverse = replay_traverse,
                                    .clear = replay_clear,
                                    .destroy = replay_destroy};

// -------------------------------------------------------------------------------------------------
// launches

static void memory_of(const nd_parameter_state *state, const void *ret_memory[1 + ND__SLOTS]) {
    ret_memory[0] = state->parameter->data;
    for (int slot = 0; slot < ND__SLOTS; slot++)
        ret_memory[1 + slot] = state->slot[slot] ? state->slot[slot]->data : NULL;
}

/// Whether the parameter and its state lie where they were.
static bool is_same_memory(const nd_parameter_state *state, const captured_update *captured) {
    const void *memory[1 + ND__SLOTS];
    memory_of(state, memory);
    return memcmp(memory, captured->memory, sizeof memory) == 0;
}

/// Whether a half was written since its master was last equal to it.
static bool is_written(const nd_parameter_state *state) {
    return state->slot[ND__SLOT_MASTER] && nd__tensor_version(state->parameter) != state->version;
}

static bool is_same_work(const nd_chain *a, const nd_chain *b) {
    bool same = a->steps == b->steps && a->count == b->count;
    for (int i = 0; same && i < a->steps; i++)
        same = a->step[i].op == b->step[i].op && a->step[i].out == b->step[i].out &&
               a->step[i].a == b->step[i].a && a->step[i].b == b->step[i].b;
    return same;
}

/// The numbers of a chain in the dtype that it computes in.
static void write_numbers(const nd_chain *chain, nd_dtype dtype, char *to) {
    for (int i = 0; i < chain->steps; i++) {
        const double number = chain->step[i].number;
        const float narrow = (float)number;
        if (dtype == ND_F64)
            memcpy(to + (size_t)i * sizeof number, &number, sizeof number);
        else
            memcpy(to + (size_t)i * sizeof narrow, &narrow, sizeof narrow);
    }
}

/// Counting one step more than there were.
static nd_status renew(const optimizer_replay *replay, size_t i) {
    const nd_optimizer *optimizer = replay->optimizer;
    const nd_parameter_state *state = &optimizer->states[i];
    const captured_update *captured = &replay->captured[i];
    if (captured->chain.steps == 0)
        return ND_OK;
    if (!is_same_memory(state, captured))
        return nd__error(ND_ERROR_STATE,
                         "graph_launch: parameter '%.100s' or its state was moved, replaced or "
                         "loaded since the capture: capture the step again",
                         optimizer->names[i]);
    if (is_written(state))
        return nd__error(ND_ERROR_STATE,
                         "graph_launch: parameter '%.100s' was written since its last step: "
                         "nd_optimizer_step() lets its master follow, which a launch cannot",
                         optimizer->names[i]);
    const nd_chain chain = nd__optimizer_update_describe(optimizer, state, state->steps + 1);
    if (!is_same_work(&chain, &captured->chain))
        return nd__error(ND_ERROR_STATE,
                         "graph_launch: the options of parameter '%.100s' ask for other work than "
                         "was captured, where only numbers may change",
                         optimizer->names[i]);
    write_numbers(&chain, nd__optimizer_state_dtype(state->parameter),
                  replay->values + i * ND__OPTIMIZER_NUMBERS);
    return ND_OK;
}

/// In pieces that do not make the host wait.
static nd_status send(const optimizer_replay *replay) {
    enum { PIECE = 64 << 10 };
    const nd_tensor *numbers = replay->numbers;
    const nd_backend *backend = nd__registry_backend(numbers->device.kind);
    const size_t bytes = (size_t)numbers->numel;
    nd_status status = ND_OK;
    for (size_t at = 0; status == ND_OK && at < bytes; at += PIECE)
        status =
            backend->copy_from_host(numbers->device.index, (char *)numbers->data + at,
                                    replay->values + at, bytes - at < PIECE ? bytes - at : PIECE);
    return status == ND_OK
               ? ND_OK
               : nd__error(status, "graph_launch: copying to %s failed with %s",
                           nd__registry_device_text(numbers->device), nd_status_get_name(status));
}

static nd_status prepare(nd_replay *self) {
    const optimizer_replay *replay = (const optimizer_replay *)self;
    nd_status status = nd__optimizer_check("graph_launch", replay->optimizer);
    for (size_t i = 0; status == ND_OK && i < replay->optimizer->count; i++)
        status = renew(replay, i);
    return status == ND_OK ? send(replay) : status;
}

static void commit(nd_replay *self) {
    const optimizer_replay *replay = (const optimizer_replay *)self;
    for (size_t i = 0; i < replay->optimizer->count; i++) {
        nd_parameter_state *state = &replay->optimizer->states[i];
        if (replay->captured[i].chain.steps == 0)
            continue;
        state->steps++;
        nd__tensor_bump_version(state->parameter);
        state->version = nd__tensor_version(state->parameter);
    }
}

// -------------------------------------------------------------------------------------------------
// the capture

/// Behind its step each launch would write a half that the next launch's master does not follow.
static nd_status end(nd_replay *self) {
    const optimizer_replay *replay = (const optimizer_replay *)self;
    const size_t count = replay->optimizer ? replay->optimizer->count : 0;
    for (size_t i = 0; i < count; i++)
        if (replay->captured[i].chain.steps > 0 && is_written(&replay->optimizer->states[i]))
            return nd__error(ND_ERROR_STATE,
                             "capture_end: parameter '%.100s' is written behind its step in the "
                             "capture, where its master cannot follow it",
                             replay->optimizer->names[i]);
    return ND_OK;
}

/// Whether the graph that this thread captures has a step of the optimizer.
static bool is_captured(const nd_optimizer *optimizer) {
    const nd_graph *graph = nd__thread_record.capture->graph;
    const nd_replay *replay;
    for (size_t i = 0; (replay = nd__graph_get_replay(graph, i)); i++)
        if (replay->prepare == prepare &&
            ((const optimizer_replay *)replay)->optimizer == optimizer)
            return true;
    return false;
}

nd_status nd__optimizer_replay_check(const nd_optimizer *optimizer,
                                     const nd_parameter_state *state) {
    const char *name = optimizer->names[state - optimizer->states];
    const nd_device device = state->parameter->device;
    if (!nd__capture_is_of(device.kind, device.index))
        return nd__error(ND_ERROR_STATE,
                         "%s: parameter '%.100s' is on %s, whose work this thread does not capture",
                         operation, name, nd__registry_device_text(device));
    const unsigned slots = nd__optimizer_update_slots(optimizer, state);
    for (int slot = 0; slot < ND__SLOTS; slot++)
        if ((slots & (1u << slot)) && !state->slot[slot])
            return nd__error(ND_ERROR_STATE,
                             "%s: the state of parameter '%.100s' is made by its first step, which "
                             "must come before the capture",
                             operation, name);
    if ((slots & (1u << ND__SLOT_MASTER)) && is_written(state))
        return nd__error(ND_ERROR_STATE,
                         "%s: parameter '%.100s' was written since its last step, and its master "
                         "must follow it by a step before the capture",
                         operation, name);
    if (!nd__optimizer_update_is_chain(state))
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: parameter '%.100s' or its gradient is not contiguous, which a "
                         "captured step must find",
                         operation, name);
    return ND_OK;
}

/// Private, with nothing captured; NULL with an error.
static optimizer_replay *replay_new(nd_optimizer *optimizer) {
    optimizer_replay *replay = (optimizer_replay *)nd__object_new(&replay_type, sizeof *replay);
    if (!replay)
        return NULL;
    nd_capture *capture = nd__thread_record.capture;
    const int64_t shape[] = {(int64_t)optimizer->count, ND__OPTIMIZER_NUMBERS};
    replay->replay.end = end;
    replay->replay.prepare = prepare;
    replay->replay.commit = commit;
    replay->optimizer = nd_retain(optimizer);
    replay->captured = nd__alloc_zeroed(optimizer->count * sizeof *replay->captured);
    replay->values = nd__alloc_zeroed(optimizer->count * ND__OPTIMIZER_NUMBERS);
    capture->fresh = true;
    if (replay->captured && replay->values)
        replay->numbers =
            nd__tensor_new(operation, capture->manager, capture->device, ND_U8, 2, shape);
    else
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to capture the step", operation);
    capture->fresh = false;
    if (replay->numbers)
        return replay;
    nd_object_release(replay);
    return NULL;
}

nd_status nd__optimizer_replay_capture(nd_optimizer *optimizer, nd_optimizer_chains *chains) {
    if (is_captured(optimizer))
        return nd__error(ND_ERROR_STATE,
                         "%s: a step of the optimizer is captured in this graph already, and a "
                         "launch counts one",
                         operation);
    optimizer_replay *replay = replay_new(optimizer);
    if (!replay)
        return nd_error_get_status();
    const nd_scratch none = {.count = 0};
    chains->numbers = replay->numbers->data;
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        const nd_parameter_state *state = &optimizer->states[i];
        if (!state->parameter->grad)
            continue;
        replay->captured[i].chain =
            nd__optimizer_update_describe(optimizer, state, state->steps + 1);
        memory_of(state, replay->captured[i].memory);
        status = nd__optimizer_update(optimizer, state, &none, chains);
    }
    if (status == ND_OK)
        status = nd__optimizer_update_finish(chains);
    nd_capture *capture = nd__thread_record.capture;
    if (status == ND_OK)
        status = nd__publish(&replay->replay.header, capture->manager);
    if (status != ND_OK)
        nd_object_release(replay);
    else if (nd__graph_add_replay(capture->graph, &replay->replay) != ND_OK)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to capture the step", operation);
    capture->broken = capture->broken || status != ND_OK; // without the numbers
    return status;
}
