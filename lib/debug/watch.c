// History of the retains and releases of one object.
//
// Invariant: an object carries the bias exactly while a watch with it is in `watches`; both change
// together under watch_lock. Under that lock a watch's object is valid memory: whoever released it
// last must take the lock, and the bias off, before it can be destroyed. Notes may come from inside
// the gate and under locks of the core, so nothing of the core is called here and nothing is
// allocated.
#include "lib/object/watch.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/locale.h"
#include "lib/base/lock.h"
#include "lib/debug/text.h"
#include "lib/object/object.h"
#include <execinfo.h>
#include <inttypes.h>
#include <nd/debug.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KEPT_EVENTS = 256, FRAMES = 12, SKIPPED_FRAMES = 1, BIGGEST_COUNT = 1 << 30 };

typedef struct event {
    nd__watch_kind kind;
    uint32_t count;
    int thread;
    int frame_count;
    uint64_t at; ///< nanoseconds since the watch began
    void *frames[FRAMES];
} event;

struct nd_watch {
    nd_watch *next;
    nd_object *object; ///< not held; NULL once it is dead
    uint64_t began, events;
    char what[96];
    event kept[KEPT_EVENTS]; ///< the latest, a ring
};

static nd_lock watch_lock;
ND__FORK_LOCK(ND__FORK_WATCH, watch_lock);
static nd_watch *watches;

/// The place in the list where the object's watch is, or would be.
static nd_watch **find(const nd_object *object) {
    nd_watch **place = &watches;
    while (*place && (*place)->object != object)
        place = &(*place)->next;
    return place;
}

/// Takes the watch out of the list and the bias off its object.
static void end(nd_watch **place) {
    nd_watch *watch = *place;
    *place = watch->next;
    nd__atomic_subtract(&watch->object->word, ND__WATCH_BIAS);
    watch->object = NULL;
}

static void fill(event *event, nd__watch_kind kind, uint32_t count) {
    event->kind = kind;
    event->count = count;
    event->thread = (int)syscall(SYS_gettid);
    event->frame_count = backtrace(event->frames, FRAMES);
}

static void append(nd_watch *watch, const event *event) {
    struct event *place = &watch->kept[watch->events++ % KEPT_EVENTS];
    *place = *event;
    place->at = nd__clock_now_ns() - watch->began;
}

/// What nd__watch_note is while anything has ever been watched.
static void note(const nd_object *object, nd__watch_kind kind, uint32_t count) {
    event event;
    fill(&event, kind, count);
    nd__lock_acquire(&watch_lock);
    nd_watch **place = find(object);
    if (*place) {
        append(*place, &event);
        if (kind == ND__WATCH_GARBAGE || (kind == ND__WATCH_RELEASE && count == 0))
            end(place);
    }
    nd__lock_release(&watch_lock);
}

nd_watch *nd_debug_watch(const void *handle) {
    if (!handle) {
        nd__error_null("debug_watch", "object");
        return NULL;
    }
    nd_object *object = (nd_object *)(uintptr_t)handle;
    nd_watch *watch = nd__alloc(sizeof *watch);
    if (!watch) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_watch: no memory for a history of %d events",
                  (int)KEPT_EVENTS);
        return NULL;
    }
    char name[64];
    nd_get_name(object, name, sizeof name);
    snprintf(watch->what, sizeof watch->what, "%s%s%s%s", nd__object_text(object),
             name[0] ? "(" : "", name, name[0] ? ")" : "");
    watch->events = 0;
    watch->began = nd__clock_now_ns();
    event event;
    fill(&event, ND__WATCH_BEGIN,
         0); // the first backtrace of a program may allocate: not in `note`
    nd__lock_acquire(&watch_lock);
    uint32_t count = nd_get_count(object);
    bool refused = *find(object) || count > BIGGEST_COUNT;
    if (!refused) {
        nd__atomic_store(&nd__watch_note, note, release);
        event.count = count;
        append(watch, &event);
        watch->object = object;
        watch->next = watches;
        watches = watch;
        nd__atomic_add_relaxed(&object->word, ND__WATCH_BIAS);
    }
    nd__lock_release(&watch_lock);
    if (!refused)
        return watch;
    nd__error(ND_ERROR_STATE, "debug_watch: the %s is being watched already", watch->what);
    nd__alloc_free(watch);
    return NULL;
}

void nd_watch_end(nd_watch *watch) {
    if (!watch)
        return;
    nd__lock_acquire(&watch_lock);
    if (watch->object)
        end(find(watch->object));
    nd__lock_release(&watch_lock);
    nd__alloc_free(watch);
}

// -------------------------------------------------------------------------------------------- text

static void write_event(FILE *stream, const event *event) {
    static const char *const names[] = {"watched", "retain", "release", "upgrade", "garbage"};
    locale_t before = nd__locale_begin_plain();
    fprintf(stream, "  %10.3f ms  thread %d  %-8scount %" PRIu32 "\n", (double)event->at / 1e6,
            event->thread, names[event->kind], event->count);
    nd__locale_end(before);
    // Allocates, so it waits until the text is made.
    char **symbols = backtrace_symbols((void *const *)event->frames, event->frame_count);
    for (int i = SKIPPED_FRAMES; i < event->frame_count; i++) {
        const char *symbol = symbols ? symbols[i] : "?";
        const char *slash = strrchr(symbol, '/');
        fprintf(stream, "      %s\n", slash ? slash + 1 : symbol);
    }
    free(symbols);
}

nd_status nd_watch_write(const nd_watch *watch, FILE *stream) {
    ND__UNCANCELLED;
    if (!watch || !stream)
        return nd__error_null("watch_write", watch ? "stream" : "watch");
    nd_watch *copy = nd__alloc(sizeof *copy);
    nd__text out = {0};
    if (!copy || !nd__text_begin(&out)) {
        nd__alloc_free(copy);
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "watch_write: no memory for the text");
    }
    nd__lock_acquire(&watch_lock);
    memcpy(copy, watch, sizeof *copy);
    uint32_t count = watch->object ? nd_get_count(watch->object) : 0;
    nd__lock_release(&watch_lock);
    fprintf(out.stream, "history of %s: %" PRIu64 " events, ",
            nd__text_plain((char[ND__TEXT_PLAIN]){0}, copy->what), copy->events);
    if (copy->object)
        fprintf(out.stream, "count %" PRIu32 " now\n", count);
    else
        fputs("dead\n", out.stream);
    uint64_t first = copy->events > KEPT_EVENTS ? copy->events - KEPT_EVENTS : 0;
    if (first)
        fprintf(out.stream, "  (the first %" PRIu64 " are forgotten)\n", first);
    for (uint64_t i = first; i < copy->events; i++)
        write_event(out.stream, &copy->kept[i % KEPT_EVENTS]);
    nd__alloc_free(copy);
    return nd__text_end(&out, "watch_write", stream);
}
