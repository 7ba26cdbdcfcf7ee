// When to collect: modes, policies, triggers, pressure.
//
// A thread counts what it makes and, every so often, tells each domain between the manager it makes
// it in and the root (nd__policy_tell). A domain that has been told of as much as its threshold is
// due: what is below it is looked at, by the thread that noticed, before it goes on. The argument
// of all of this is only when; that looking is right at any of these points is collect.c's.
#include "lib/gc/policy.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/kind.h"
#include "lib/base/lock.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include "lib/base/versioned.h"
#include "lib/gc/collect.h"
#include "lib/manager/account.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/manager/trigger.h"
#include "lib/object/callback.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// Fields of a policy in the order of nd_gc_policy; the triggers of ND__MADE_... come first.
enum { INTERVAL = ND__MADE_COUNT, PAUSE, BOUNDARY, PRESSURE, FIELDS };
_Static_assert(sizeof(nd_gc_policy) ==
                   offsetof(nd_gc_policy, allocated_bytes) +
                       (ND_MAX_DEVICE_KINDS + FIELDS - INTERVAL + 1) * sizeof(uint64_t),
               "a policy is its fields");

struct nd_gc_domain {
    _Atomic uint64_t asked[FIELDS];           ///< ND_GC_INHERITED where the manager has no say
    _Atomic uint64_t made[ND__MADE_COUNT];    ///< told of since the last look
    _Atomic uint64_t adapted[ND__MADE_COUNT]; ///< thresholds where ND_GC_ADAPTIVE is asked
    _Atomic int eagerness;                    ///< see adapt
    _Atomic uint64_t looked_at_ns;
    nd_gc_domain *previous, *next; ///< all domains (domains_lock)
};

static const uint64_t defaults[FIELDS] = {
    ND_GC_ADAPTIVE,
    ND_GC_ADAPTIVE,
    ND_GC_ADAPTIVE, // bytes
    ND_GC_ADAPTIVE, // tracked objects
    0,              // interval
    ND_GC_ADAPTIVE, // pause
    1,              // boundary
    1,              // pressure
};
_Static_assert(ND__KIND_PLACES == 3, "a default for each kind of bytes");

#define BYTES_FLOOR (UINT64_C(64) << 20)
#define TRACKED_FLOOR UINT64_C(65536)
static const uint64_t adaptive_floor[ND__MADE_COUNT] = {BYTES_FLOOR, BYTES_FLOOR, BYTES_FLOOR,
                                                        TRACKED_FLOOR};

/// A thread tells at least this often.
static const uint64_t tell_limit[ND__MADE_COUNT] = {UINT64_C(1) << 20, UINT64_C(1) << 20,
                                                    UINT64_C(1) << 20, UINT64_C(4096)};

static nd_gc_domain root_domain = {
    .asked = {ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED,
              ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED},
    .adapted = {BYTES_FLOOR, BYTES_FLOOR, BYTES_FLOOR, TRACKED_FLOOR},
};
_Static_assert(FIELDS == 8, "the root's fields begin as inherited");

static nd_lock domains_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, domains_lock);
static nd_gc_domain *domains = &root_domain;
static _Atomic uint32_t domain_count; // but for the root's (domains_lock)

static nd_manager *writable(const nd_manager *manager) {
    return manager ? (nd_manager *)(uintptr_t)manager : &nd__manager_root;
}

// -------------------------------------------------------------------------------------------- mode

__attribute__((constructor)) static void read_environment(void) {
    const char *mode = secure_getenv("ND_GC");
#if ND_COLLECT_EVERYWHERE
    if (!mode)
        mode = "on";
#endif
    if (!mode)
        return;
    if (strcmp(mode, "on") == 0)
        nd__atomic_store(&nd__manager_root.gc_mode, ND_GC_ON, relaxed);
    else if (strcmp(mode, "warn") == 0)
        nd__atomic_store(&nd__manager_root.gc_mode, ND_GC_WARN, relaxed);
    else if (*mode && strcmp(mode, "off") != 0)
        nd__error_print("ND_GC: \"%.40s\" is neither on, warn nor off", mode);
}

