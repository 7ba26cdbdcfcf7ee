// Calls that ask what is alive, to a stream that takes everything or to one that is always full.
#include "tests/fuzz/program.h"

/// Lent to each report, and closed by close_stream.
static FILE *open_stream(const fuzz_step *s) {
    FILE *stream = fopen(s->d % 4 == 3 ? "/dev/full" : "/dev/null", "w");
    if (!stream)
        fuzz_die("there is no stream");
    setvbuf(stream, NULL, _IONBF, 0);
    return stream;
}

static nd_manager *top(fuzz_actor *me, const fuzz_step *s) {
    return s->a % 4 ? NULL : fuzz_manager(me, s->a / 4);
}

static void dump(fuzz_actor *me, const fuzz_step *s) {
    FILE *stream = open_stream(s);
    nd_manager *manager = top(me, s);
    nd_status status = s->b % 3 == 0   ? nd_debug_dump(manager, stream)
                       : s->b % 3 == 1 ? nd_debug_dump_json(manager, stream, s->c % 4)
                                       : nd_debug_dump_dot(manager, stream, s->c % 4);
    fuzz_expect(me, status == ND_OK);
    fclose(stream);
}

/// UINT64_MAX when there was no memory.
static uint64_t total_objects(fuzz_actor *me, nd_manager *manager) {
    uint64_t total = nd_manager_get_total_objects(manager);
    fuzz_expect(me, total != UINT64_MAX);
    nd_error_clear();
    return total;
}

/// A device's thread may release an object at any time: what must agree is asked before and after.
static void leaks(fuzz_actor *me, const fuzz_step *s) {
    FILE *stream = open_stream(s);
    nd_manager *manager = top(me, s);
    uint64_t before = total_objects(me, manager);
    uint64_t alive = nd_debug_report_leaks(manager, s->b % 2 ? stream : NULL, s->c % 4);
    fuzz_expect(me, alive != UINT64_MAX);
    nd_error_clear();
    uint64_t after = total_objects(me, manager);
    bool known = alive != UINT64_MAX && before != UINT64_MAX && after != UINT64_MAX;
    if (known && !fuzz_threaded &&
        ((alive < before && alive < after) || (alive > before && alive > after)))
        fuzz_die("a leak report counts other objects than the managers");
    fclose(stream);
}

static void holders(fuzz_actor *me, const fuzz_step *s) {
    FILE *stream = open_stream(s);
    nd_holders found = ND_HOLDERS_INIT;
    const void *object = fuzz_pick_any(me, s->a);
    nd_status status = nd_debug_get_holders(object, s->b % 2 ? stream : NULL, &found);
    fuzz_expect(me, status == ND_OK);
    if (status == ND_OK && (found.edges + found.handles != found.count ||
                            found.held_edges + found.cycle_edges > found.edges))
        fuzz_die("the holders of an object do not add up");
    if (status == ND_OK && !fuzz_threaded && found.handles == 0)
        fuzz_die("an object in a slot has no handle");
    fclose(stream);
}

/// The same as text alone.
static void holders_text(fuzz_actor *me, const fuzz_step *s) {
    FILE *stream = open_stream(s);
    fuzz_expect(me, nd_debug_holders(fuzz_pick_any(me, s->a), stream) == ND_OK);
    fclose(stream);
}

static void snapshot_new(fuzz_actor *me, const fuzz_step *s) {
    nd_snapshot_free(me->snapshot);
    me->snapshot = nd_snapshot_new(top(me, s));
    fuzz_expect(me, me->snapshot);
}

static void snapshot_difference(fuzz_actor *me, const fuzz_step *s) {
    FILE *stream = open_stream(s);
    nd_difference difference = ND_DIFFERENCE_INIT;
    nd_snapshot *now = nd_snapshot_new(top(me, s));
    if (now && me->snapshot)
        fuzz_expect(me, nd_snapshot_difference(me->snapshot, now, s->b % 2 ? stream : NULL,
                                               s->c % 4, &difference) == ND_OK);
    nd_snapshot_free(now);
    fclose(stream);
}

static void balance_begin(fuzz_actor *me, const fuzz_step *s) {
    if (me->balance)
        return;
    me->balance = nd_balance_begin(top(me, s), __FILE__, __LINE__);
    fuzz_expect(me, me->balance);
}

static void balance_end(fuzz_actor *me, const fuzz_step *s) {
    if (!me->balance)
        return;
    FILE *stream = open_stream(s);
    nd_difference difference = ND_DIFFERENCE_INIT;
    nd_balance *ended = me->balance;
    me->balance = NULL;
    fuzz_expect(me, nd_balance_end(ended, s->b % 2 ? stream : NULL, &difference) == ND_OK);
    fclose(stream);
}

static void watch(fuzz_actor *me, const fuzz_step *s) {
    if (me->watch) {
        FILE *stream = open_stream(s);
        fuzz_expect(me, nd_watch_write(me->watch, stream) == ND_OK);
        fclose(stream);
        if (s->b % 2)
            return;
        nd_watch_end(me->watch);
        me->watch = NULL;
    } else {
        me->watch = nd_debug_watch(fuzz_pick_any(me, s->a));
        fuzz_expect(me, me->watch);
    }
}

static void trace(fuzz_actor *me, const fuzz_step *s) {
    nd_status status = s->a % 2 ? nd_trace_begin("/dev/null") : nd_trace_end();
    fuzz_expect(me, status == ND_OK);
}

static void site(fuzz_actor *me, const fuzz_step *s) {
    char text[64];
    nd_debug_get_site(fuzz_pick_any(me, s->a), text, s->b % sizeof text);
    if (s->c % 8 == 7)
        nd_debug_track_sites(s->c / 8 % 2);
}

static uint64_t live_objects(fuzz_actor *me, nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    fuzz_expect(me, nd_manager_get_stats(manager, &stats) == ND_OK);
    return stats.live_objects;
}

/// Below some manager, which nobody need have named to nd_debug_check.
static void totals(fuzz_actor *me, const fuzz_step *s) {
    nd_manager *manager = top(me, s);
    uint64_t before = live_objects(me, manager);
    uint64_t total = total_objects(me, manager);
    uint64_t after = live_objects(me, manager);
    if (!fuzz_threaded && total < before && total < after)
        fuzz_die("a manager has more objects than it and those below it together");
}

const fuzz_call fuzz_report_calls[] = {
    {"dump", dump, FUZZ_QUEUES},
    {"leaks", leaks, FUZZ_QUEUES},
    {"holders", holders, FUZZ_QUEUES},
    {"holders_text", holders_text, FUZZ_QUEUES},
    {"snapshot_new", snapshot_new, FUZZ_OUTER | FUZZ_QUEUES},
    {"snapshot_difference", snapshot_difference, FUZZ_OUTER | FUZZ_QUEUES},
    {"balance_begin", balance_begin, FUZZ_OUTER | FUZZ_QUEUES},
    {"balance_end", balance_end, FUZZ_OUTER | FUZZ_QUEUES},
    {"watch", watch, FUZZ_OUTER | FUZZ_QUEUES},
    {"trace", trace, FUZZ_OUTER | FUZZ_QUEUES},
    {"site", site, FUZZ_ALONE | FUZZ_QUEUES},
    {"totals", totals, FUZZ_QUEUES},
    {0},
};
