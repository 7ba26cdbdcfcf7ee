// objects: not a single tensor; managers and the collector for a program's own types.
//
// Each step is a session of three kinds of work whose objects point at each other: pages that link
// to pages and back, a cache that forgets what was used longest ago, and a dialog of widgets that
// know their parents and listen to a window that stays. Pages and dialog outlive their session until
// the next one.
//
// A ledger is told of everything that is made, linked and let go, and says how many objects must be
// alive: with the collector off what counts cannot free, after a collection what handles reach.
#include "bench/workloads/ledger.h"
#include "bench/workloads/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    PAGES = 48,    ///< of a session
    TEXT = 256,    ///< bytes of a page
    CACHED = 16,   ///< entries that a cache holds
    LOOKUPS = 128, ///< of a session
    KEYS = 32,     ///< that are looked up
    WIDGETS = 20,  ///< of a dialog
    SETTLE = 64,   ///< sessions between two collections that the comparison asks for
    MOST_ITEMS = PAGES + 1 + LOOKUPS + 2 * (WIDGETS + 1), ///< of a session
};

// ---------------------------------------------------------------------------------------- the types

/// What every payload begins with.
typedef struct numbered {
    uint32_t id;
} numbered;

typedef struct page {
    numbered numbered;
    nd_resource *text;
    nd_list *links;
} page;
#define PAGE_EDGES(ONE, MANY) ONE(text) ONE(links)
ND_TYPE_EDGES(page, PAGE_EDGES)

typedef struct cache {
    numbered numbered;
    nd_map *entries;
    nd_object *newest;
    nd_object *oldest;
} cache;
#define CACHE_EDGES(ONE, MANY) ONE(entries) ONE(newest) ONE(oldest)
ND_TYPE_EDGES(cache, CACHE_EDGES)

typedef struct entry {
    numbered numbered;
    uint32_t key;
    nd_object *cache;
    nd_object *newer;
    nd_object *older;
} entry;
#define ENTRY_EDGES(ONE, MANY) ONE(cache) ONE(newer) ONE(older)
ND_TYPE_EDGES(entry, ENTRY_EDGES)

typedef struct widget {
    numbered numbered;
    nd_object *parent;
    nd_list *children;
    nd_list *listeners;
} widget;
#define WIDGET_EDGES(ONE, MANY) ONE(parent) ONE(children) ONE(listeners)
ND_TYPE_EDGES(widget, WIDGET_EDGES)

typedef struct listener {
    numbered numbered;
    nd_object *observer;
} listener;
#define LISTENER_EDGES(ONE, MANY) ONE(observer)
ND_TYPE_EDGES(listener, LISTENER_EDGES)

static void free_text(void *text, size_t bytes) {
    (void)bytes;
    free(text);
}

/// Memory of the program's own, which counts as the page's.
static nd_resource *text_new(void) {
    static const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = free_text};
    char *text = calloc(1, TEXT);
    nd_resource *resource = nd_resource_new("text", text, TEXT, &callbacks);
    if (!resource)
        free(text);
    return resource;
}

static nd_status page_init(nd_object *self, void *data) {
    page *page = nd_object_get_data(self);
    (void)data;
    page->text = text_new();
    page->links = nd_list_new();
    return page->text && page->links ? ND_OK : nd_error_get_status();
}

static nd_status cache_init(nd_object *self, void *data) {
    cache *cache = nd_object_get_data(self);
    (void)data;
    cache->entries = nd_map_new();
    return cache->entries ? ND_OK : nd_error_get_status();
}

static nd_status widget_init(nd_object *self, void *data) {
    widget *widget = nd_object_get_data(self);
    (void)data;
    widget->children = nd_list_new();
    widget->listeners = nd_list_new();
    return widget->children && widget->listeners ? ND_OK : nd_error_get_status();
}

static nd_status nothing_to_init(nd_object *self, void *data) {
    (void)self, (void)data;
    return ND_OK;
}

/// A type, what fills its payload, and how many objects one of it is.
typedef struct kind {
    nd_type type;
    size_t payload;
    nd_object_init init;
    uint32_t weight;
} kind;
#define KIND(name, init, weight)                                                         \
    static const kind name##_kind = {                                                    \
        {sizeof(nd_type), 1, #name, 0, name##_traverse, name##_clear, NULL, NULL, NULL}, \
        sizeof(name),                                                                    \
        init,                                                                            \
        weight};
