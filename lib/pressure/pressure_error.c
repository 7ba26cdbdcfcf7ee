// The sentence at the end of the ladder: what was asked for and by whom, what there is, who holds
// most of it, what was tried.
//
// Invariant: it is put together of pieces that fit whole or are left out, in buffers on the stack,
// so it needs no memory and does not break off.
#include "lib/pressure/pressure_error.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/kind.h"
#include "lib/base/thread.h"
#include "lib/gc/policy.h"
#include "lib/manager/account.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/request.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_FILE 48 ///< of a creation site's file name the end is shown

typedef struct text {
    char buffer[320];
    size_t used;
} text;

/// Appends a piece that fits whole, with a comma between pieces.
__attribute__((format(printf, 2, 3))) static void append(text *to, const char *format, ...) {
    char piece[200];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    const char *comma = to->used ? ", " : "";
    if (length < 0 || (size_t)length >= sizeof piece ||
        to->used + strlen(comma) + (size_t)length >= sizeof to->buffer)
        return;
    to->used +=
        (size_t)snprintf(to->buffer + to->used, sizeof to->buffer - to->used, "%s%s", comma, piece);
}

// --------------------------------------------------------------------------------- largest holders

enum { SHOWN = 3, LINES = 32 };

/// What one line of the program has made and is alive: objects of one type. Where lines are not
/// known, objects of one type and size. Copied, as the objects may die as soon as their manager's
/// lock is given up, and what their texts are in may be unloaded.
typedef struct holder {
    const nd_type *type; ///< to compare with
    const nd_site *site;
    uint64_t each; ///< bytes of one, where the line is not known
    uint64_t objects, bytes;
    uint32_t line;
    char name[40], file[LONGEST_FILE + sizeof "..."];
} holder;

typedef struct holders {
    holder lines[LINES];
    int count;
} holders;

static void copy_file(holder *line, const char *file) {
    size_t length = strlen(file);
    bool fits = length <= LONGEST_FILE;
    snprintf(line->file, sizeof line->file, "%s%s", fits ? "" : "...",
             file + (fits ? 0 : length - LONGEST_FILE));
}

static holder *smallest(holders *all) {
    holder *least = &all->lines[0];
    for (int i = 1; i < all->count; i++)
        if (all->lines[i].bytes < least->bytes)
            least = &all->lines[i];
    return least;
}

/// A place for a new line. Where there are too many, that of a smaller one, which is lost; NULL:
/// there is none.
static holder *place_for(holders *all, uint64_t bytes) {
    if (all->count < LINES)
        return &all->lines[all->count++];
    holder *least = smallest(all);
    return least->bytes < bytes ? least : NULL;
}

/// A resource's type is its own.
static bool is_named(const holder *line, const nd_type *type) {
    return line->type == type || strncmp(line->name, type->name, sizeof line->name - 1) == 0;
}

static void consider(holders *all, const nd_accounted *account) {
    const nd_object *object = &account->header;
    uint64_t each = object->site ? 0 : account->bytes;
    for (int i = 0; i < all->count; i++) {
        holder *line = &all->lines[i];
        if (line->each == each && nd__object_same_site(line->site, object->site) &&
            is_named(line, object->type)) {
            line->objects++;
            line->bytes += account->bytes;
            return;
        }
    }
    holder *line = account->bytes ? place_for(all, account->bytes) : NULL;
    if (!line)
        return;
    *line = (holder){object->type, object->site, each, 1, account->bytes, 0, "", ""};
    snprintf(line->name, sizeof line->name, "%s", object->type->name);
    if (object->site) {
        line->line = object->site->line;
        copy_file(line, object->site->file);
    }
}