/// Counts up with every setting: what managers remember of those above them is of one generation.
static _Atomic uint32_t mode_generation = 1;

/// What a manager inherits, as it remembers that; -1: it does not, or that has changed since.
static int remembered_mode(const nd_manager *manager, uint32_t generation) {
    uint64_t known = nd__atomic_load_relaxed(&writable(manager)->inherited_mode);
    return known >> 32 == generation ? (int)(uint32_t)known : -1;
}

/// So that many managers, one below the other, do not each walk the same way up.
static void remember_mode(nd_manager *manager, const nd_manager *end, uint32_t generation,
                          nd_gc_mode mode) {
    for (; manager != end; manager = manager->parent)
        nd__atomic_store(&manager->inherited_mode, (uint64_t)generation << 32 | (uint32_t)mode,
                         relaxed);
}

nd_gc_mode nd__policy_mode(const nd_manager *manager) {
    enum { FAR = 8 };
    uint32_t generation = nd__atomic_load(&mode_generation, acquire);
    const nd_manager *at = manager;
    int mode;
    while ((mode = nd__atomic_load(&writable(at)->gc_mode, relaxed)) == ND_GC_INHERIT) {
        if (manager->depth - at->depth >= FAR && (mode = remembered_mode(at, generation)) >= 0)
            break;
        at = at->parent;
    }
    if (__builtin_expect(manager->depth - at->depth >= FAR, 0))
        remember_mode(writable(manager), at, generation, (nd_gc_mode)mode);
    return (nd_gc_mode)mode;
}

nd_status nd_gc_set_mode(nd_gc_mode mode) {
    if (mode == ND_GC_INHERIT)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "gc_set_mode: the root has nothing to inherit from");
    return nd_manager_set_gc_mode(&nd__manager_root, mode);
}

nd_gc_mode nd_gc_get_mode(void) {
    return nd__policy_mode(&nd__manager_root);
}

nd_status nd_manager_set_gc_mode(nd_manager *manager, nd_gc_mode mode) {
    if (!manager)
        return nd__error_null("manager_set_gc_mode", "manager");
    if (mode < ND_GC_INHERIT || mode > ND_GC_WARN)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "manager_set_gc_mode: mode %d does not exist",
                         (int)mode);
    if (mode == ND_GC_INHERIT && manager == &nd__manager_root)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "manager_set_gc_mode: the root has nothing to inherit from");
    nd__atomic_store(&manager->gc_mode, mode, relaxed);
    (void)nd__atomic_fetch_add(&mode_generation, 1, release);
    return ND_OK;
}

// ---------------------------------------------------------------------------------------- policies

static nd_gc_domain *domain_of(const nd_manager *manager) {
    return manager == &nd__manager_root ? &root_domain
                                        : nd__atomic_load(&writable(manager)->domain, acquire);
}

/// What the manager itself says of a field, or ND_GC_INHERITED; the root always says something.
static uint64_t own_field(const nd_manager *manager, int field) {
    nd_gc_domain *domain = domain_of(manager);
    uint64_t asked = domain ? nd__atomic_load_relaxed(&domain->asked[field]) : ND_GC_INHERITED;
    return asked == ND_GC_INHERITED && manager == &nd__manager_root ? defaults[field] : asked;
}

static uint64_t field_in_effect(const nd_manager *manager, int field) {
    if (nd__atomic_load(&domain_count, acquire) == 0)
        manager = &nd__manager_root;
    uint64_t value;
    while ((value = own_field(manager, field)) == ND_GC_INHERITED)
        manager = manager->parent;
    return value;
}

uint64_t nd__policy_pause_ns(const nd_manager *manager, bool pressed) {
    uint64_t pause = field_in_effect(manager, PAUSE);
    if (pause != ND_GC_ADAPTIVE)
        return pause;
    return pressed ? 0 : ND__GC_PAUSE_NS;
}

bool nd__policy_at_boundary(const nd_manager *manager) {
    return field_in_effect(manager, BOUNDARY) != 0;
}

