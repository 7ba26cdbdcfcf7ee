// Calls about managers, the collector and memory under pressure.
#include "lib/device/fake/fake.h"
#include "tests/fuzz/program.h"
#include <stdlib.h>

/// A manager, or NULL for the root where a call takes that.
static nd_manager *manager_or_root(fuzz_actor *me, uint8_t number) {
    return number % 16 == 15 ? NULL : fuzz_manager(me, number);
}

static void new_manager(fuzz_actor *me, const fuzz_step *s) {
    static const char *const names[] = {"a", NULL, "with \"quotes\"", "b"};
    nd_manager *manager = nd_manager_new(manager_or_root(me, s->b), names[s->c % 4]);
    fuzz_expect(me, manager);
    fuzz_put(me, FUZZ_MANAGER, s->a, manager);
}

static void manager_block_begin(fuzz_actor *me, const fuzz_step *s) {
    if (me->manager_block_count < FUZZ_BLOCKS)
        me->manager_blocks[me->manager_block_count++] =
            nd__manager_block_begin(fuzz_manager(me, s->a));
}

static void manager_block_end(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    if (me->manager_block_count)
        nd__manager_block_end(&me->manager_blocks[--me->manager_block_count]);
}

static void manager_look(fuzz_actor *me, const fuzz_step *s) {
    const nd_manager *manager = fuzz_manager(me, s->a);
    const nd_manager *parent = nd_manager_get_parent(manager);
    if (manager && !parent && manager != nd_manager_get_root())
        fuzz_die("a manager without a parent");
    nd_manager_get_name(manager);
    if (!nd_manager_is_open(nd_manager_get_current()) && !fuzz_threaded && !me->disturbed &&
        me->depth == 0 && !me->manager_block_count)
        fuzz_die("the current manager is closed");
    if (nd_manager_get_total_objects(manager) == UINT64_MAX)
        fuzz_expect(me, false);
    if (nd_manager_get_total_bytes(manager) > UINT64_C(1) << 40)
        fuzz_die("a manager holds bytes that nobody has");
}

static void manager_of(fuzz_actor *me, const fuzz_step *s) {
    const void *object = fuzz_pick_any(me, s->a);
    const nd_manager *manager = nd_get_manager(object);
    if (manager && !nd_manager_is_open(manager) && !me->disturbed && me->depth == 0)
        fuzz_die("an object is in a closed manager");
}

/// A handle of the manager, which is the one that is asked for unless that is about to close.
static void manager_of_retained(fuzz_actor *me, const fuzz_step *s) {
    nd_manager *manager = nd_get_manager_retained(fuzz_pick_any(me, s->b));
    fuzz_expect(me, true);
    if (manager && nd_get_count(manager) == 0)
        fuzz_die("a handle of a dead manager was handed out");
    fuzz_put(me, FUZZ_MANAGER, s->a, manager);
}

// --------------------------------------------------------------------------------------- placement

/// Where the object is afterwards, or still is.
static void attach_with(fuzz_actor *me, const fuzz_step *s,
                        nd_status (*attach)(const nd_manager *, const void *)) {
    void *object = fuzz_pick_any(me, s->b);
    nd_manager *manager = fuzz_manager(me, s->a);
    const nd_manager *before = fuzz_threaded ? NULL : nd_get_manager(object);
    nd_status status = attach(manager, object);
    fuzz_expect(me, status == ND_OK);
    if (!fuzz_threaded && !me->disturbed &&
        nd_get_manager(object) != (status == ND_OK ? manager : before))
        fuzz_die("an object is not where an attach that %s says",
                 status == ND_OK ? "worked" : "failed");
}

static void attach(fuzz_actor *me, const fuzz_step *s) {
    attach_with(me, s, nd_manager_attach);
}

static void temp_attach(fuzz_actor *me, const fuzz_step *s) {
    attach_with(me, s, nd_manager_lend);
}

static void manager_close(fuzz_actor *me, const fuzz_step *s) {
    nd_manager *manager = fuzz_manager(me, s->a);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_status status = nd_manager_close(manager, s->b % 2 ? &report : NULL);
    fuzz_expect(me, status == ND_OK);
    if (status == ND_OK && nd_manager_is_open(manager))
        fuzz_die("a closed manager is open");
}

/// Closes what is attached, operands of an operation further up included; so not from inside a
/// callback.
static void manager_dispose(fuzz_actor *me, const fuzz_step *s) {
    nd_manager *manager = fuzz_manager(me, s->a);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    fuzz_expect(me, nd_manager_dispose(manager, s->b % 2 ? &report : NULL) == ND_OK);
}

// ------------------------------------------------------------------------------------------ bounds

static void set_cap(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_manager_set_cap(fuzz_manager(me, s->a), s->b % 16) == ND_OK);
}

static void set_quota(fuzz_actor *me, const fuzz_step *s) {
    static const uint64_t quotas[] = {0, 1, 40, 200, 1000, 4096, 100000, UINT64_MAX};
    nd_device_kind kind = (nd_device_kind)(s->b % (ND_FAKE + 2));
    fuzz_expect(me, nd_manager_set_quota(fuzz_manager(me, s->a), kind, quotas[s->c % 8]) == ND_OK);
}