static void consider_all(holders *all, nd_manager *manager, nd_device_kind kind) {
    for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard)) {
        shard = nd__shard_lock_in(shard, manager);
        // Millions of objects without bytes are not looked at, each time that there is no memory.
        const int lists = shard->count.own_bytes[kind] ? 2 : 0;
        for (int list = 0; list < lists; list++)
            for (nd_object *object = shard->lists[list].first; object; object = object->next)
                if ((object->type->flags & ND__TYPE_ACCOUNTED) &&
                    ((const nd_accounted *)object)->kind == kind)
                    consider(all, (const nd_accounted *)object);
        nd__shard_unlock(shard);
    }
}

static void describe_holder(const holder *line, text *to) {
    char count[24] = "", made[LONGEST_FILE + 32] = "";
    const char *together = "";
    if (line->objects > 1) {
        snprintf(count, sizeof count, "%llu x ", (unsigned long long)line->objects);
        together = " together";
    }
    if (line->file[0])
        snprintf(made, sizeof made, " made at %s:%u", line->file, line->line);
    append(to, "%s%s of %llu bytes%s%s", count, line->name, (unsigned long long)line->bytes,
           together, made);
}

/// The lines that made most of what is attached to the asking manager and those above it, up to
/// `last`.
static void describe_holders(const nd_pressure *pressure, const nd_manager *last, text *to) {
    holders all = {.count = 0};
    for (nd_manager *at = pressure->manager; at; at = at == last ? NULL : at->parent)
        consider_all(&all, at, pressure->kind);
    for (int shown = 0; shown < SHOWN; shown++) {
        holder *largest = &all.lines[0];
        for (int i = 1; i < all.count; i++)
            if (all.lines[i].bytes > largest->bytes)
                largest = &all.lines[i];
        if (all.count == 0 || largest->bytes == 0)
            break;
        describe_holder(largest, to);
        largest->bytes = 0;
    }
    if (!to->used && nd__account_bytes(last ? last : &nd__manager_root, pressure->kind) == 0)
        append(to, "none");
    else if (!to->used)
        append(to, "none of its own, all in other managers");
}

// ------------------------------------------------------------------------------------ the sentence

static void describe_stage(const nd_pressure *pressure, nd_memory_stage stage, text *to) {
    static const char *const names[ND_MEMORY_STAGE_COUNT] = {
        [ND_MEMORY_STAGE_RETIRE] = "finished frees taken back",
        [ND_MEMORY_STAGE_TRIM] = "caches trimmed",
        [ND_MEMORY_STAGE_COLLECT] = "cycles collected",
        [ND_MEMORY_STAGE_CALLBACK] = "callbacks asked",
        [ND_MEMORY_STAGE_WAIT] = "device waited for",
    };
    const char *name = names[stage];
    uint64_t bytes = pressure->tried[stage].bytes;
    if (stage == ND_MEMORY_STAGE_WAIT && pressure->wait_expired)
        name = "device waited for, which is not done yet";
    char count[16] = "";
    if (stage == ND_MEMORY_STAGE_CALLBACK)
        snprintf(count, sizeof count, "%u ", pressure->callbacks);
    if (bytes == ND__UNKNOWN_BYTES)
        append(to, "%s%s", count, name);
    else
        append(to, "%s%s (%llu bytes)", count, name, (unsigned long long)bytes);
}

/// Why no cycles were collected.
static const char *why_not_collected(const nd_pressure *pressure) {
    if (nd__thread()->collecting)
        return "a collection is running";
    bool on = false, warns = false;
    for (const nd_manager *at = pressure->manager; at; at = at->parent) {
        nd_gc_mode mode = nd__policy_mode(at);
        on |= mode == ND_GC_ON;
        warns |= mode == ND_GC_WARN;
    }
    if (on)
        return "the collector may not run under pressure (nd_gc_policy)";
    return warns ? "the collector only warns" : "the collector is off";
}

