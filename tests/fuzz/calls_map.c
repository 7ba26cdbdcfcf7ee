// Calls about maps, each held against a model: what a map shows before a call, and what the call
// must make of it.
#include "tests/fuzz/program.h"
#include <string.h>

static const char *const names[] = {
    "",
    "a",
    "b",
    "weight",
    "seven77",
    "eight888",
    "nine 9999",
    "sixteen characte",
    "sixteen characts",
    "\xC3\xA9",
    "a ",
    "weights",
    "a name that is longer than the words of its hash, and than most names are",
};
enum { NAMES = sizeof names / sizeof *names };

/// What a map shows: numbers of names and objects, in order.
typedef struct content {
    unsigned size, names[NAMES];
    const nd_object *objects[NAMES];
} content;

static const char *name_of(uint8_t number) {
    return names[number % NAMES];
}

static unsigned find(const content *of, const char *name) {
    unsigned i = 0;
    while (i < of->size && strcmp(names[of->names[i]], name) != 0)
        i++;
    return i;
}

static content read_content(const nd_map *map) {
    content read = {0};
    const char *name = NULL;
    const nd_object *object = NULL;
    for (size_t at = 0; nd_map_next(map, &at, &name, &object); read.size++) {
        unsigned number = 0;
        while (number < NAMES && strcmp(names[number], name) != 0)
            number++;
        if (number == NAMES || read.size == NAMES || find(&read, name) < read.size)
            fuzz_die("a map shows a name that nobody gave it, or one twice: %s", name);
        read.names[read.size] = number;
        read.objects[read.size] = object;
    }
    return read;
}

/// The walk, the size and every name say the same as the model.
static void compare(const nd_map *map, const content *expected) {
    content read = read_content(map);
    if (read.size != expected->size || nd_map_get_size(map) != expected->size)
        fuzz_die("a map has %u names of %u", read.size, expected->size);
    if (memcmp(read.names, expected->names, read.size * sizeof *read.names) != 0 ||
        memcmp(read.objects, expected->objects, read.size * sizeof(nd_object *)) != 0)
        fuzz_die("a map shows other names, objects, or another order");
    for (unsigned i = 0; i < NAMES; i++)
        if (nd_map_contains(map, names[i]) != (find(expected, names[i]) < expected->size))
            fuzz_die("a map is wrong about whether it has a name");
    for (unsigned i = 0; i < read.size; i++)
        if (nd_map_get(map, names[read.names[i]]) != read.objects[i])
            fuzz_die("a map has another object under a name than it shows");
}

static void put_item(fuzz_actor *me, uint8_t number, nd_object *item) {
    if (item && fuzz_kind_of(item) < FUZZ_KINDS)
        fuzz_put(me, fuzz_kind_of(item), number, item);
    else
        nd_release(item);
}

static void new_map(fuzz_actor *me, const fuzz_step *s) {
    nd_map *map = nd_map_new();
    fuzz_expect(me, map);
    fuzz_put_fresh(me, FUZZ_MAP, s->a, map);
}

static void map_set(fuzz_actor *me, const fuzz_step *s) {
    const void *item = fuzz_pick_any(me, s->b);
    nd_map *map = fuzz_pick_to_write(me, FUZZ_MAP, s->a);
    if (!map && fuzz_threaded)
        return;
    content expected = read_content(map);
    nd_status status = nd_map_set(map, name_of(s->c), item);
    fuzz_expect(me, status == ND_OK);
    if (me->disturbed)
        return;
    if (status == ND_OK) {
        unsigned at = find(&expected, name_of(s->c));
        expected.size += at == expected.size;
        expected.names[at] = s->c % NAMES;
        expected.objects[at] = item;
    }
    compare(map, &expected);
}

static void forget(content *of, unsigned at) {
    of->size--;
    for (; at < of->size; at++) {
        of->names[at] = of->names[at + 1];
        of->objects[at] = of->objects[at + 1];
    }
}

static void map_remove(fuzz_actor *me, const fuzz_step *s) {
    nd_map *map = fuzz_pick_to_write(me, FUZZ_MAP, s->a);
    if (!map && fuzz_threaded)
        return;
    content expected = read_content(map);
    unsigned at = find(&expected, name_of(s->c));
    nd_object *taken = nd_map_remove(map, name_of(s->c));
    fuzz_expect(me, taken);
    if (!me->disturbed) {
        if ((taken != NULL) != (at < expected.size) || (taken && taken != expected.objects[at]))
            fuzz_die("what a map gave back is not what it had");
        if (taken)
            forget(&expected, at);
        compare(map, &expected);
    }
    put_item(me, s->b, taken);
}

static void map_get(fuzz_actor *me, const fuzz_step *s) {
    const nd_map *map = fuzz_pick(me, FUZZ_MAP, s->a);
    bool there = nd_map_contains(map, name_of(s->c));
    const nd_object *item = nd_map_get(map, name_of(s->c));
    fuzz_expect(me, item);
    if (there != (item != NULL))
        fuzz_die("a map is wrong about whether it has a name");
    put_item(me, s->b, nd_object_retain(item));
}

static void map_clear(fuzz_actor *me, const fuzz_step *s) {
    nd_map *map = fuzz_pick_to_write(me, FUZZ_MAP, s->a);
    if (!map && fuzz_threaded)
        return;
    nd_status status = nd_map_clear(map);
    fuzz_expect(me, status == ND_OK);
    // A closed map, whose clear is refused, shows nothing either.
    if (!me->disturbed)
        compare(map, &(content){0});
}

/// Every name that the number's bits say goes during a walk, which sees the others once, in their
/// order.
static void map_walk(fuzz_actor *me, const fuzz_step *s) {
    nd_map *map = fuzz_pick_to_write(me, FUZZ_MAP, s->a);
    if (!map)
        return;
    content before = read_content(map), expected = before;
    const char *name = NULL;
    unsigned seen = 0;
    for (size_t at = 0; nd_map_next(map, &at, &name, NULL); seen++) {
        if (me->disturbed)
            return;
        if (seen >= before.size || strcmp(name, names[before.names[seen]]) != 0)
            fuzz_die("a walk over a map goes astray when names are removed");
        if (((s->b | s->c << 8) >> before.names[seen]) & 1) {
            const char *goes = names[before.names[seen]];
            forget(&expected, find(&expected, goes));
            nd_release(nd_map_remove(map, goes));
        }
    }
    if (me->disturbed)
        return;
    if (seen != before.size)
        fuzz_die("a walk over a map ends too early");
    compare(map, &expected);
}

const fuzz_call fuzz_map_calls[] = {
    {"new_map", new_map, FUZZ_QUEUES},
    {"map_set", map_set, FUZZ_QUEUES},
    {"map_remove", map_remove, FUZZ_QUEUES},
    {"map_get", map_get, FUZZ_QUEUES},
    {"map_clear", map_clear, FUZZ_QUEUES},
    {"map_walk", map_walk, FUZZ_QUEUES},
    {0},
};
