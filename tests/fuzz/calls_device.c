// Calls about devices: where tensors are made, callbacks in their queues, a paused queue, little
// memory; and allocations that fail.
#include "lib/device/fake/fake.h"
#include "tests/fuzz/program.h"

static void default_device(fuzz_actor *me, const fuzz_step *s) {
    const nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}, {ND_FAKE, -1}};
    fuzz_expect(me, nd_set_default_device(devices[s->a % 4]) == ND_OK);
}

static void synchronize(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me,
                nd_synchronize((nd_device){s->a % 3 ? ND_FAKE : ND_CPU, s->a / 3 % 2}) == ND_OK);
}

/// On a device's thread: gives up what it was handed.
static void release_there(void *data) {
    nd_object_release(data);
    fuzz_nest(); // on the CPU it runs on this thread: what is not allowed there must be refused
}

static void queue_callback(fuzz_actor *me, const fuzz_step *s) {
    const nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}, {ND_FAKE, 5}};
    void *kept = s->c % 2 ? fuzz_pick_any(me, s->c) : NULL;
    void *data = s->b % 4 ? fuzz_take(me, (fuzz_kind)(s->b / FUZZ_SLOTS % FUZZ_KINDS), s->b) : NULL;
    nd_status status = nd_queue_callback(devices[s->a % 4], release_there, data, kept);
    fuzz_expect(me, status == ND_OK);
    if (status != ND_OK)
        nd_object_release(data);
}

/// Until the next call that waits for a device.
static void pause(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    if (me->paused)
        return;
    nd__fake_pause(0);
    me->paused = true;
}

static void little_memory(fuzz_actor *me, const fuzz_step *s) {
    static const uint64_t sizes[] = {0, 1, 64, 200, 1000, 5000, 100000, 0};
    (void)me;
    nd__fake_set_memory(s->a % 2, sizes[s->b % 8], s->c % 2);
}

static void fail_allocations(fuzz_actor *me, const fuzz_step *s) {
    me->fail_armed = s->a | (unsigned)s->b << 8;
}

const fuzz_call fuzz_device_calls[] = {
    {"default_device", default_device, FUZZ_QUEUES},
    {"synchronize", synchronize, 0},
    {"queue_callback", queue_callback, FUZZ_QUEUES},
    {"pause", pause, FUZZ_OUTER | FUZZ_ALONE | FUZZ_QUEUES},
    {"little_memory", little_memory, FUZZ_ALONE},
    {"fail_allocations", fail_allocations, FUZZ_OUTER},
    {0},
};