KIND(page, page_init, 3)
KIND(cache, cache_init, 2)
KIND(entry, nothing_to_init, 1)
KIND(widget, widget_init, 3)
KIND(listener, nothing_to_init, 1)

// ---------------------------------------------------------------------------------------- the world

/// What outlives a session.
typedef struct world {
    const nd_manager *manager; ///< of all that is made
    workload_strategy strategy;
    uint64_t random;
    uint64_t compared; ///< how often what is alive was exactly what must be
    uint64_t hits;     ///< lookups of this session that the cache answered
    nd_object *window;
    nd_object *last; ///< the first page of the last session; NULL at first
    ledger ledger;
} world;

static uint32_t random_below(world *world, uint32_t bound) {
    world->random = world->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((world->random >> 33) * bound) >> 31);
}

static uint32_t id_of(const nd_object *object) {
    return ((const numbered *)nd_object_get_data(object))->id;
}

static nd_object *make(world *world, const kind *kind) {
    nd_object *object = nd_object_new_with(&kind->type, kind->payload, kind->init, NULL);
    if (object)
        ((numbered *)nd_object_get_data(object))->id = ledger_new(&world->ledger, kind->weight);
    return object;
}

/// Releases a handle, in the ledger as well. NULL is fine.
static void let_go(world *world, nd_object *object) {
    if (object)
        ledger_release(&world->ledger, id_of(object));
    nd_release(object);
}

static nd_status append(world *world, nd_object *from, nd_list *list, const nd_object *to) {
    nd_status status = nd_list_append(list, to);
    if (status == ND_OK)
        ledger_link(&world->ledger, id_of(from), id_of(to));
    return status;
}

/// Takes what stands at `index` out of a list of `from`, and lets go of it.
static void take_out(world *world, const nd_object *from, nd_list *list, size_t index) {
    nd_auto nd_object *gone = nd_list_remove(list, index);
    ledger_unlink(&world->ledger, id_of(from), id_of(gone));
}

/// Makes a field of `from` point to `to`, or to nothing.
static void point(world *world, const nd_object *from, nd_object **field, const nd_object *to) {
    if (to)
        ledger_link(&world->ledger, id_of(from), id_of(to));
    if (*field)
        ledger_unlink(&world->ledger, id_of(from), id_of(*field));
    nd_edge_set(field, to);
}

// --------------------------------------------------------------------------------------------- pages

static nd_status link_page(world *world, nd_object *from, const nd_object *to) {
    return append(world, from, ((page *)nd_object_get_data(from))->links, to);
}

/// Page i of a session: one of those shortly before links to it, and it links to any of them, or to
/// itself. The session before leads here as well.
static nd_status write_page(world *world, nd_object **pages, uint32_t i) {
    enum { NEAR = 4 };
    pages[i] = make(world, &page_kind);
    nd_status status = pages[i] ? ND_OK : nd_error_get_status();
    uint32_t before = i == 0 ? 0 : i - 1 - random_below(world, i < NEAR ? i : NEAR);
    if (status == ND_OK && i > 0)
        status = link_page(world, pages[before], pages[i]);
    if (status == ND_OK)
        status = link_page(world, pages[i], pages[random_below(world, i + 1)]);
    if (status == ND_OK && i % 8 == 0 && world->last)
        status = link_page(world, world->last, pages[i]);
    return status;
}

/// Reads pages, and remembers the first one until the next session, and so all.
static nd_status browse(world *world) {
    nd_object *pages[PAGES] = {0};
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < PAGES && status == ND_OK; i++)
        status = write_page(world, pages, i);
    // What a session is disposed of with is no use to the next.
    if (status == ND_OK && world->strategy != WORKLOAD_DISPOSE) {
        let_go(world, world->last);
        world->last = nd_retain(pages[0]);
        ledger_retain(&world->ledger, id_of(pages[0]));
    }
    for (uint32_t i = 0; i < PAGES; i++)
        let_go(world, pages[i]);
    return status;
}

// --------------------------------------------------------------------------------------------- cache