/// The smallest threshold anywhere decides how often threads tell. domains_lock is held.
static void decide_how_often_to_tell(void) {
    for (int kind = 0; kind < ND__MADE_COUNT; kind++) {
        uint64_t smallest = 8 * tell_limit[kind];
        bool timed = false;
        for (nd_gc_domain *domain = domains; domain; domain = domain->next) {
            uint64_t asked = nd__atomic_load_relaxed(&domain->asked[kind]);
            if (asked > 0 && asked < smallest) // the adaptive ones are larger
                smallest = asked;
            uint64_t interval = nd__atomic_load_relaxed(&domain->asked[INTERVAL]);
            timed |= interval != ND_GC_INHERITED && interval > 0;
        }
        uint64_t often = smallest >= 8 ? smallest / 8 : 1;
        if (kind == ND__MADE_TRACKED && timed)
            often = 0;
        nd__atomic_store(&nd__trigger_at[kind], often, relaxed);
    }
}

static void start_anew(nd_gc_domain *domain) {
    for (int kind = 0; kind < ND__MADE_COUNT; kind++)
        nd__atomic_store(&domain->made[kind], 0, relaxed);
    nd__atomic_store(&domain->looked_at_ns, nd__clock_coarse_ns(), relaxed);
}

/// A domain of no manager yet; NULL without memory. Walks the ladder, so no lock may be held.
static nd_gc_domain *domain_new(void) {
    nd_gc_domain *domain = nd__seam_alloc_zeroed(sizeof *domain);
    if (!domain)
        return NULL;
    for (int field = 0; field < FIELDS; field++)
        atomic_init(&domain->asked[field], ND_GC_INHERITED);
    for (int kind = 0; kind < ND__MADE_COUNT; kind++)
        atomic_init(&domain->adapted[kind], adaptive_floor[kind]);
    return domain;
}

/// The manager gets this domain. domains_lock is held.
static void domain_enter(nd_manager *manager, nd_gc_domain *domain) {
    domain->next = domains;
    domains->previous = domain;
    domains = domain;
    nd__atomic_store(&manager->domain, domain, release);
    (void)nd__atomic_fetch_add(&domain_count, 1, release);
}

void nd__policy_domain_free(nd_manager *manager) {
    nd_gc_domain *domain = nd__atomic_load(&manager->domain, relaxed);
    if (!domain)
        return;
    nd__lock_acquire(&domains_lock);
    (void)nd__atomic_fetch_sub(&domain_count, 1, relaxed);
    if (domain->previous)
        domain->previous->next = domain->next;
    else
        domains = domain->next;
    if (domain->next)
        domain->next->previous = domain->previous;
    decide_how_often_to_tell();
    nd__lock_release(&domains_lock);
    nd__alloc_free(domain);
}

static nd_status set_fields(nd_manager *manager, const char *operation, int first, int count,
                            const uint64_t *values) {
    nd_gc_domain *spare = domain_of(manager) ? NULL : domain_new();
    nd__lock_acquire(&domains_lock);
    nd_gc_domain *domain = domain_of(manager); // another thread may have been faster
    if (!domain && spare) {
        domain_enter(manager, spare);
        domain = spare;
        spare = NULL;
    }
    if (domain) {
        for (int i = 0; i < count; i++)
            nd__atomic_store(&domain->asked[first + i], values[i], relaxed);
        start_anew(domain);
        decide_how_often_to_tell();
    }
    nd__lock_release(&domains_lock);
    nd__alloc_free(spare);
    return domain ? ND_OK
                  : nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the policy of manager %s",
                              operation, manager->name);
}

/// The fields of a policy as an array. What it sets for kinds that do not exist is an error.
static nd_status read_fields(const char *operation, const nd_gc_policy *policy,
                             uint64_t fields[FIELDS]) {
    for (int kind = nd__kind_count(); kind < ND_MAX_DEVICE_KINDS; kind++)
        if (policy->allocated_bytes[kind] != ND_GC_INHERITED && policy->allocated_bytes[kind] != 0)
            return nd__error(ND_ERROR_UNSUPPORTED,
                             "%s: allocated_bytes[%d] is set, and there is no device kind %d",
                             operation, kind, kind);
    for (int kind = 0; kind < ND__KIND_PLACES; kind++)
        fields[kind] =
            nd__kind_exists((nd_device_kind)kind) ? policy->allocated_bytes[kind] : ND_GC_INHERITED;
    memcpy(fields + ND__MADE_TRACKED, &policy->tracked_objects,
           (FIELDS - ND__MADE_TRACKED) * sizeof *fields);
    return ND_OK;
}

