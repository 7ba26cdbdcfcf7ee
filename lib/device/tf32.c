// See tf32.h.
#include "lib/device/tf32.h"
#include <nd/autocast.h>
#include <stdatomic.h>

static atomic_bool allowed;
static _Thread_local bool exact_here;

void nd_set_tf32(bool is_allowed) {
    atomic_store_explicit(&allowed, is_allowed, memory_order_relaxed);
}

bool nd_is_tf32(void) {
    return atomic_load_explicit(&allowed, memory_order_relaxed);
}

bool nd__tf32_allowed(void) {
    return atomic_load_explicit(&allowed, memory_order_relaxed) && !exact_here;
}

bool nd__tf32_set_exact(bool exact) {
    const bool before = exact_here;
    exact_here = exact;
    return before;
}
