// Objects of programs' own types: a payload behind the header.
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/base/versioned.h"
#include "lib/object/block.h"
#include "lib/object/callback.h"
#include "lib/object/object.h"
#include <string.h>

/// The largest payload that fits into the header's cache line: a pointer, as a rule. No type so
/// small wants a larger alignment.
enum { SMALL_BYTES = ND__PAYLOAD - ND__PAYLOAD_SMALL };

/// What a larger one takes: whole cache lines, so that one header, which is what the collector reads
/// of most, lies on one, and neighbours that two threads have share none.
static inline size_t whole_lines(size_t bytes) {
    return (bytes + ND__BLOCK_LINE - 1) & ~(size_t)(ND__BLOCK_LINE - 1);
}

/// From an object with these flags to its payload.
static inline size_t payload_offset(uint32_t flags) {
    _Static_assert(ND__SMALL % SMALL_BYTES == 0, "one bit, shifted");
    return ND__PAYLOAD - (flags & ND__SMALL) / (ND__SMALL / SMALL_BYTES);
}

/// A user's object that is still private.
static nd_object *new_user(const char *operation, const nd_type *type, size_t size) {
    if (nd__versioned_check_kept(operation, "nd_type", type, sizeof *type) != ND_OK)
        return NULL;
    if (!type->name) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the type has no name", operation);
        return NULL;
    }
    // The library's own bits say how the object is laid out, which a program's is not.
    const uint32_t unknown = type->flags & ~ND_TYPE_GREEN;
    if (unknown) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "%s: the flags of type %s are 0x%x, and nothing is known by 0x%x; they are 0 or "
                  "ND_TYPE_GREEN",
                  operation, type->name, type->flags, unknown);
        return NULL;
    }
    if (size > SIZE_MAX / 2) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: %zu bytes are too many for a %s", operation, size,
                  type->name);
        return NULL;
    }
    uint32_t small = size <= SMALL_BYTES ? ND__SMALL : 0;
    nd_object *object =
        nd__object_new_bare(type, small ? ND__PAYLOAD : whole_lines(ND__PAYLOAD + size));
    if (!object)
        return NULL;
    if (small)
        memset(object + 1, 0, SMALL_BYTES);
    else
        memset((char *)object + ND__PAYLOAD, 0, size);
    atomic_init(&object->flags, nd__object_flags(object) | ND__USER | small);
    return object;
}

nd_object *nd_object_new(const nd_type *type, size_t size) {
    nd_object *object = new_user("object_new", type, size);
    return object ? nd__object_publish_or_discard("object_new", object) : NULL;
}

nd_object *nd_object_new_with(const nd_type *type, size_t size, nd_object_init init, void *data) {
    static const char operation[] = "object_new_with";
    if (!init) {
        nd__error_null(operation, "init");
        return NULL;
    }
    if (nd__callback_check(operation) != ND_OK)
        return NULL;
    nd_object *object = new_user(operation, type, size);
    if (!object)
        return NULL;
    ND__UNCANCELLED;
    nd_status status = init(object, data);
    if (status != ND_OK && nd_error_get_status() != status)
        nd__error(status, "%s: the init of a %s answered %s", operation, type->name,
                  nd_status_get_name(status));
    if (status == ND_OK && nd__seam_publish(operation, object) == ND_OK)
        return object;
    nd_close(object); // what it holds already goes; who got hold of it has a closed object
    nd_object_release(object);
    return NULL;
}

void *nd_object_get_data(const nd_object *object) {
    uint32_t flags = object ? nd__object_flags(object) : 0;
    // The callbacks of the type itself still see the payload of an object that is being closed.
    if (__builtin_expect((flags & (ND__USER | ND__GONE)) == ND__USER, 1))
        return (char *)(uintptr_t)object + payload_offset(flags);
    if (flags & ND__USER)
        nd__error(ND_ERROR_CLOSED, "object_get_data: the %s is closed", object->type->name);
    return NULL;
}