/// Takes an entry out of the order of use.
static void unlink_entry(world *world, nd_object *owner, nd_object *object) {
    cache *cache = nd_object_get_data(owner);
    entry *entry = nd_object_get_data(object);
    struct entry *newer = nd_object_get_data(entry->newer);
    struct entry *older = nd_object_get_data(entry->older);
    point(world, newer ? entry->newer : owner, newer ? &newer->older : &cache->newest,
          entry->older);
    point(world, older ? entry->older : owner, older ? &older->newer : &cache->oldest,
          entry->newer);
    point(world, object, &entry->newer, NULL);
    point(world, object, &entry->older, NULL);
}

static void make_newest(world *world, nd_object *owner, nd_object *object) {
    cache *cache = nd_object_get_data(owner);
    entry *entry = nd_object_get_data(object);
    struct entry *second = nd_object_get_data(cache->newest);
    point(world, object, &entry->older, cache->newest);
    if (second)
        point(world, entry->older, &second->newer, object);
    else
        point(world, owner, &cache->oldest, object);
    point(world, owner, &cache->newest, object);
}

/// Drops what was used longest ago.
static void evict(world *world, nd_object *owner) {
    cache *cache = nd_object_get_data(owner);
    nd_auto nd_object *oldest = nd_retain(cache->oldest);
    ledger_retain(&world->ledger, id_of(oldest));
    unlink_entry(world, owner, oldest);
    char name[16];
    snprintf(name, sizeof name, "%u", ((entry *)nd_object_get_data(oldest))->key);
    nd_release(nd_map_remove(cache->entries, name));
    ledger_unlink(&world->ledger, id_of(owner), id_of(oldest));
    ledger_release(&world->ledger, id_of(oldest));
}

static nd_status look_up(world *world, nd_object *owner, uint32_t key) {
    cache *cache = nd_object_get_data(owner);
    char name[16];
    snprintf(name, sizeof name, "%u", key);
    if (nd_map_contains(cache->entries, name)) {
        nd_auto nd_object *found = nd_retain(nd_map_get(cache->entries, name));
        unlink_entry(world, owner, found);
        make_newest(world, owner, found);
        world->hits++;
        return ND_OK;
    }
    if (nd_map_get_size(cache->entries) == CACHED)
        evict(world, owner);
    nd_object *made = make(world, &entry_kind);
    nd_status status = made ? nd_map_set(cache->entries, name, made) : nd_error_get_status();
    if (status == ND_OK) {
        entry *entry = nd_object_get_data(made);
        entry->key = key;
        ledger_link(&world->ledger, id_of(owner), id_of(made));
        point(world, made, &entry->cache, owner);
        make_newest(world, owner, made);
    }
    let_go(world, made);
    return status;
}

/// A cache and its entries, all of which point at each other, dropped together.
static nd_status use_cache(world *world) {
    nd_object *cache = make(world, &cache_kind);
    nd_status status = cache ? ND_OK : nd_error_get_status();
    for (int i = 0; i < LOOKUPS && status == ND_OK; i++)
        status = look_up(world, cache, random_below(world, KEYS));
    let_go(world, cache);
    return status;
}

// ------------------------------------------------------------------------------------------- widgets

static nd_status add_child(world *world, nd_object *parent, nd_object *child) {
    widget *above = nd_object_get_data(parent);
    widget *below = nd_object_get_data(child);
    nd_status status = append(world, parent, above->children, child);
    if (status == ND_OK)
        point(world, child, &below->parent, parent);
    return status;
}

/// The window tells the observer, and so keeps it, until the listener is taken out.
static nd_status listen(world *world, nd_object *observer) {
    nd_object *made = make(world, &listener_kind);
    if (!made)
        return nd_error_get_status();
    point(world, made, &((listener *)nd_object_get_data(made))->observer, observer);
    widget *window = nd_object_get_data(world->window);
    nd_status status = append(world, world->window, window->listeners, made);
    let_go(world, made);
    return status;
}

