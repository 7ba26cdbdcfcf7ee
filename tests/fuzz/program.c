// Runs programs: the table of all calls, one step with its checks, the beginning and the end.
#include "tests/fuzz/program.h"
#include "lib/base/alloc.h"
#include "lib/device/fake/fake.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLS_MAX = 1024, NESTED_MAX = 3 };

bool fuzz_threaded, fuzz_traced;
_Thread_local fuzz_actor *fuzz_me;

static const fuzz_call *calls[CALLS_MAX];
static unsigned call_count;

// ------------------------------------------------------------------------------------------- calls

static void gather(const fuzz_call *table) {
    for (; table->name; table++) {
        if (call_count == CALLS_MAX)
            fuzz_die("there are more calls than the table holds");
        calls[call_count++] = table;
    }
}

static void gather_all(void) {
    if (call_count)
        return;
    gather(fuzz_object_calls);
    gather(fuzz_manager_calls);
    gather(fuzz_tensor_calls);
    gather(fuzz_operation_calls);
    gather(fuzz_autograd_calls);
    gather(fuzz_nn_calls);
    gather(fuzz_report_calls);
    gather(fuzz_device_calls);
    gather(fuzz_map_calls);
    gather(fuzz_indexing_calls);
    gather(fuzz_linalg_calls);
    gather(fuzz_elementwise_calls);
    gather(fuzz_network_calls);
    gather(fuzz_fft_calls);
    gather(fuzz_layer_calls);
    gather(fuzz_training_calls);
    gather(fuzz_stream_calls);
    gather(fuzz_memory_calls);
    fuzz_traced = getenv("ND_FUZZ_TRACE") != NULL;
}

const char *fuzz_call_name(unsigned call) {
    gather_all();
    return calls[call % call_count]->name;
}

int fuzz_call_number(const char *name, size_t length) {
    gather_all();
    for (unsigned i = 0; i < call_count; i++)
        if (strlen(calls[i]->name) == length && memcmp(calls[i]->name, name, length) == 0)
            return (int)i;
    return -1;
}

void fuzz_write_step(FILE *stream, const fuzz_step *step) {
    const uint8_t numbers[] = {step->a, step->b, step->c, step->d};
    int last = 3;
    while (last >= 0 && numbers[last] == 0)
        last--;
    fputs(fuzz_call_name(fuzz_step_call(step)), stream);
    for (int i = 0; i <= last; i++)
        fprintf(stream, " %u", numbers[i]);
    fputc('\n', stream);
}

size_t fuzz_steps(const uint8_t *data, size_t size, fuzz_step *ret_steps) {
    size_t count = size / sizeof(fuzz_step);
    if (count > FUZZ_STEPS_MAX)
        count = FUZZ_STEPS_MAX;
    if (count)
        memcpy(ret_steps, data, count * sizeof(fuzz_step));
    return count;
}

// ------------------------------------------------------------------------- allocations that fail

static bool fail(size_t bytes) {
    (void)bytes;
    fuzz_actor *me = fuzz_me;
    if (!me || !me->fail_count)
        return false;
    if (me->fail_after) {
        me->fail_after--;
        return false;
    }
    me->fail_count--;
    return true;
}

void fuzz_disarm(fuzz_actor *me) {
    me->fail_count = 0;
}

/// Number a of fail_allocations says how many succeed before, its eighths how many fail then;
/// number b says how many times eight more succeed before.
static void arm(fuzz_actor *me) {
    me->fail_after = me->fail_armed % 8 + me->fail_armed / 256 * 8;
    me->fail_count = me->fail_armed ? 1 + me->fail_armed % 256 / 8 : 0;
    me->fail_armed = 0;
}

// ------------------------------------------------------------------------------------------- steps

