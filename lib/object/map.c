// nd_map: names, their objects, and an index over the names.
//
//   entry    a name and its object, in the order in which the names came. One that was removed leaves
//            a gap, which the next array that the entries move to does without
//   index    for each hash a place to look at first, then the next ones: 1 + the entry's number, or
//            FREE. A removed entry's place stays taken until the index is made anew
//
// The collector reads `entries`, `used` and the objects in them: these change inside the gate. The
// name of an entry is the label of its edge, so it is freed once the edge is gone. Whatever may run
// user code, which may use the map or close it, comes before the first look at what is changed.
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include <nd/map.h>
#include <string.h>
#include <sys/auxv.h>

typedef struct map_name {
    uint64_t hash;
    char text[];
} map_name;

typedef struct map_entry {
    nd_object *object; ///< edge
    map_name *name;    ///< NULL: a gap
} map_entry;

struct nd_map {
    nd_object header;
    size_t size;
    size_t first;          ///< no entry before this one is in use
    size_t used, capacity; ///< entries, gaps included; and room for them
    map_entry *entries;
    uint32_t *index; ///< twice as many places as `capacity`, a power of two
};

enum { FREE = 0, CAPACITY_MIN = 8 };
#define CAPACITY_MAX ((size_t)1 << 31)

static void map_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_map *map = (const nd_map *)self;
    for (size_t i = 0; i < map->used; i++)
        if (map->entries[i].object)
            nd_visit(visitor, map->entries[i].object, map->entries[i].name->text);
}

static void map_clear(nd_object *self) {
    nd_map *map = (nd_map *)self;
    for (size_t i = map->used; i-- > 0;)
        if (map->entries[i].object)
            nd_edge_clear(&map->entries[i].object);
}

static void free_entries(map_entry *entries, size_t used) {
    for (size_t i = 0; i < used; i++)
        nd__alloc_free(entries[i].name);
    nd__alloc_free(entries);
}

static void map_destroy(nd_object *self) {
    nd_map *map = (nd_map *)self;
    free_entries(map->entries, map->used);
    nd__alloc_free(map->index);
    map->entries = NULL;
    map->index = NULL;
    map->size = map->first = map->used = map->capacity = 0;
}

static const nd_type map_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "map",
    .traverse = map_traverse,
    .clear = map_clear,
    .destroy = map_destroy,
};

nd_map *nd_map_new(void) {
    nd_map *map = (nd_map *)nd__object_new(&map_type, sizeof *map);
    if (!map)
        return NULL;
    return nd__object_publish_or_discard("map_new", map);
}

// ------------------------------------------------------------------------------------------ hashes

