// Trace of births, deaths, collections and boundaries as a file that Perfetto and chrome://tracing
// read.
//
// One event per line. The file is a JSON array that both viewers also read while it has no end, so
// what was written when a program was killed can be looked at; a normal end of the program closes
// it. Events are composed on the stack and copied to one buffer under one lock, under which nothing
// but write() is called: nothing is allocated, so a trace does not change what it shows. Its numbers
// are made of integers, since a locale may write 0.5 as 0,5, which is no JSON.
#include "lib/object/trace.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/kind.h"
#include "lib/base/lock.h"
#include "lib/debug/text.h"
#include "lib/debug/trace_file.h"
#include "lib/manager/account.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"
#include <errno.h>
#include <inttypes.h>
#include <nd/debug.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 18, EVENT_SIZE = 2048, TEXT_LIMIT = 160 };

static struct {
    nd_lock lock;
    bool open;
    int file;
    int error; ///< errno of the first write that failed; nothing is written after
    size_t used;
    char buffer[BUFFER_SIZE];
} trace = {.file = -1};

// ------------------------------------------------------------------------------------------ events

typedef struct event {
    char text[EVENT_SIZE];
    size_t used;
} event;

static void append(event *event, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(event *event, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof event->text - event->used;
    int written = vsnprintf(event->text + event->used, room, format, arguments);
    va_end(arguments);
    if (written > 0)
        event->used += (size_t)written < room ? (size_t)written : room - 1;
}

/// Text inside a JSON string, cut to a length at which an event always fits its buffer. What is not
/// plain ASCII is written as '?': a cut could otherwise split a character.
static void append_text(event *event, const char *text) {
    for (int i = 0; text[i] && i < TEXT_LIMIT; i++) {
        char c = text[i];
        if (c == '"' || c == '\\')
            append(event, "\\%c", c);
        else
            append(event, "%c", c < 0x20 || c > 0x7E ? '?' : c);
    }
}

static int thread_number(void) {
    static _Thread_local int number;
    if (number == 0)
        number = (int)syscall(SYS_gettid);
    return number;
}

/// Everything up to the arguments: `,"args":{` is open.
static void begin_event(event *event, const char *verb, const char *what, const char *category,
                        char phase, uint64_t at) {
    event->used = 0;
    append(event, "{\"name\":\"%s", verb);
    append_text(event, what);
    append(event, "\",\"cat\":\"%s\",\"ph\":\"%c\",\"ts\":%" PRIu64 ".%03u,\"pid\":%d,\"tid\":%d",
           category, phase, at / 1000, (unsigned)(at % 1000), (int)getpid(), thread_number());
    if (phase == 'i')
        append(event, ",\"s\":\"t\"");
    if (phase == 'X') {
        uint64_t length = nd__clock_now_ns() - at;
        append(event, ",\"dur\":%" PRIu64 ".%03u", length / 1000, (unsigned)(length % 1000));
    }
    append(event, ",\"args\":{");
}

static void write_out(void) {
    ND__UNCANCELLED;
    size_t done = 0;
    while (done < trace.used && trace.error == 0) {
        ssize_t written = nd__trace_file_write(trace.file, trace.buffer + done, trace.used - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EINTR)
            trace.error = errno;
    }
    trace.used = 0;
}

/// The trace's lock is held, and it is open.
static void put(const char *text, size_t size) {
    if (trace.used + size > sizeof trace.buffer)
        write_out();
    memcpy(trace.buffer + trace.used, text, size);
    trace.used += size;
}

static void end_event(event *event) {
    append(event, "}},\n");
    nd__lock_acquire(&trace.lock);
    if (trace.open)
        put(event->text, event->used);
    nd__lock_release(&trace.lock);
}

// ---------------------------------------------------------------------------------------- listener

static void append_object(event *event, const nd_object *object, const nd_manager *manager) {
    append(event, "\"object\":\"%p\",\"manager\":\"", (const void *)object);
    append_text(event, manager->name);
    append(event, "\"");
    if (nd__object_shows_bytes(object))
        append(event, ",\"bytes\":%" PRIu64, ((const nd_accounted *)object)->bytes);
    if (object->site) {
        char site[TEXT_LIMIT];
        nd__object_print_site(site, sizeof site, object->site);
        append(event, ",\"site\":\"");
        append_text(event, site);
        append(event, "\"");
    }
}

/// A counter of what is alive in the whole program, for the curve above the threads. `leaving`:
/// bytes that are still charged but about to go.
static void put_bytes(const nd_object *object, uint64_t leaving) {
    if (!nd__object_shows_bytes(object))
        return;
    nd_device_kind kind = ((const nd_accounted *)object)->kind;
    event event;
    begin_event(&event, "live bytes ", nd__kind_name(kind), "bytes", 'C', nd__clock_now_ns());
    append(&event, "\"bytes\":%" PRIu64, nd__account_bytes(&nd__manager_root, kind) - leaving);
    end_event(&event);
}

static void on_born(const nd_object *object, const nd_manager *manager) {
    event event;
    begin_event(&event, "alloc ", nd__object_text(object), "alloc", 'i', nd__clock_now_ns());
    append_object(&event, object, manager);
    end_event(&event);
    put_bytes(object, 0);
}

static void on_died(const nd_object *object, const nd_manager *manager, bool collected) {
    event event;
    begin_event(&event, collected ? "collect " : "free ", nd__object_text(object),
                collected ? "collect" : "free", 'i', nd__clock_now_ns());
    append_object(&event, object, manager);
    end_event(&event);
    put_bytes(object, (object->type->flags & ND__TYPE_ACCOUNTED)
                          ? ((const nd_accounted *)object)->bytes
                          : 0);
}

static void on_collected(nd_manager *const *managers, size_t count, uint64_t began,
                         const nd_gc_report *report) {
    event event;
    begin_event(&event, "collection of ", count ? managers[0]->name : "", "collection", 'X', began);
    append(&event,
           "\"managers\":%zu,\"examined\":%" PRIu64 ",\"collected\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"cycles\":%" PRIu64 ",\"revived\":%" PRIu64 ",\"gate_closed_us\":%" PRIu64 ".%03u",
           count, report->examined_objects, report->collected_objects, report->collected_bytes,
           report->cycles, report->revived_objects, report->gate_closed_ns / 1000,
           (unsigned)(report->gate_closed_ns % 1000));
    end_event(&event);
}

static void on_closed(const nd_manager *manager, uint64_t began, const nd_close_report *report) {
    event event;
    begin_event(&event, "close of ", manager->name, "boundary", 'X', began);
    append(&event,
           "\"freed\":%" PRIu64 ",\"collected\":%" PRIu64 ",\"escaped\":%" PRIu64
           ",\"escaped_bytes\":%" PRIu64 ",\"returned\":%" PRIu64,
           report->freed_objects, report->collected_objects, report->escaped_objects,
           report->escaped_bytes, report->returned_objects);
    end_event(&event);
}

static const nd__listener listener = {
    .now = nd__clock_now_ns,
    .born = on_born,
    .died = on_died,
    .collected = on_collected,
    .closed = on_closed,
};

// ------------------------------------------------------------------------------------------ public

/// The file belongs to the parent: the child neither writes what was buffered nor goes on.
static void after_fork(bool child) {
    if (!child)
        return;
    if (trace.open)
        close(trace.file);
    trace.open = false;
    trace.used = 0;
    nd__atomic_store(&nd__trace_listening, NULL, release);
}
ND__FORK_PART(fork_trace, ND__FORK_TRACE, &trace.lock, 1, sizeof trace.lock, NULL, after_fork,
              NULL);

nd_status nd_trace_begin(const char *path) {
    ND__UNCANCELLED;
    if (!path)
        return nd__error_null("trace_begin", "path");
    nd__lock_acquire(&trace.lock);
    bool taken = trace.open;
    const char *reason = NULL;
    if (!taken) {
        trace.file = nd__trace_file_open(path, &reason);
        trace.open = trace.file >= 0;
        trace.error = 0;
        trace.used = 0;
        if (trace.open)
            put("[\n", 2);
    }
    nd__lock_release(&trace.lock);
    if (taken)
        return nd__error(ND_ERROR_STATE, "trace_begin: a trace is being written already");
    if (reason)
        return nd__error(ND_ERROR_IO, "trace_begin: %s could not be opened: %s", path, reason);
    event event;
    begin_event(&event, "process_name", "", "__metadata", 'M', nd__clock_now_ns());
    append(&event, "\"name\":\"ndarc\"");
    end_event(&event);
    nd__atomic_store(&nd__trace_listening, &listener, release);
    return ND_OK;
}

nd_status nd_trace_end(void) {
    ND__UNCANCELLED;
    nd__atomic_store(&nd__trace_listening, NULL, release);
    nd__lock_acquire(&trace.lock);
    bool open = trace.open;
    int error = 0;
    if (open) {
        event event;
        begin_event(&event, "end of trace", "", "trace", 'i', nd__clock_now_ns());
        append(&event, "}}\n]\n");
        put(event.text, event.used);
        write_out();
        if (close(trace.file) != 0 && trace.error == 0)
            trace.error = errno;
        error = trace.error;
        trace.open = false;
        trace.file = -1;
    }
    nd__lock_release(&trace.lock);
    if (!open)
        return nd__error(ND_ERROR_STATE, "trace_end: no trace is being written");
    if (error)
        return nd__error(ND_ERROR_IO, "trace_end: the trace is not whole: %s",
                         nd__error_reason(error));
    return ND_OK;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *path = secure_getenv("ND_TRACE");
    if (path && *path && nd_trace_begin(path) != ND_OK) {
        fprintf(stderr, "ndarc: ND_TRACE: %s\n", nd_error_get_message());
        nd_error_clear();
    }
}

__attribute__((destructor)) static void end_with_program(void) {
    nd__lock_acquire(&trace.lock);
    bool open = trace.open;
    nd__lock_release(&trace.lock);
    if (open && nd_trace_end() != ND_OK)
        fprintf(stderr, "ndarc: ND_TRACE: %s\n", nd_error_get_message());
}