/// What does not fit in a manager's statistics; NULL when all does.
static const char *find_misfit(const nd_manager *manager) {
    nd_manager_stats s = ND_MANAGER_STATS_INIT;
    if (nd_manager_get_stats(manager, &s) != ND_OK)
        fuzz_die("statistics fail: %s", nd_error_get_message());
    if (s.created_objects + s.arrived_objects !=
        s.freed_objects + s.collected_objects + s.departed_objects + s.live_objects)
        return "a manager's objects do not add up";
    if (s.tracked_objects > s.live_objects || s.escaped_objects > s.departed_objects)
        return "a manager counts more tracked or escaped objects than there are";
    for (int kind = 0; kind <= (int)ND_FAKE; kind++)
        if (s.peak_bytes[kind] < s.subtree_bytes[kind] ||
            s.live_bytes[kind] > s.subtree_bytes[kind])
            return "a manager's bytes do not fit each other";
    return NULL;
}

/// A device's thread that releases something between two sums is soon done; a misfit stays.
static void check_counters(const nd_manager *manager) {
    const char *misfit = find_misfit(manager);
    for (int tries = 0; misfit && tries < 1000; tries++) {
        usleep(1000);
        misfit = find_misfit(manager);
    }
    if (misfit)
        fuzz_die("%s", misfit);
}

/// What must hold after every call of the outermost level, with no other thread of the program's.
static void check_world(fuzz_actor *me) {
    nd_error_clear();
    if (nd_debug_check() != ND_OK)
        fuzz_die("after %s: %s", fuzz_call_name(fuzz_step_call(&me->steps[me->next - 1])),
                 nd_error_get_message());
    for (int i = 0; i < FUZZ_SLOTS; i++)
        if (me->slots[FUZZ_MANAGER][i].handle)
            check_counters(me->slots[FUZZ_MANAGER][i].handle);
    check_counters(NULL);
    for (int kind = 0; kind < FUZZ_KINDS; kind++)
        for (int i = 0; i < FUZZ_SLOTS; i++)
            if (me->slots[kind][i].handle && nd_get_count(me->slots[kind][i].handle) == 0)
                fuzz_die("an object in a slot is dead");
}

static void trace(const fuzz_actor *me, const fuzz_step *step) {
    fprintf(stderr, "%u %*s", me->number, (int)me->depth * 2, "");
    fuzz_write_step(stderr, step);
}

static bool may_run(const fuzz_actor *me, const fuzz_call *call) {
    return !(call->flags & FUZZ_OUTER && me->depth) && !(call->flags & FUZZ_ALONE && fuzz_threaded);
}

void fuzz_run_step(fuzz_actor *me) {
    const fuzz_step *step = &me->steps[me->next++];
    const fuzz_call *call = calls[fuzz_step_call(step) % call_count];
    if (!may_run(me, call))
        return;
    if (fuzz_traced)
        trace(me, step);
    if (me->paused && !(call->flags & FUZZ_QUEUES)) {
        me->paused = false;
        nd__fake_resume(0);
    }
    unsigned pinned = me->pinned_count;
    if (me->depth == 0) {
        me->disturbed = false;
        nd_error_clear();
        arm(me);
    }
    call->run(me, step);
    while (me->pinned_count > pinned)
        me->pinned[--me->pinned_count]->pins--;
    if (me->depth == 0) {
        fuzz_disarm(me);
        if (!fuzz_threaded)
            check_world(me);
    }
}

void fuzz_nest(void) {
    fuzz_actor *me = fuzz_me;
    if (!me || me->quiet || me->depth >= NESTED_MAX || me->next >= me->count)
        return;
    me->disturbed = true;
    me->depth++;
    fuzz_run_step(me);
    me->depth--;
}

// --------------------------------------------------------------------------------- begin and end

static void leave_streams(fuzz_actor *me) {
    const nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}};
    for (int i = 0; i < 3; i++) {
        nd_stream_set_current(devices[i], NULL);
        nd_release(me->current_streams[i]);
        me->current_streams[i] = NULL;
    }
}

