// Names of objects: a side table by address, so that an object without a name pays nothing.
#include "lib/object/name.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/seam.h"
#include "lib/object/object.h"
#include <stdio.h>
#include <string.h>

typedef struct name_entry {
    struct name_entry *next;
    const nd_object *object;
    char text[];
} name_entry;

/// As long as there are few names their table is this one; with more names than places it is
/// doubled, and with the last name it is given back.
enum { FIRST_BITS = 10 };
static nd_lock name_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, name_lock);
static name_entry *first_places[1 << FIRST_BITS];
static name_entry **name_places = first_places;
static unsigned name_place_bits = FIRST_BITS;
static size_t name_count;

static name_entry **place_of(const nd_object *object) {
    return &name_places[((uintptr_t)object >> 6) * UINT64_C(0x9E3779B97F4A7C15) >>
                        (64 - name_place_bits)];
}

static name_entry **find(const nd_object *object) {
    name_entry **slot = place_of(object);
    while (*slot && (*slot)->object != object)
        slot = &(*slot)->next;
    return slot;
}

/// Where there is no memory for it the table stays as it is, which costs time alone.
static void double_table(void) {
    const size_t size = (size_t)1 << name_place_bits;
    name_entry **old = name_places, **wider = nd__alloc_zeroed(2 * size * sizeof *wider);
    if (!wider)
        return;
    name_places = wider;
    name_place_bits++;
    for (size_t i = 0; i < size; i++)
        for (name_entry *entry = old[i], *next; entry; entry = next) {
            name_entry **place = place_of(entry->object);
            next = entry->next;
            entry->next = *place;
            *place = entry;
        }
    if (old == first_places)
        memset(first_places, 0, sizeof first_places);
    else
        nd__alloc_free(old);
}

static void drop_empty_table(void) {
    if (name_places == first_places)
        return;
    nd__alloc_free(name_places);
    name_places = first_places;
    name_place_bits = FIRST_BITS;
}

/// Puts `entry` (may be NULL) in the place of the object's old one, which it returns.
static name_entry *exchange(const nd_object *object, name_entry *entry) {
    nd__lock_acquire(&name_lock);
    name_entry **slot = find(object);
    name_entry *old = *slot;
    if (old)
        *slot = old->next;
    if (entry) {
        entry->next = *slot;
        *slot = entry;
    }
    name_count += (size_t)(entry != NULL) - (size_t)(old != NULL);
    if (name_count > (size_t)1 << name_place_bits)
        double_table();
    else if (name_count == 0)
        drop_empty_table();
    nd__lock_release(&name_lock);
    return old;
}

nd_status nd_set_name(void *handle, const char *name) {
    if (!handle)
        return nd__error_null("set_name", "object");
    nd_object *object = handle;
    name_entry *entry = NULL;
    if (name) {
        size_t length = strlen(name);
        entry = nd__seam_alloc(sizeof *entry + length + 1);
        if (!entry)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "set_name: no memory for a name of %zu bytes",
                             length);
        entry->object = object;
        memcpy(entry->text, name, length + 1);
        nd__atomic_set_flags(&object->flags, ND__NAMED);
    }
    nd__alloc_free(exchange(object, entry));
    return ND_OK;
}

const char *nd_get_name(const void *handle, char *buffer, size_t size) {
    if (!buffer || size == 0)
        return "";
    buffer[0] = '\0';
    if (!handle || !(nd__object_flags(handle) & ND__NAMED))
        return buffer;
    nd__lock_acquire(&name_lock);
    const name_entry *entry = *find(handle);
    if (entry)
        snprintf(buffer, size, "%s", entry->text);
    nd__lock_release(&name_lock);
    return buffer;
}

void nd__name_remove(nd_object *object) {
    nd__alloc_free(exchange(object, NULL));
}
