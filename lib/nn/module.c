// Modules: objects with named parameters, buffers and children, and a mode.
//
// Invariant: the member array is only exchanged, and its count only changed, inside the gate,
// because the collector may be reading it. A module never reaches itself through its children, so
// that a walk ends.
#include "lib/nn/module.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/base/versioned.h"
#include "lib/io/safetensors_read.h"
#include "lib/manager/place.h"
#include "lib/nn/checkpoint.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include <nd/autograd.h>
#include <stdalign.h>
#include <string.h>

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type module_object_type = {.size = sizeof(nd_type),
                                           .version = 1,
                                           .name = "module",
                                           .traverse = traverse,
                                           .clear = clear,
                                           .destroy = destroy};

static nd_status add_member(const char *operation, nd_module *module, const char *name,
                            const void *object, nd_member_kind kind);
static nd_status check_name(const char *operation, const nd_module *module, const char *name);
static nd_status check_parameter(const nd_tensor *parameter);
static nd_status check_buffer(const nd_tensor *buffer);
static const nd_tensor *get_tensor(const char *operation, const nd_module *module, const char *name,
                                   nd_member_kind kind);
static nd_status set_training(const nd_module *module, bool training, bool write, int depth);
static nd_status grow(const char *operation, nd_module *module);
static const nd_member *find(const nd_module *module, const char *name, size_t length);
static bool reaches(const nd_module *from, const nd_module *target, int depth);

nd_module *nd_module_new(const nd_module_type *type, const void *data, size_t data_size) {
    if (!type) {
        nd__error_null("module_new", "type");
        return NULL;
    }
    if (nd__versioned_check_kept("module_new", "nd_module_type", type, sizeof *type) != ND_OK)
        return NULL;
    if (!type->name || !type->forward) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "module_new: a type needs a name and a forward function");
        return NULL;
    }
    if (data_size > 0 && !data) {
        nd__error_null("module_new", "data");
        return NULL;
    }
    return nd__module_new(type, data, data_size);
}

nd_module *nd__module_new(const nd_module_type *type, const void *data, size_t data_size) {
    const size_t alignment = alignof(max_align_t);
    const size_t data_offset = (sizeof(nd_module) + alignment - 1) / alignment * alignment;
    if (data_size > SIZE_MAX / 2) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "module_new: no memory for %zu bytes of data", data_size);
        return NULL;
    }
    nd_module *module = (nd_module *)nd__object_new(&module_object_type, data_offset + data_size);
    if (!module)
        return NULL;
    module->type = type;
    atomic_store_explicit(&module->training, true, memory_order_relaxed);
    if (data_size > 0) {
        module->data = (char *)module + data_offset;
        memcpy(module->data, data, data_size);
    }
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &module->header);
}

const void *nd_module_get_data(const nd_module *module) {
    return module ? module->data : NULL;
}

nd_status nd_module_add_parameter(nd_module *module, const char *name, const nd_tensor *parameter) {
    nd_status status = nd__module_check("module_add_parameter", module);
    if (status == ND_OK)
        status = check_parameter(parameter);
    if (status == ND_OK)
        status = add_member("module_add_parameter", module, name, parameter, ND__MEMBER_PARAMETER);
    return status;
}

nd_status nd_module_add_buffer(nd_module *module, const char *name, const nd_tensor *buffer) {
    nd_status status = nd__module_check("module_add_buffer", module);
    if (status == ND_OK)
        status = check_buffer(buffer);
    if (status == ND_OK)
        status = add_member("module_add_buffer", module, name, buffer, ND__MEMBER_BUFFER);
    return status;
}

nd_status nd_module_add_child(nd_module *module, const char *name, const nd_module *child) {
    static const char operation[] = "module_add_child";
    nd_status status = nd__module_check(operation, module);
    if (status == ND_OK)
        status = nd__module_check(operation, child);
    if (status == ND_OK && reaches(child, module, 1))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT,
                           "%s: the child contains the module, or more than %d modules would stand "
                           "inside each other",
                           operation, ND__MODULE_DEPTH_MAX);
    if (status == ND_OK)
        status = add_member(operation, module, name, child, ND__MEMBER_CHILD);
    return status;
}

const nd_tensor *nd_module_get_parameter(const nd_module *module, const char *name) {
    return get_tensor("module_get_parameter", module, name, ND__MEMBER_PARAMETER);
}

const nd_tensor *nd_module_get_buffer(const nd_module *module, const char *name) {
    return get_tensor("module_get_buffer", module, name, ND__MEMBER_BUFFER);
}

nd_status nd_module_set_training(const nd_module *module, bool training) {
    nd_status status = set_training(module, training, false, 1); // a closed child leaves all as is
    return status == ND_OK ? set_training(module, training, true, 1) : status;
}

bool nd_module_is_training(const nd_module *module) {
    return module && atomic_load_explicit(&module->training, memory_order_relaxed);
}

