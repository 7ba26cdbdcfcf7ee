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

enum { BUCKETS = 1024 };
static nd_lock name_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, name_lock);
static name_entry *name_buckets[BUCKETS];

static name_entry **find(const nd_object *object) {
    name_entry **slot =
        &name_buckets[((uintptr_t)object >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 54];
    while (*slot && (*slot)->object != object)
        slot = &(*slot)->next;
    return slot;
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