/// Opens a dialog in the window and closes it again. One of its widgets forgets that it listens, so
/// that the window keeps all of them until somebody looks after its listeners.
static nd_status open_dialog(world *world) {
    widget *window = nd_object_get_data(world->window);
    nd_object *widgets[WIDGETS] = {0};
    nd_status status = ND_OK;
    if (nd_list_get_size(window->listeners) > 0)
        take_out(world, world->window, window->listeners, 0);
    for (uint32_t i = 0; i < WIDGETS && status == ND_OK; i++) {
        widgets[i] = make(world, &widget_kind);
        nd_object *parent = i == 0 ? world->window : widgets[random_below(world, i)];
        status = widgets[i] ? add_child(world, parent, widgets[i]) : nd_error_get_status();
    }
    if (status == ND_OK)
        status = listen(world, widgets[random_below(world, WIDGETS)]);
    if (status == ND_OK)
        take_out(world, world->window, window->children, 0);
    if (status == ND_OK && world->strategy == WORKLOAD_DISPOSE)
        take_out(world, world->window, window->listeners, 0);
    for (uint32_t i = 0; i < WIDGETS; i++)
        let_go(world, widgets[i]);
    return status;
}

// -------------------------------------------------------------------------------- beginning and end

/// Objects that are alive, when that is what is expected, or after a second. Beside collections of
/// other threads, what dies while one has the gate closed is destroyed a moment later.
static uint64_t count_alive(const world *world, bool exact) {
    uint64_t expected = world->ledger.alive, alive = 0;
    for (int i = 0; i < 1000; i++) {
        alive = nd_manager_get_total_objects(world->manager);
        if (exact ? alive == expected : alive <= expected)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return alive;
}

/// Compares what is alive with the ledger. Where the collector may have run, garbage that the ledger
/// still has may be gone: `settled` says that a collection has just come to an end.
static nd_status compare(world *world, bool settled) {
    bool exact = settled || world->strategy == WORKLOAD_LET_BE;
    uint64_t alive = count_alive(world, exact), expected = world->ledger.alive;
    world->compared += exact;
    if (exact ? alive == expected : alive <= expected)
        return ND_OK;
    fprintf(stderr, "objects: %llu are alive, and %s%llu must be\n", (unsigned long long)alive,
            exact ? "" : "at most ", (unsigned long long)expected);
    return ND_ERROR_STATE;
}

/// The same after a collection that this asks for.
static nd_status settle(world *world) {
    nd_status status = ND_OK;
    if (world->strategy != WORKLOAD_LET_BE) {
        status = nd_gc_collect(world->manager, NULL);
        ledger_collect(&world->ledger);
    }
    return status == ND_OK ? compare(world, true) : status;
}

static nd_status objects_open(const workload_options *options, void **ret_state) {
    world *world = *ret_state = calloc(1, sizeof *world);
    if (!world || ledger_reserve(&world->ledger, 1) != ND_OK)
        return ND_ERROR_OUT_OF_MEMORY;
    world->manager = nd_manager_get_current();
    world->strategy = options->strategy;
    world->random = options->seed;
    world->window = make(world, &widget_kind);
    return world->window ? ND_OK : nd_error_get_status();
}

static nd_status objects_step(void *state, int64_t step, double *ret_value) {
    world *world = state;
    // Of what outlives its session a program that collects sessions has to think itself.
    bool settled = world->strategy == WORKLOAD_SCOPE || step % SETTLE == SETTLE - 1;
    nd_status status = settled ? settle(world) : compare(world, false);
    if (status == ND_OK)
        status = ledger_reserve(&world->ledger, MOST_ITEMS);
    world->hits = 0;
    if (status == ND_OK)
        status = browse(world);
    if (status == ND_OK)
        status = use_cache(world);
    if (status == ND_OK)
        status = open_dialog(world);
    *ret_value = (double)world->hits / LOOKUPS;
    return status;
}

static nd_status objects_finish(void *state, workload_outcome *ret_outcome) {
    world *world = state;
    nd_status status = settle(world);
    snprintf(ret_outcome->text, sizeof ret_outcome->text,
             "%llu times exactly those objects were alive that must be, at last %llu",
             (unsigned long long)world->compared, (unsigned long long)world->ledger.alive);
    return status;
}

static void objects_close(void *state) {
    world *world = state;
    if (!world)
        return;
    let_go(world, world->last);
    let_go(world, world->window);
    if (world->strategy == WORKLOAD_SCOPE)
        nd_gc_collect(world->manager, NULL);
    ledger_free(&world->ledger);
    free(world);
}

const workload workload_objects = {
    .name = "objects",
    .summary = "pages with links back, a cache, widgets that listen: cycles without a tensor",
    .steps = 2000,
    .value = "hits",
    .makes_cycles = true,
    .open = objects_open,
    .step = objects_step,
    .finish = objects_finish,
    .close = objects_close,
};