/// The reverse.
static void write_fields(nd_gc_policy *policy, const uint64_t fields[FIELDS]) {
    memset(policy->allocated_bytes, 0, sizeof policy->allocated_bytes);
    memcpy(policy->allocated_bytes, fields, (size_t)nd__kind_count() * sizeof *fields);
    memcpy(&policy->tracked_objects, fields + ND__MADE_TRACKED,
           (FIELDS - ND__MADE_TRACKED) * sizeof *fields);
}

nd_status nd_manager_set_gc_policy(nd_manager *handle, const nd_gc_policy *policy) {
    static const char operation[] = "manager_set_gc_policy";
    static const char *const names[FIELDS] = {
        [INTERVAL] = "interval_ns",
        [PAUSE] = "pause_ns",
        [BOUNDARY] = "boundary",
        [PRESSURE] = "pressure",
    };
    if (!policy)
        return nd__error_null(operation, "policy");
    nd_gc_policy asked = ND_GC_POLICY_INIT;
    nd_status status =
        nd__versioned_read(operation, "ND_GC_POLICY_INIT", policy, &asked, sizeof asked);
    if (status != ND_OK)
        return status;
    uint64_t fields[FIELDS];
    status = read_fields(operation, &asked, fields);
    if (status != ND_OK)
        return status;
    for (int field = INTERVAL; field < FIELDS; field++) {
        bool flag = field == BOUNDARY || field == PRESSURE;
        if ((fields[field] == ND_GC_ADAPTIVE && field != PAUSE) ||
            (flag && fields[field] > 1 && fields[field] != ND_GC_INHERITED))
            return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s cannot be %s", operation,
                             names[field], flag ? "other than 0, 1 or inherited" : "adaptive");
    }
    return set_fields(writable(handle), operation, 0, FIELDS, fields);
}

nd_status nd_manager_get_gc_policy(const nd_manager *handle, nd_gc_policy *ret_policy) {
    nd_status status =
        nd__versioned_check("manager_get_gc_policy", "ND_GC_POLICY_INIT", ret_policy);
    if (status != ND_OK)
        return status;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    uint64_t fields[FIELDS];
    for (int field = 0; field < FIELDS; field++)
        fields[field] = field_in_effect(writable(handle), field);
    write_fields(&policy, fields);
    nd__versioned_write(ret_policy, &policy, sizeof policy);
    return ND_OK;
}

// ---------------------------------------------------------------------------------------- triggers

/// Thresholds for the next look, where they are adaptive: what is live now, shifted by how eager
/// the finds of past looks make us, from half of it (most of what was looked at was garbage) to
/// four times (again and again nothing).
/// `left`: tracked objects that are there after the look. (What was collected is more than what was
/// looked at and died: it counts what garbage held, too.)
static void adapt(nd_manager *manager, const nd_gc_report *report, uint64_t left) {
    enum { EAGER = -1, RELUCTANT = 2 };
    nd_gc_domain *domain = domain_of(manager);
    int eagerness = nd__atomic_load(&domain->eagerness, relaxed);
    if (report->collected_objects == 0 && eagerness < RELUCTANT)
        eagerness++;
    else if (report->collected_objects > 0 && 2 * left <= report->examined_objects &&
             eagerness > EAGER)
        eagerness--;
    nd__atomic_store(&domain->eagerness, eagerness, relaxed);
    for (int kind = 0; kind < ND__MADE_COUNT; kind++) {
        uint64_t live =
            kind == ND__MADE_TRACKED ? left : nd__account_bytes(manager, (nd_device_kind)kind);
        uint64_t next = eagerness < 0 ? live / 2 : live << eagerness;
        nd__atomic_store(&domain->adapted[kind],
                         next > adaptive_floor[kind] ? next : adaptive_floor[kind], relaxed);
    }
}