const nd_module *nd_module_get_child(const nd_module *module, size_t index) {
    if (nd__module_check("module_get_child", module) != ND_OK)
        return NULL;
    size_t children = 0;
    for (size_t i = 0; i < module->count; i++)
        if (!nd__module_is_tensor(&module->members[i]) && children++ == index)
            return (const nd_module *)module->members[i].object;
    nd__error(ND_ERROR_INVALID_ARGUMENT, "module_get_child: child %zu of a module that has %zu",
              index, children);
    return NULL;
}

size_t nd_module_get_child_count(const nd_module *module) {
    size_t children = 0;
    for (size_t i = 0; module && i < module->count; i++)
        children += !nd__module_is_tensor(&module->members[i]);
    return children;
}

nd_status nd_module_set_key(nd_module *module, nd_key key) {
    nd_status status = nd__module_check("module_set_key", module);
    if (status != ND_OK)
        return status;
    module->draws = true;
    module->key = key;
    atomic_store_explicit(&module->drawn, 0, memory_order_relaxed);
    return ND_OK;
}

nd_status nd_module_next_key(const nd_module *module, nd_key *ret_key) {
    static const char operation[] = "module_next_key";
    nd_status status = nd__module_check(operation, module);
    if (status == ND_OK && !ret_key)
        status = nd__error_null(operation, "ret_key");
    if (status == ND_OK && !module->draws)
        status = nd__error(ND_ERROR_STATE, "%s: the module, a %s, has no key (nd_module_set_key)",
                           operation, module->type->name);
    if (status != ND_OK)
        return status;
    return nd__checkpoint_draw(operation, (nd_module *)(uintptr_t)module, ret_key);
}

nd_tensor *nd_module_forward(const nd_module *module, const nd_tensor *x) {
    if (nd__module_check("module_forward", module) != ND_OK ||
        nd__tensor_check_operand(module->type->name, "x", x) != ND_OK)
        return NULL;
    ND__UNCANCELLED;
    nd_tensor *result = module->type->forward(module, x);
    if (!result && nd_error_get_status() == ND_OK)
        nd__error(ND_ERROR_STATE, "module_forward: forward of %s gave no result and set no error",
                  module->type->name);
    return result;
}

nd_status nd__module_check(const char *operation, const nd_module *module) {
    if (!module)
        return nd__error_null(operation, "module");
    if (nd__object_is_closed(module))
        return nd__error(ND_ERROR_CLOSED, "%s: the module, a %s, was closed", operation,
                         module->type->name);
    return ND_OK;
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_module *module = (const nd_module *)self;
    for (size_t i = 0; i < module->count; i++)
        nd_visit(visitor, module->members[i].object, module->members[i].name);
}

static void clear(nd_object *self) {
    nd_module *module = (nd_module *)self;
    for (size_t i = 0; i < module->count; i++)
        nd_edge_clear(&module->members[i].object);
}

static void destroy(nd_object *self) {
    nd_module *module = (nd_module *)self;
    nd__gate_enter_to_clear(); // a closed module may still be looked at
    nd_member *members = module->members;
    module->members = NULL;
    module->count = 0;
    module->capacity = 0;
    nd__gate_leave();
    nd__alloc_free(members);
}

static nd_status add_member(const char *operation, nd_module *module, const char *name,
                            const void *object, nd_member_kind kind) {
    nd_status status = check_name(operation, module, name);
    while (status == ND_OK && module->count == module->capacity)
        status = grow(operation, module);
    if (status != ND_OK)
        return status;
    nd_member *member = &module->members[module->count];
    member->kind = kind;
    strcpy(member->name, name);
    nd_object *retained = nd_object_retain(object);
    nd__gate_enter();
    member->object = retained;
    module->count++;
    nd__gate_leave();
    return ND_OK;
}

nd_status nd__module_check_in_file(const char *operation, const char *name) {
    const bool is_text = nd__utf8_is_valid(name);
    if (is_text && strcmp(name, ND__SAFETENSORS_METADATA) != 0)
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the name '%.80s' is none for a file: %s",
                     operation, name, is_text ? "it is reserved" : "it is no UTF-8");
}

static nd_status check_name(const char *operation, const nd_module *module, const char *name) {
    if (!name)
        return nd__error_null(operation, "name");
    size_t length = strlen(name);
    if (length == 0 || length > ND__MODULE_NAME_MAX || strchr(name, '.'))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the name '%.80s'; a name has 1 to %d bytes and no dot", operation,
                         name, ND__MODULE_NAME_MAX);
    if (nd__module_check_in_file(operation, name) != ND_OK)
        return ND_ERROR_INVALID_ARGUMENT;
    if (find(module, name, length))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the module has a member '%s' already",
                         operation, name);
    return ND_OK;
}

