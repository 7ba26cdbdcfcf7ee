// Histories of atomic words (words.h).
//
// Order of seq_cst events: an order of them must exist that agrees with happens-before, with the
// order of stores, and with who reads what. `before` keeps what is known of it: a seq_cst load of
// an older entry comes before the seq_cst stores behind that entry, and may not be when one of
// those is known to come before the load.
#include "tests/model/words.h"
#include "tests/model/scheduler_internal.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096, ENTRIES = 8192, OBSERVATIONS = 8192, NODES = 256, NONE = -1 };

/// One value that a word had.
typedef struct entry {
    uint64_t value;
    int32_t previous; ///< of the same word
    uint32_t index;
    int32_t event, node;
    model_clock ordered, seen; ///< what an acquire load of it learns
} entry;

/// A thread has read or written that entry, or a later one, at that time.
typedef struct observation {
    int32_t previous; ///< of the same thread and word
    uint32_t time, index;
} observation;

typedef struct word_history {
    uintptr_t address;
    uint64_t execution;
    int32_t newest, observed[MODEL_THREADS];
} word_history;

/// A seq_cst event.
typedef struct node {
    uintptr_t address;
    uint32_t time;
    uint8_t thread;
    uint64_t before[NODES / 64]; ///< nodes
} node;

typedef struct usage {
    uintptr_t address;
    uint8_t loaded, added, changed, touched; ///< sets of threads
} usage;

typedef struct histories {
    word_history words[WORDS];
    uint64_t execution;
    entry entries[ENTRIES];
    observation observations[OBSERVATIONS];
    int32_t entry_count, observation_count, node_count;
    node nodes[NODES];
    model_clock fenced; ///< what all fences together have seen
    usage usages[WORDS];
    uint64_t unordered;
} histories;

static histories *all;

void words_begin_execution(void) {
    if (!all && !(all = calloc(1, sizeof *all)))
        abort();
    all->execution++;
    all->entry_count = all->observation_count = all->node_count = 0;
    all->fenced = (model_clock){0};
}

uint64_t words_raw(const volatile void *word, size_t size) {
    switch (size) {
    case 1:
        return *(const volatile uint8_t *)word;
    case 4:
        return *(const volatile uint32_t *)word;
    default:
        return *(const volatile uint64_t *)word;
    }
}

void words_set_raw(volatile void *word, size_t size, uint64_t value) {
    switch (size) {
    case 1:
        *(volatile uint8_t *)word = (uint8_t)value;
        break;
    case 4:
        *(volatile uint32_t *)word = (uint32_t)value;
        break;
    default:
        *(volatile uint64_t *)word = value;
    }
}

// ------------------------------------------------------------------------------------------- usage

static size_t slot_of(uintptr_t address) {
    return (address >> 2) * UINT64_C(0x9E3779B97F4A7C15) >> 52;
}

static usage *usage_of(const volatile void *word) {
    uintptr_t address = (uintptr_t)word;
    for (size_t i = slot_of(address);; i = (i + 1) % WORDS) {
        usage *at = &all->usages[i];
        if (!at->address)
            at->address = address;
        if (at->address == address)
            return at;
    }
}

static bool is_contended(const usage *of) {
    bool shared = (of->touched & (of->touched - 1)) != 0;
    return shared && (of->changed || (of->added && of->loaded));
}

bool words_contended(const volatile void *word) {
    return is_contended(usage_of(word));
}

bool words_shared_with(const volatile void *word, int thread, word_use use) {
    const usage *of = usage_of(word);
    unsigned by = use == WORD_LOADED ? of->loaded : of->changed | of->added;
    return (by & ~(1u << thread)) != 0;
}

bool words_note_use(const volatile void *word, int thread, word_use use) {
    usage *of = usage_of(word);
    usage before = *of;
    uint8_t by = (uint8_t)(1u << thread);
    of->touched |= by;
    if (use == WORD_LOADED)
        of->loaded |= by;
    else if (use == WORD_ADDED)
        of->added |= by;
    else if (use == WORD_CHANGED)
        of->changed |= by;
    return is_contended(of) && (!is_contended(&before) || of->loaded != before.loaded ||
                                of->added != before.added || of->changed != before.changed);
}

bool words_note_free(const void *place, size_t size, int thread) {
    bool changed = false;
    for (uintptr_t address = (uintptr_t)place; address < (uintptr_t)place + size; address += 4) {
        size_t i = slot_of(address);
        while (all->usages[i].address && all->usages[i].address != address)
            i = (i + 1) % WORDS;
        if (all->usages[i].address)
            changed |= words_note_use((const void *)address, thread, WORD_CHANGED);
    }
    return changed;
}