static void describe_tries(const nd_pressure *pressure, text *to) {
    if (nd__thread()->capture) {
        append(to, "nothing, as this thread captures a graph");
        return;
    }
    for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT; stage++)
        if (pressure->tried[stage].reached)
            describe_stage(pressure, (nd_memory_stage)stage, to);
    if (pressure->tried[ND_MEMORY_STAGE_COLLECT].reached) {
        // It ran above, and perhaps not where the garbage is.
        const nd_gc_mode mode = nd__policy_mode(pressure->manager);
        if (mode != ND_GC_ON)
            append(to, "but the collector %s for manager \"%s\"",
                   mode == ND_GC_WARN ? "only warns" : "is off", pressure->manager->name);
        return;
    }
    const char *why = why_not_collected(pressure);
    if (to->used)
        append(to, "but %s", why);
    else
        append(to, "nothing, as %s and no callback is set", why);
}

static nd_status out_of_memory(const nd_pressure *pressure, const char *holders,
                               const char *tries) {
    nd_memory_usage usage = ND__USAGE_UNKNOWN;
    if (pressure->functions && pressure->functions->usage)
        pressure->functions->usage(pressure->index, &usage);
    text device = {0};
    nd_device_kind kind = pressure->kind;
    append(&device, "%llu %s bytes are live",
           (unsigned long long)nd__account_bytes(&nd__manager_root, kind), nd__kind_name(kind));
    if (usage.cached != ND__UNKNOWN_BYTES)
        append(&device, "%llu cached", (unsigned long long)usage.cached);
    if (usage.limit != ND__UNKNOWN_BYTES)
        append(&device, "the limit is %llu", (unsigned long long)usage.limit);
    uint64_t quota = nd__atomic_load_relaxed(&pressure->manager->quota[kind]);
    char limit[48] = "without a quota";
    if (quota)
        snprintf(limit, sizeof limit, "of a quota of %llu", (unsigned long long)quota);
    char purpose[48] = "to run the kernel"; // how much that wanted is the backend's own business
    if (pressure->bytes)
        snprintf(purpose, sizeof purpose, "for %llu bytes", (unsigned long long)pressure->bytes);
    return nd__error(ND_ERROR_OUT_OF_MEMORY,
                     "%.64s: no memory on %s:%d %s; %s; manager \"%s\" and those below it hold "
                     "%llu, %s; largest holders: %s; tried: %s",
                     pressure->operation, nd__kind_name(kind), pressure->index, purpose,
                     device.buffer, pressure->manager->name,
                     (unsigned long long)nd__account_bytes(pressure->manager, kind), limit, holders,
                     tries);
}

static nd_status quota_exceeded(const nd_pressure *pressure, const char *holders,
                                const char *tries) {
    nd_manager *refused = pressure->refused;
    nd_device_kind kind = pressure->kind;
    char asking[ND__MANAGER_NAME_SIZE + 16] = "";
    if (pressure->manager != refused)
        snprintf(asking, sizeof asking, " for manager \"%s\"", pressure->manager->name);
    const uint64_t bound = nd__charge_bound(refused, kind);
    return nd__error(ND_ERROR_QUOTA,
                     "%.64s: %llu %s bytes%s do not fit into manager \"%s\": %s %llu, live "
                     "%llu; largest holders: %s; tried: %s",
                     pressure->operation, (unsigned long long)pressure->bytes, nd__kind_name(kind),
                     asking, refused->name,
                     bound < ND__CHARGE_MOST ? "quota" : "no quota, but a manager counts at most",
                     (unsigned long long)bound,
                     (unsigned long long)nd__account_bytes(refused, kind), holders, tries);
}

nd_status nd__pressure_error(const nd_pressure *pressure, nd_status status) {
    if (!nd__pressure_includes(status))
        return nd__error(status, "%.64s: %s:%d could not allocate %llu bytes: the device failed",
                         pressure->operation, nd__kind_name(pressure->kind), pressure->index,
                         (unsigned long long)pressure->bytes);
    text holders = {0}, tries = {0};
    describe_holders(pressure, status == ND_ERROR_QUOTA ? pressure->refused : NULL, &holders);
    describe_tries(pressure, &tries);
    return status == ND_ERROR_QUOTA ? quota_exceeded(pressure, holders.buffer, tries.buffer)
                                    : out_of_memory(pressure, holders.buffer, tries.buffer);
}