/// Collects what is below the topmost manager, on the way from `manager` up to the one that is due,
/// for which the collector is on.
static void collect_on_path(nd_manager *manager, nd_manager *due) {
    nd_manager *top = NULL;
    for (nd_manager *at = manager; at; at = at == due ? NULL : at->parent)
        if (nd__policy_mode(at) != ND_GC_OFF)
            top = at;
    if (!top)
        return;
    start_anew(domain_of(due));
    nd_gc_report report = ND_GC_REPORT_INIT;
    uint64_t left = 0;
    nd_error_state before; // the operation that looks succeeds, whatever user code does meanwhile
    nd__error_save(&before);
    bool memory = nd__collect_where_on(top, nd__policy_pause_ns(top, false), false, &report,
                                       &left) != ND_ERROR_OUT_OF_MEMORY;
    nd__collect_deferred();
    nd__error_restore(&before);
    if (memory) // else nothing was looked at
        adapt(due, &report, left);
}

void nd__policy_collect_soon(nd_manager *manager) {
    for (nd_manager *at = manager; at; at = at->parent) {
        nd_gc_domain *domain = domain_of(at);
        uint64_t threshold = domain ? own_field(at, ND__MADE_TRACKED) : ND_GC_INHERITED;
        if (threshold != ND_GC_INHERITED && threshold != 0)
            nd__atomic_store(&domain->made[ND__MADE_TRACKED], UINT64_MAX / 2, relaxed);
        if (threshold == 0)
            return; // those above do not count what happens here
    }
}

#if ND_COLLECT_EVERYWHERE
bool nd__policy_everywhere = true; // tests of when the collector runs set it to false

/// A look at everything wherever one may happen, unless that would take too long.
static nd_manager *due_everywhere(void) {
    enum { AT_MOST = 1000 };
    return nd__policy_everywhere && nd__shard_total(&nd__manager_root).tracked < AT_MOST
               ? &nd__manager_root
               : NULL;
}
#endif

void nd__policy_tell(nd_manager *manager, int kind) {
    nd_thread *thread = nd__thread();
    if (thread->in_callback || thread->capture) // then what is counted waits for the end of that
        return;
    nd__callback_destroy_deferred();
    uint64_t amount = thread->made[kind];
    thread->made[kind] = 0;
    bool counts = true;
    bool timed = kind == ND__MADE_TRACKED && nd__atomic_load_relaxed(&nd__trigger_at[kind]) == 0;
    uint64_t now = timed ? nd__clock_coarse_ns() : 0;
    nd_manager *due = NULL;
    for (nd_manager *at = manager; at; at = at->parent) {
        nd_gc_domain *domain = domain_of(at);
        if (!domain)
            continue;
        uint64_t threshold = own_field(at, kind);
        counts &= threshold != 0;
        if (counts && threshold != ND_GC_INHERITED) {
            if (threshold == ND_GC_ADAPTIVE)
                threshold = nd__atomic_load_relaxed(&domain->adapted[kind]);
            if (nd__atomic_add_relaxed(&domain->made[kind], amount) + amount >= threshold)
                due = at;
        }
        uint64_t interval = timed ? own_field(at, INTERVAL) : 0;
        timed &= interval != 0;
        uint64_t looked_at = nd__atomic_load_relaxed(&domain->looked_at_ns);
        // Another thread may have looked since this one read the clock.
        if (timed && interval != ND_GC_INHERITED && now > looked_at && now - looked_at >= interval)
            due = at;
    }
#if ND_COLLECT_EVERYWHERE
    if (!due)
        due = due_everywhere();
#endif
    if (due && !thread->collecting)
        collect_on_path(manager, due);
}

// ---------------------------------------------------------------------------------------- pressure

bool nd__policy_relieve(nd_manager *manager) {
    if (nd__thread()->collecting || !field_in_effect(manager, PRESSURE))
        return false;
    for (nd_manager *at = manager; at; at = at->parent) {
        if (nd__policy_mode(at) != ND_GC_ON)
            continue;
        nd_gc_report report = ND_GC_REPORT_INIT;
        nd__collect_where_on(at, nd__policy_pause_ns(at, true), true, &report, NULL);
        nd__collect_deferred();
        if (report.collected_objects)
            return true;
    }
    return false;
}