/// Both halves of a product: every bit of both factors has a say in it.
static uint64_t mix(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/// Of the process, so that nobody can prepare names that meet.
static uint64_t seed(void) {
    static _Atomic uint64_t known;
    uint64_t value = nd__atomic_load_relaxed(&known);
    if (__builtin_expect(value == 0, 0)) {
        const void *random = (const void *)getauxval(AT_RANDOM);
        if (random)
            memcpy(&value, random, sizeof value);
        value |= 1;
        nd__atomic_store(&known, value, relaxed);
    }
    return value;
}

static uint64_t hash_of(const char *name, size_t length) {
    const uint64_t odd = UINT64_C(0x9E3779B97F4A7C15), other = UINT64_C(0xD1B54A32D192ED03);
    uint64_t hash = seed() ^ mix(length + 1, odd);
    for (; length >= 8; length -= 8, name += 8) {
        uint64_t word;
        memcpy(&word, name, 8);
        hash = mix(hash ^ word, odd);
    }
    uint64_t rest = 0;
    memcpy(&rest, name, length);
    return mix(mix(hash ^ rest, odd) ^ other, other);
}

// ------------------------------------------------------------------------------------------- index

static size_t places_of(size_t capacity) {
    return 2 * capacity;
}

/// The place in the index of a name; that of a free one when it is not there.
static size_t find_place(const nd_map *map, const char *name, uint64_t hash) {
    size_t mask = places_of(map->capacity) - 1, place = hash & mask;
    for (; map->index[place] != FREE; place = (place + 1) & mask) {
        const map_name *other = map->entries[map->index[place] - 1].name;
        if (other && other->hash == hash && strcmp(other->text, name) == 0)
            break;
    }
    return place;
}

/// The entry of a name, or NULL.
static map_entry *find(const nd_map *map, const char *name) {
    if (map->size == 0)
        return NULL;
    size_t place = find_place(map, name, hash_of(name, strlen(name)));
    return map->index[place] == FREE ? NULL : &map->entries[map->index[place] - 1];
}

// ------------------------------------------------------------------------------------------ checks

static nd_status check(const char *operation, const nd_map *map) {
    if (!map)
        return nd__error_null(operation, "map");
    if (nd__object_is_closing(map))
        return nd__error(ND_ERROR_CLOSED, "%s: the map is closed", operation);
    return ND_OK;
}

static nd_status check_name(const char *operation, const nd_map *map, const char *name) {
    nd_status status = check(operation, map);
    return status == ND_OK && !name ? nd__error_null(operation, "name") : status;
}

/// The entry of a name, or NULL with an error.
static map_entry *find_or_fail(const char *operation, const nd_map *map, const char *name) {
    if (check_name(operation, map, name) != ND_OK)
        return NULL;
    map_entry *entry = find(map, name);
    if (!entry)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: nothing is called '%.200s' in a map of %zu names",
                  operation, name, map->size);
    return entry;
}

// ----------------------------------------------------------------------------------------- growing

/// Room for half as many entries again as there are, and for one more at least.
static size_t wanted_capacity(const nd_map *map) {
    size_t capacity = CAPACITY_MIN;
    while (capacity <= map->size + map->size / 2)
        capacity *= 2;
    return capacity;
}

/// Moves what is in use to other arrays, which have room, and gives the old ones back in their
/// place.
static void move_to(nd_map *map, map_entry **entries, uint32_t **index, size_t capacity) {
    size_t mask = places_of(capacity) - 1, count = 0;
    memset(*index, 0, places_of(capacity) * sizeof **index);
    for (size_t i = map->first; i < map->used; i++) {
        const map_entry *entry = &map->entries[i];
        if (!entry->name)
            continue;
        size_t place = entry->name->hash & mask;
        while ((*index)[place] != FREE)
            place = (place + 1) & mask;
        (*entries)[count++] = *entry;
        (*index)[place] = (uint32_t)count;
    }
    map_entry *old_entries = map->entries;
    uint32_t *old_index = map->index;
    nd__gate_enter();
    map->entries = *entries;
    map->used = count;
    nd__gate_leave();
    map->index = *index;
    map->capacity = capacity;
    map->first = 0;
    *entries = old_entries;
    *index = old_index;
}

/// Room for one more entry, unless a callback for memory makes it, or closes the map.
static nd_status grow(nd_map *map) {
    size_t capacity = wanted_capacity(map);
    map_entry *entries = NULL;
    uint32_t *index = NULL;
    if (capacity <= CAPACITY_MAX) {
        entries = nd__seam_alloc(capacity * sizeof *entries);
        index = entries ? nd__seam_alloc(places_of(capacity) * sizeof *index) : NULL;
    }
    nd_status status = check("map_set", map);
    if (!index)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "map_set: no memory for %zu names", capacity);
    else if (status == ND_OK && map->used == map->capacity && map->size < capacity)
        move_to(map, &entries, &index, capacity);
    nd__alloc_free(entries);
    nd__alloc_free(index);
    return status;
}

static map_name *copy_name(const char *name) {
    size_t length = strlen(name);
    map_name *copy = nd__seam_alloc(sizeof *copy + length + 1);
    if (!copy) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "map_set: no memory for a name of %zu bytes", length);
        return NULL;
    }
    copy->hash = hash_of(name, length);
    memcpy(copy->text, name, length + 1);
    return copy;
}