void fuzz_end_blocks(fuzz_actor *me, bool leave) {
    me->quiet = true;
    if (me->paused)
        nd__fake_resume(0);
    me->paused = false;
    while (me->grad_block_count)
        nd__grad_block_end(&me->grad_blocks[--me->grad_block_count]);
    while (me->manager_block_count)
        nd__manager_block_end(&me->manager_blocks[--me->manager_block_count]);
    while (me->autocast_block_count)
        nd__autocast_block_end(&me->autocast_blocks[--me->autocast_block_count]);
    while (me->stream_block_count)
        nd__stream_block_end(&me->stream_blocks[--me->stream_block_count]);
    leave_streams(me);
    if (me->scope_count && !leave)
        nd_scope_end(me->scopes[0]);
    me->scope_count = 0;
    nd_snapshot_free(me->snapshot);
    me->snapshot = NULL;
    nd_watch_end(me->watch);
    me->watch = NULL;
    if (me->balance)
        nd_balance_end(me->balance, NULL, NULL);
    me->balance = NULL;
    nd_set_default_device((nd_device){ND_CPU, 0});
}

static uint64_t objects_before, bytes_before;
static int threads_before;

void fuzz_begin_program(bool threaded) {
    gather_all();
    nd__alloc_should_fail = fail;
    fuzz_threaded = threaded;
    threads_before = nd_get_num_threads();
    objects_before = nd_manager_get_total_objects(NULL);
    bytes_before = nd_manager_get_total_bytes(NULL);
}

static void reset_root(void) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    nd_manager_set_gc_policy(NULL, &policy);
    nd_gc_set_mode(ND_GC_OFF);
    nd_gc_set_cycle_callback(NULL, NULL);
    nd_memory_set_callback(NULL, NULL);
    for (int kind = 0; kind <= (int)ND_FAKE; kind++)
        nd_manager_set_quota((nd_manager *)(uintptr_t)nd_manager_get_root(), (nd_device_kind)kind,
                             0);
    nd_manager_set_cap((nd_manager *)(uintptr_t)nd_manager_get_root(), 0);
    nd_memory_set_cache_limit(ND_CPU, UINT64_MAX);
    nd_memory_set_cache_limit(ND_FAKE, UINT64_MAX);
    for (int index = 0; index < ND__FAKE_DEVICES; index++) {
        nd_memory_set_limit((nd_device){ND_FAKE, index}, UINT64_MAX);
        nd__fake_set_memory(index, 0, false);
    }
    nd_set_num_threads(threads_before);
    nd_set_deterministic(false);
    nd_set_tf32(false);
    nd_debug_track_sites(true);
    if (nd_trace_end() != ND_OK)
        nd_error_clear();
}

static void report_left(void) {
    nd_debug_dump_json(NULL, stderr, 0);
    fuzz_die("left behind: %lld objects, %lld bytes, %lld cells",
             (long long)(nd_manager_get_total_objects(NULL) - objects_before),
             (long long)(nd_manager_get_total_bytes(NULL) - bytes_before),
             (long long)fuzz_cells_alive());
}

void fuzz_end_program(void) {
    reset_root();
    fuzz_remove_files();
    for (int index = 0; index < ND__FAKE_DEVICES; index++)
        nd_synchronize((nd_device){ND_FAKE, index});
    if (nd_gc_collect(NULL, NULL) != ND_OK)
        fuzz_die("the last collection fails: %s", nd_error_get_message());
    for (int index = 0; index < ND__FAKE_DEVICES; index++)
        nd_synchronize((nd_device){ND_FAKE, index});
    nd_error_clear();
    if (nd_debug_check() != ND_OK)
        fuzz_die("at the end: %s", nd_error_get_message());
    if (nd_manager_get_total_objects(NULL) != objects_before ||
        nd_manager_get_total_bytes(NULL) != bytes_before || fuzz_cells_alive() != 0)
        report_left();
    for (int index = 0; index < ND__FAKE_DEVICES; index++)
        if (nd__fake_live_blocks(index) != 0)
            fuzz_die("the fake device %d has blocks left", index);
}