static nd_status check_parameter(const nd_tensor *parameter) {
    static const char operation[] = "module_add_parameter";
    nd_status status = nd__tensor_check_operand(operation, "parameter", parameter);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_float(parameter->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: the parameter is %s, parameters are floats",
                         operation, nd_dtype_get_name(parameter->dtype));
    if (!nd__tensor_is_contiguous(parameter))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the tensor is no contiguous one; parameters are (nd_contiguous)",
                         operation);
    if (!nd_is_leaf(parameter) || !nd_requires_grad(parameter))
        return nd__error(
            ND_ERROR_STATE, "%s: the tensor %s; parameters are leaves that require a gradient",
            operation,
            !nd_is_leaf(parameter) ? "was computed from others" : "does not require a gradient");
    return ND_OK;
}

static nd_status check_buffer(const nd_tensor *buffer) {
    static const char operation[] = "module_add_buffer";
    nd_status status = nd__tensor_check_operand(operation, "buffer", buffer);
    if (status != ND_OK)
        return status;
    if (!nd__tensor_is_contiguous(buffer))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the tensor is no contiguous one; buffers are (nd_contiguous)",
                         operation);
    if (nd_requires_grad(buffer))
        return nd__error(ND_ERROR_STATE,
                         "%s: the tensor requires a gradient, which a buffer does not; add it as a "
                         "parameter, or detach it",
                         operation);
    return ND_OK;
}

/// A parameter or buffer by name, borrowed; dots walk into children.
static const nd_tensor *get_tensor(const char *operation, const nd_module *module, const char *name,
                                   nd_member_kind kind) {
    if (nd__module_check(operation, module) != ND_OK)
        return NULL;
    if (!name) {
        nd__error_null(operation, "name");
        return NULL;
    }
    const char *part = name;
    for (;;) {
        size_t length = strcspn(part, ".");
        bool last = part[length] == 0;
        const nd_member *member = find(module, part, length);
        if (!member || member->kind != (last ? kind : ND__MEMBER_CHILD)) {
            nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the module has no %s '%.200s'", operation,
                      kind == ND__MEMBER_PARAMETER ? "parameter" : "buffer", name);
            return NULL;
        }
        if (last)
            return (nd_tensor *)member->object;
        module = (const nd_module *)member->object;
        if (nd__module_check(operation, module) != ND_OK)
            return NULL;
        part += length + 1;
    }
}

/// Checks the module and everything below, and sets the mode when `write` says so.
static nd_status set_training(const nd_module *module, bool training, bool write, int depth) {
    nd_status status = nd__module_check("module_set_training", module);
    if (status == ND_OK && depth > ND__MODULE_DEPTH_MAX)
        status = nd__error(ND_ERROR_UNSUPPORTED,
                           "module_set_training: more than %d modules stand inside each other",
                           ND__MODULE_DEPTH_MAX);
    for (size_t i = 0; status == ND_OK && i < module->count; i++) {
        const nd_member *member = &module->members[i];
        if (member->kind == ND__MEMBER_CHILD)
            status = set_training((const nd_module *)member->object, training, write, depth + 1);
    }
    if (status == ND_OK && write)
        atomic_store_explicit(&((nd_module *)(uintptr_t)module)->training, training,
                              memory_order_relaxed);
    return status;
}

static nd_status grow(const char *operation, nd_module *module) {
    size_t capacity = module->capacity ? 2 * module->capacity : 4;
    nd_member *members = nd__pressure_alloc_zeroed(capacity * sizeof(*members));
    if (!members)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu members", operation,
                         capacity);
    // A callback for memory may have used the module meanwhile, or closed it.
    nd_status status = nd__module_check(operation, module);
    if (status != ND_OK || capacity <= module->capacity) {
        nd__alloc_free(members);
        return status;
    }
    nd_member *before = module->members;
    if (module->count > 0)
        memcpy(members, before, module->count * sizeof(*members));
    nd__gate_enter();
    module->members = members;
    module->capacity = capacity;
    nd__gate_leave();
    nd__alloc_free(before);
    return ND_OK;
}

/// Member by the first `length` bytes of `name`, or NULL.
static const nd_member *find(const nd_module *module, const char *name, size_t length) {
    for (size_t i = 0; i < module->count; i++) {
        const nd_member *member = &module->members[i];
        if (strlen(member->name) == length && memcmp(member->name, name, length) == 0)
            return member;
    }
    return NULL;
}

/// Whether `target` is `from` or below it; also true below the deepest level that is allowed.
static bool reaches(const nd_module *from, const nd_module *target, int depth) {
    if (from == target || depth >= ND__MODULE_DEPTH_MAX)
        return true;
    for (size_t i = 0; i < from->count; i++) {
        const nd_member *member = &from->members[i];
        if (!nd__module_is_tensor(member) && member->object &&
            reaches((const nd_module *)member->object, target, depth + 1))
            return true;
    }
    return false;
}