/// Appends an entry under a name (consumed) that is not there. There is room.
static void append(nd_map *map, map_name *name, const void *object) {
    map_entry entry = {nd_object_retain(object), name};
    size_t place = find_place(map, name->text, name->hash);
    nd__gate_enter();
    map->entries[map->used++] = entry;
    nd__gate_leave();
    map->index[place] = (uint32_t)map->used;
    map->size++;
}

/// Takes an entry out: its object, owned, and its name, to be freed.
static nd_object *take(nd_map *map, map_entry *entry, map_name **ret_name) {
    *ret_name = entry->name;
    nd_object *object = entry->object;
    nd__gate_enter();
    entry->object = NULL;
    nd__object_note_moved(object);
    nd__gate_leave();
    entry->name = NULL;
    map->size--;
    while (map->first < map->used && !map->entries[map->first].name)
        map->first++;
    return object;
}

// ------------------------------------------------------------------------------------------ public

nd_status nd_map_set(nd_map *map, const char *name, const void *object) {
    nd_status status = check_name("map_set", map, name);
    if (status == ND_OK && !object)
        status = nd__error_null("map_set", "object");
    if (status != ND_OK)
        return status;
    map_entry *entry = find(map, name);
    if (entry) {
        nd_edge_set(&entry->object, object);
        return ND_OK;
    }
    map_name *copy = copy_name(name);
    if (!copy)
        return nd_error_get_status();
    status = check("map_set", map);
    while (status == ND_OK && map->used == map->capacity)
        status = grow(map);
    if (status == ND_OK)
        entry = find(map, name); // a callback for memory may have set it
    if (status == ND_OK && !entry) {
        append(map, copy, object);
        return ND_OK;
    }
    nd__alloc_free(copy);
    if (entry)
        nd_edge_set(&entry->object, object);
    return status;
}

const nd_object *nd_map_get(const nd_map *map, const char *name) {
    const map_entry *entry = find_or_fail("map_get", map, name);
    return entry ? entry->object : NULL;
}

nd_object *nd_map_remove(nd_map *map, const char *name) {
    map_entry *entry = find_or_fail("map_remove", map, name);
    if (!entry)
        return NULL;
    map_name *unused;
    nd_object *object = take(map, entry, &unused);
    nd__alloc_free(unused);
    return object;
}

bool nd_map_contains(const nd_map *map, const char *name) {
    return map && name && find(map, name);
}

size_t nd_map_get_size(const nd_map *map) {
    return map ? map->size : 0;
}

bool nd_map_next(const nd_map *map, size_t *at, const char **ret_name,
                 const nd_object **ret_object) {
    if (!map || !at || map->size == 0)
        return false;
    size_t i = *at > map->first ? *at : map->first;
    while (i < map->used && !map->entries[i].name)
        i++;
    if (i >= map->used)
        return false;
    *at = i + 1;
    if (ret_name)
        *ret_name = map->entries[i].name->text;
    if (ret_object)
        *ret_object = map->entries[i].object;
    return true;
}

nd_status nd_map_clear(nd_map *map) {
    nd_status status = check("map_clear", map);
    if (status != ND_OK)
        return status;
    nd_object *held = nd_object_retain(map); // what dies may release the caller's handle
    size_t i = map->used;
    while (map->size) {
        if (i == 0 || i > map->used) // what died has used the map
            i = map->used;
        map_entry *entry = &map->entries[--i];
        if (!entry->name)
            continue;
        map_name *unused;
        nd_object *object = take(map, entry, &unused);
        nd__alloc_free(unused);
        nd_object_release(object);
    }
    if (map->used) {
        nd__gate_enter();
        map->used = 0;
        nd__gate_leave();
        map->first = 0;
        memset(map->index, 0, places_of(map->capacity) * sizeof *map->index);
    }
    nd_object_release(held);
    return ND_OK;
}
