// Edges: written inside the gate, but for those that a collection cuts in its garbage.
#include "lib/object/edge.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include "lib/object/block.h"
#include "lib/object/cut.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"

/// Whether a slot lies in a payload that a `destroy` of this thread is about to free: an edge that
/// it got now would be cleared by nobody.
__attribute__((cold, noinline)) static bool is_being_destroyed(const void *slot) {
    for (const nd_destroying *at = nd__thread_record.destroying; at; at = at->outer) {
        uintptr_t offset = (uintptr_t)slot - (uintptr_t)at->object;
        if (offset >= nd__block_size(at->object))
            continue;
        nd__error(ND_ERROR_CLOSED,
                  "edge_set: the %s is being destroyed, and takes no edges any more",
                  at->object->type->name);
        return true;
    }
    return false;
}

void nd_edge_set(void *slot, const void *target) {
    if (__builtin_expect(nd__thread_record.destroying != NULL, 0) && is_being_destroyed(slot))
        return;
    nd_object **edge = slot;
    nd_object *retained = nd_object_retain(target);
    nd__gate_enter();
    nd_object *before = *edge;
    *edge = retained;
    nd__gate_leave();
    nd_object_release(before);
}

bool nd__edge_set_in(nd_object *owner, void *slot, const void *target) {
    if (nd__object_is_closing(owner))
        return false;
    nd_edge_set(slot, target);
    return true;
}

void *nd_edge_take(void *slot) {
    nd_object **edge = slot;
    nd__gate_enter_to_clear();
    nd_object *before = *edge;
    *edge = NULL;
    nd__object_note_moved(before);
    nd__gate_leave();
    return before;
}

/// Apart, so that the collector's edges save no registers.
__attribute__((noinline)) static void clear_edge_at_gate(nd_object **edge) {
    nd__gate_enter_to_clear();
    nd_object *before = *edge;
    *edge = NULL;
    nd__gate_leave();
    nd_object_release(before);
}

void nd_edge_clear(void *slot) {
    nd_object **edge = slot;
    nd_cut *cut = nd__thread_record.cut;
    if (!cut || !*edge || !nd__object_is_own_garbage(*edge)) {
        clear_edge_at_gate(edge);
        return;
    }
    // Both ends are garbage of this thread's collection: nobody else can see the count any more.
    nd_object *target = *edge;
    *edge = NULL;
    uint64_t word = nd__atomic_load(&target->word, relaxed);
    nd__atomic_store(&target->word, word - 1, relaxed);
    nd__cut_edge(cut, target->gc_index);
}
