// What tests of nd_queue_callback share: callbacks that release, and a device that says when they
// run.
//
// The fake device runs callbacks on a thread of its own, in order with its other work; paused, it
// lets a test say when.
#ifndef ND_TESTS_BEHAVIOUR_CALLBACKS_H
#define ND_TESTS_BEHAVIOUR_CALLBACKS_H
#include "tests/behaviour/helpers.h"
#include "tests/behaviour/late.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static const nd_device cpu = {ND_CPU, 0}, fake = {LATE, 0};

static _Thread_local bool inside; ///< a callback
static atomic_uint destroyed_inside, calls;

static inline void note_death(nd_object *self) {
    (void)self;
    atomic_fetch_add(&destroyed_inside, inside);
}

static inline void begin(uint32_t numbers) {
    cell_begin(numbers);
    cell_on_destroy = cell_on_finalize = note_death;
    atomic_store(&destroyed_inside, 0);
    atomic_store(&calls, 0);
}

/// A callback whose data is an owned handle.
static inline void release_it(void *data) {
    inside = true;
    atomic_fetch_add(&calls, 1);
    nd_release((nd_object *)data);
    inside = false;
}

static inline void queue_release(nd_device device, nd_object *owned) {
    assert_ok(nd_queue_callback(device, release_it, owned, NULL));
}

/// Lets the paused device run what is queued, and waits for it without a call that could bury.
static inline void run_queue(void) {
    late_resume(0);
    for (int waited = 0; late_pending(0) > 0; waited++) {
        if (waited > 20000) {
            fputs("a callback waits for somebody\n", stderr);
            abort();
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/// Queues the release behind what is paused, and has it run.
static inline void release_in_callback(nd_object *owned) {
    late_pause(0);
    queue_release(fake, owned);
    run_queue();
}

static inline void assert_deaths(uint64_t deaths) {
    assert_int_equal(cell_total_deaths(), deaths);
    assert_int_equal(atomic_load(&destroyed_inside), 0);
}

static inline nd_tensor *ones_on(nd_device device, int64_t count) {
    nd_device before = nd_get_default_device();
    assert_ok(nd_set_default_device(device));
    nd_tensor *tensor = nd_ones(ND_SHAPE(count), ND_F32);
    assert_ok(nd_set_default_device(before));
    assert_handle(tensor);
    return tensor;
}
#endif
