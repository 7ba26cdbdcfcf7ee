// nd_resource: a user's memory or handle under management.
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/object/object.h"
#include "lib/object/user_code.h"

struct nd_resource {
    nd_accounted accounted;
    void *pointer;
    size_t bytes;
    nd_resource_callbacks callbacks;
    nd_type type; ///< its own, for the name
};

static void resource_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_resource *resource = (const nd_resource *)self;
    if (resource->pointer)
        resource->callbacks.traverse(resource->pointer, visitor);
}

static void resource_clear(nd_object *self) {
    nd_resource *resource = (nd_resource *)self;
    if (resource->pointer && resource->callbacks.clear)
        resource->callbacks.clear(resource->pointer);
}

static void resource_destroy(nd_object *self) {
    nd_resource *resource = (nd_resource *)self;
    void *pointer = resource->pointer;
    resource->pointer = NULL;
    if (!pointer || !resource->callbacks.free)
        return;
    ND__UNCANCELLED;
    nd_user_code code;
    nd__user_code_begin(&code);
    resource->callbacks.free(pointer, resource->bytes);
    nd__user_code_end(&code);
}

nd_resource *nd_resource_new(const char *type_name, void *pointer, size_t bytes,
                             const nd_resource_callbacks *callbacks) {
    if (!type_name || !pointer || !callbacks) {
        nd__error_null("resource_new", !type_name ? "type_name"
                                       : !pointer ? "pointer"
                                                  : "callbacks");
        return NULL;
    }
    nd_resource_callbacks chosen = {.size = sizeof chosen, .version = 1};
    if (nd__versioned_read("resource_new", "nd_resource_callbacks", callbacks, &chosen,
                           sizeof chosen) != ND_OK)
        return NULL;
    if (chosen.traverse && !chosen.clear) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "resource_new: the callbacks of %s have traverse without clear", type_name);
        return NULL;
    }
    static const nd_type resource_type = {
        .size = sizeof(nd_type), .version = 1, .name = "resource"};
    nd_resource *resource = (nd_resource *)nd__object_new(&resource_type, sizeof *resource);
    if (!resource)
        return NULL;
    resource->type = (nd_type){
        .size = sizeof(nd_type),
        .version = 1,
        .name = type_name,
        .flags = ND__TYPE_ACCOUNTED | (chosen.traverse ? 0 : ND_TYPE_GREEN),
        .traverse = chosen.traverse ? resource_traverse : NULL,
        .clear = chosen.traverse ? resource_clear : NULL,
        .destroy = resource_destroy,
    };
    resource->accounted.header.type = &resource->type;
    resource->accounted.bytes = bytes;
    resource->accounted.kind = ND_CPU;
    resource->pointer = pointer;
    resource->bytes = bytes;
    resource->callbacks = chosen;
    return nd__object_publish_or_discard("resource_new", resource);
}

void *nd_resource_get(const nd_resource *resource) {
    if (!resource) {
        nd__error_null("resource_get", "resource");
        return NULL;
    }
    if (nd__object_is_closed(resource)) {
        nd__error(ND_ERROR_CLOSED, "resource_get: the %s is closed", resource->type.name);
        return NULL;
    }
    return resource->pointer;
}