// --------------------------------------------------------------------------------------- histories

static bool acquires(int order) {
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst || order == memory_order_consume;
}

static bool releases(int order) {
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static entry *append(word_history *of, uint64_t value, int32_t event) {
    if (all->entry_count == ENTRIES)
        model_fail("more than %d entries of words", ENTRIES);
    entry *made = &all->entries[all->entry_count];
    *made = (entry){.value = value,
                    .previous = of->newest,
                    .index = of->newest == NONE ? 0 : all->entries[of->newest].index + 1,
                    .event = event,
                    .node = NONE};
    of->newest = all->entry_count++;
    return made;
}

static void observe(word_history *of, int thread, uint32_t time, uint32_t index) {
    int32_t last = of->observed[thread];
    if (last != NONE && all->observations[last].index >= index)
        return;
    if (all->observation_count == OBSERVATIONS)
        model_fail("more than %d observations of words", OBSERVATIONS);
    all->observations[all->observation_count] = (observation){last, time, index};
    of->observed[thread] = all->observation_count++;
}

static word_history *history_of(const volatile void *word, size_t size) {
    uintptr_t address = (uintptr_t)word;
    uint64_t held = words_raw(word, size);
    word_history *of;
    for (size_t i = slot_of(address);; i = (i + 1) % WORDS) {
        of = &all->words[i];
        if (of->execution != all->execution) {
            *of = (word_history){address, all->execution, NONE, {NONE, NONE, NONE, NONE}};
            append(of, held, WORDS_NO_EVENT);
            return of;
        }
        if (of->address == address)
            break;
    }
    // A plain write has begun the word anew; no atomic access may be unordered with that.
    if (all->entries[of->newest].value != held)
        observe(of, MODEL_MAIN, 0, append(of, held, WORDS_NO_EVENT)->index);
    return of;
}

static entry *entry_at(const word_history *of, uint32_t index) {
    entry *at = &all->entries[of->newest];
    while (at->index > index)
        at = &all->entries[at->previous];
    return at;
}

/// The oldest entry that is not older than one which the thread has seen.
static uint32_t oldest_visible(const word_history *of, const model_clock *seen) {
    uint32_t oldest = 0;
    for (int thread = 0; thread < MODEL_THREADS; thread++) {
        int32_t at = of->observed[thread];
        while (at != NONE && all->observations[at].time > seen->time[thread])
            at = all->observations[at].previous;
        if (at != NONE && all->observations[at].index > oldest)
            oldest = all->observations[at].index;
    }
    return oldest;
}

// ----------------------------------------------------------------------------------- seq_cst order

static void set_bit(uint64_t *set, int32_t which) {
    set[which / 64] |= UINT64_C(1) << which % 64;
}

static bool has_bit(const uint64_t *set, int32_t which) {
    return set[which / 64] >> which % 64 & 1;
}

static void add_bits(uint64_t *set, const uint64_t *other) {
    for (int i = 0; i < NODES / 64; i++)
        set[i] |= other[i];
}

/// The seq_cst events that come before one of a thread which has seen so much.
static void nodes_before(const model_clock *seen, uint64_t *ret_before) {
    memset(ret_before, 0, NODES / 8);
    for (int32_t i = 0; i < all->node_count; i++) {
        const node *each = &all->nodes[i];
        if (each->time <= seen->time[each->thread]) {
            set_bit(ret_before, i);
            add_bits(ret_before, each->before);
        }
    }
}

static int32_t add_node(const model_knowledge *knows, int thread, uintptr_t address) {
    if (all->node_count == NODES)
        model_fail("more than %d seq_cst events", NODES);
    node *made = &all->nodes[all->node_count];
    made->address = address;
    made->thread = (uint8_t)thread;
    nodes_before(&knows->seen, made->before); // none of its own time yet
    made->time = knows->ordered.time[thread];
    return all->node_count++;
}

/// A store comes behind every seq_cst event of its word.
static int32_t add_store_node(const model_knowledge *knows, int thread, uintptr_t address) {
    int32_t made = add_node(knows, thread, address);
    for (int32_t i = 0; i < made; i++)
        if (all->nodes[i].address == address) {
            set_bit(all->nodes[made].before, i);
            add_bits(all->nodes[made].before, all->nodes[i].before);
        }
    return made;
}

/// A load of that entry comes before the stores behind it.
static void add_load_node(const model_knowledge *knows, int thread, const word_history *of,
                          uint32_t index) {
    int32_t made = add_node(knows, thread, of->address);
    for (const entry *at = &all->entries[of->newest]; at->index > index;
         at = &all->entries[at->previous])
        for (int32_t i = 0; i < made && at->node != NONE; i++)
            if (i == at->node || has_bit(all->nodes[i].before, at->node)) {
                set_bit(all->nodes[i].before, made);
                add_bits(all->nodes[i].before, all->nodes[made].before);
            }
}

/// Whether a seq_cst load may read that entry: no seq_cst store behind it comes before the load.
static bool agrees(const model_knowledge *knows, const word_history *of, const entry *read) {
    model_clock seen = knows->seen;
    model_clock_join(&seen, &read->seen);
    uint64_t before[NODES / 64];
    nodes_before(&seen, before);
    for (const entry *at = &all->entries[of->newest]; at->index > read->index;
         at = &all->entries[at->previous])
        if (at->node != NONE && has_bit(before, at->node))
            return false;
    return true;
}

// ---------------------------------------------------------------------------------------- accesses

void words_choices(const model_knowledge *knows, const volatile void *word, size_t size, int order,
                   uint32_t *ret_lowest, uint32_t *ret_count) {
    const word_history *of = history_of(word, size);
    uint32_t lowest = oldest_visible(of, &knows->seen);
    uint32_t newest = all->entries[of->newest].index;
    if (order == memory_order_seq_cst)
        for (uint32_t i = newest; i > lowest; i--)
            if (!agrees(knows, of, entry_at(of, i - 1)))
                lowest = i;
    *ret_lowest = lowest;
    *ret_count = newest + 1;
}

int32_t words_origin(const volatile void *word, size_t size, uint32_t index) {
    return entry_at(history_of(word, size), index)->event;
}

uint64_t words_load(model_knowledge *knows, int thread, const volatile void *word, size_t size,
                    int order, uint32_t index) {
    word_history *of = history_of(word, size);
    const entry *read = entry_at(of, index);
    observe(of, thread, knows->ordered.time[thread], index);
    bool now = acquires(order);
    model_clock_join(now ? &knows->ordered : &knows->acquired, &read->ordered);
    model_clock_join(now ? &knows->seen : &knows->acquired_seen, &read->seen);
    if (order == memory_order_seq_cst)
        add_load_node(knows, thread, of, index);
    return read->value;
}

static entry *write_entry(const model_knowledge *knows, int thread, volatile void *word,
                          size_t size, int order, uint64_t value, int32_t event) {
    word_history *of = history_of(word, size);
    entry *made = append(of, value, event);
    bool published = releases(order);
    made->ordered = published ? knows->ordered : knows->fenced;
    made->seen = published ? knows->seen : knows->fenced_seen;
    if (order == memory_order_seq_cst)
        made->node = add_store_node(knows, thread, of->address);
    observe(of, thread, knows->ordered.time[thread], made->index);
    words_set_raw(word, size, value);
    made->value = words_raw(word, size);
    return made;
}

void words_store(model_knowledge *knows, int thread, volatile void *word, size_t size, int order,
                 uint64_t value, int32_t event) {
    const word_history *of = history_of(word, size);
    all->unordered += oldest_visible(of, &knows->seen) < all->entries[of->newest].index;
    write_entry(knows, thread, word, size, order, value, event);
}

uint64_t words_unordered_stores(void) {
    return all->unordered;
}

uint64_t words_load_newest(model_knowledge *knows, int thread, const volatile void *word,
                           size_t size, int order) {
    const word_history *of = history_of(word, size);
    return words_load(knows, thread, word, size,
                      order == memory_order_seq_cst ? memory_order_acq_rel : order,
                      all->entries[of->newest].index);
}

void words_replace(model_knowledge *knows, int thread, volatile void *word, size_t size, int order,
                   uint64_t value, int32_t event) {
    entry *made = write_entry(knows, thread, word, size, order, value, event);
    const entry *before = &all->entries[made->previous]; // its release sequence goes on
    model_clock_join(&made->ordered, &before->ordered);
    model_clock_join(&made->seen, &before->seen);
}

uint64_t words_look(const model_knowledge *knows, int thread, const volatile void *word,
                    size_t size) {
    word_history *of = history_of(word, size);
    const entry *newest = &all->entries[of->newest];
    observe(of, thread, knows->ordered.time[thread], newest->index);
    return newest->value;
}

void words_fence(model_knowledge *knows) {
    model_clock_join(&knows->ordered, &knows->acquired);
    model_clock_join(&knows->seen, &knows->acquired_seen);
    model_clock_join(&knows->seen, &all->fenced);
    all->fenced = knows->seen;
    knows->fenced = knows->ordered;
    knows->fenced_seen = knows->seen;
}