/// Gives up what a slot of the thread holds.
static bool give_up(const nd_memory_pressure *pressure, void *data) {
    uint8_t slot = (uint8_t)(uintptr_t)data;
    if (!nd_manager_get_name(pressure->manager))
        fuzz_die("a callback is asked by a manager without a name");
    fuzz_nest();
    nd_tensor *given = fuzz_me && !fuzz_me->quiet ? fuzz_take(fuzz_me, FUZZ_TENSOR, slot) : NULL;
    nd_release(given);
    return given != NULL;
}

static void forget(void *data) {
    (void)data;
    fuzz_nest();
}

static void memory_callback(fuzz_actor *me, const fuzz_step *s) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    callback.data = (void *)(uintptr_t)s->b;
    callback.free = forget;
    nd_status status =
        nd_memory_set_callback(manager_or_root(me, s->a), s->c % 4 ? &callback : NULL);
    fuzz_expect(me, status == ND_OK);
}

static void memory_stats(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    fuzz_expect(me, nd_memory_get_stats(&stats) == ND_OK);
    uint64_t ended = stats.failures;
    for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT; stage++)
        ended += stats.stages[stage].enough;
    if (!fuzz_threaded && me->depth == 0 && stats.walks != ended)
        fuzz_die("walks on the ladder do not add up");
}

// --------------------------------------------------------------------------------------- collector

static void set_mode(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_gc_set_mode((nd_gc_mode)(s->a % 5) - 1) == ND_OK);
}

static void set_manager_mode(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_manager_set_gc_mode(fuzz_manager(me, s->a), (nd_gc_mode)(s->b % 5) - 1) ==
                        ND_OK);
}

static void set_policy(fuzz_actor *me, const fuzz_step *s) {
    static const uint64_t values[] = {ND_GC_INHERITED, ND_GC_ADAPTIVE, 0, 1, 100, 3,
                                      1000000,         ND_GC_INHERITED};
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.allocated_bytes[ND_CPU] = values[s->b % 8];
    policy.allocated_bytes[ND_FAKE] = values[s->b / 8 % 8];
    policy.tracked_objects = values[s->c % 8];
    policy.interval_ns = values[s->c / 8 % 8];
    policy.pause_ns = values[s->d % 8];
    policy.boundary = values[s->d / 8 % 8];
    fuzz_expect(me, nd_manager_set_gc_policy(manager_or_root(me, s->a), &policy) == ND_OK);
}

static void get_policy(fuzz_actor *me, const fuzz_step *s) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    fuzz_expect(me, nd_manager_get_gc_policy(manager_or_root(me, s->a), &policy) == ND_OK);
    if (policy.boundary == ND_GC_INHERITED && nd_error_get_status() == ND_OK)
        fuzz_die("a policy in effect inherits");
}

static void collect(fuzz_actor *me, const fuzz_step *s) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    fuzz_expect(me, nd_gc_collect(manager_or_root(me, s->a), &report) == ND_OK);
    if (report.broken_objects)
        fuzz_die("a collection says that a type lies");
}

static void cycle_found(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)bytes;
    (void)data;
    if (!path[0] || objects == 0)
        fuzz_die("a cycle without a path or objects");
}

static void set_cycle_callback(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    nd_gc_set_cycle_callback(cycle_found, NULL);
    fuzz_expect(me, true);
}

static void gc_stats(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    nd_gc_stats stats = ND_GC_STATS_INIT;
    fuzz_expect(me, nd_gc_get_stats(&stats) == ND_OK);
    if (stats.collected_objects > stats.examined_objects)
        fuzz_die("the collector collected more than it examined");
    if (s->a % 2)
        nd_gc_reset_peak();
    if (nd_gc_get_mode() == ND_GC_INHERIT)
        fuzz_die("the root's mode inherits");
}

const fuzz_call fuzz_manager_calls[] = {
    {"new_manager", new_manager, FUZZ_QUEUES},
    {"manager_block_begin", manager_block_begin, FUZZ_OUTER | FUZZ_QUEUES},
    {"manager_block_end", manager_block_end, FUZZ_OUTER | FUZZ_QUEUES},
    {"manager_look", manager_look, FUZZ_QUEUES},
    {"manager_of", manager_of, FUZZ_ALONE | FUZZ_QUEUES},
    {"manager_of_retained", manager_of_retained, FUZZ_QUEUES},
    {"attach", attach, FUZZ_QUEUES},
    {"temp_attach", temp_attach, FUZZ_QUEUES},
    {"manager_close", manager_close, 0},
    {"manager_dispose", manager_dispose, FUZZ_OUTER | FUZZ_ALONE},
    {"set_cap", set_cap, FUZZ_QUEUES},
    {"set_quota", set_quota, FUZZ_QUEUES},
    {"memory_callback", memory_callback, FUZZ_QUEUES},
    {"memory_stats", memory_stats, FUZZ_QUEUES},
    {"set_mode", set_mode, FUZZ_QUEUES},
    {"set_manager_mode", set_manager_mode, FUZZ_QUEUES},
    {"set_policy", set_policy, FUZZ_QUEUES},
    {"get_policy", get_policy, FUZZ_QUEUES},
    {"collect", collect, 0},
    {"set_cycle_callback", set_cycle_callback, FUZZ_QUEUES},
    {"gc_stats", gc_stats, FUZZ_QUEUES},
    {0},
};
