// Everything that concerns all parameters and buffers of a module: walking, gradients, devices,
// files.
//
// Invariant: functions that change several parameters check and prepare everything first; what
// follows cannot fail for lack of memory.
#include "lib/nn/parameters.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/io/safetensors_read.h"
#include "lib/io/safetensors_write.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/place.h"
#include "lib/nn/module.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/io.h>
#include <nd/ops.h>

#include <string.h>

// A tensor on its way to another device or dtype.
typedef struct nd_move {
    nd_tensor *parameter;
    nd_tensor *copy; ///< owned
    nd_tensor *grad; ///< owned, or NULL
} nd_move;

static nd_status count_tensors(const char *operation, const nd_module *module, unsigned kinds,
                               size_t *ret_count);
static const nd_tensor *get_at(const char *operation, const nd_module *module, unsigned kind,
                               size_t index, const char **ret_name);
static nd_status replace_tensors(const char *operation, const nd_module *module,
                                 const nd_device *device, const nd_dtype *dtype);
static nd_status prepare_move(const char *operation, nd_move *move, nd_tensor *x,
                              const nd_device *device, const nd_dtype *dtype);
static void commit_move(const nd_move *move);
static nd_status check_file(const nd_safetensors *table, const nd_module *module);
static nd_status check_entry(const nd_safetensors *table, const nd_safetensors_entry *entry,
                             const nd_tensor *parameter, const char *name);
static nd_list *read_parameters(nd_safetensors *table, const nd_module *module);
static nd_status assign_parameters(const nd_list *list, const nd_module *module);

void nd__parameters_walk_begin(nd_module_walk *walk, const char *operation, const nd_module *module,
                               unsigned kinds) {
    walk->operation = operation;
    walk->kinds = kinds;
    walk->status = nd__module_check(operation, module);
    walk->depth = walk->status == ND_OK ? 1 : 0;
    walk->level[0].module = module;
    walk->level[0].next = 0;
    walk->level[0].prefix = 0;
    walk->name[0] = 0;
}

nd_tensor *nd__parameters_walk_next(nd_module_walk *walk) {
    while (walk->depth > 0) {
        const nd_module *module = walk->level[walk->depth - 1].module;
        size_t prefix = walk->level[walk->depth - 1].prefix;
        if (walk->level[walk->depth - 1].next == module->count) {
            walk->depth--;
            continue;
        }
        const nd_member *member = &module->members[walk->level[walk->depth - 1].next++];
        size_t length = strlen(member->name);
        memcpy(walk->name + prefix, member->name, length + 1);
        if (nd__module_is_tensor(member)) {
            if (walk->kinds & member->kind)
                return (nd_tensor *)member->object;
            continue;
        }
        const nd_module *child = (const nd_module *)member->object;
        walk->status = nd__module_check(walk->operation, child);
        if (walk->status == ND_OK && walk->depth == ND__MODULE_DEPTH_MAX)
            walk->status =
                nd__error(ND_ERROR_UNSUPPORTED, "%s: more than %d modules stand inside each other",
                          walk->operation, ND__MODULE_DEPTH_MAX);
        if (walk->status != ND_OK) {
            walk->depth = 0;
            break;
        }
        walk->name[prefix + length] = '.';
        walk->level[walk->depth].module = child;
        walk->level[walk->depth].next = 0;
        walk->level[walk->depth].prefix = prefix + length + 1;
        walk->depth++;
    }
    return NULL;
}

nd_tensor **nd__parameters_collect(const char *operation, const nd_module *module, unsigned kinds,
                                   size_t *ret_count) {
    size_t names = 0;
    nd_status status = count_tensors(operation, module, kinds, &names);
    nd_tensor **parameters =
        status == ND_OK ? nd__pressure_alloc((names + 1) * sizeof(*parameters)) : NULL;
    if (!parameters) {
        if (status == ND_OK)
            nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors", operation,
                      names);
        return NULL;
    }
    nd_module_walk walk;
    nd__parameters_walk_begin(&walk, operation, module, kinds);
    size_t count = 0;
    nd_tensor *parameter;
    while ((parameter = nd__parameters_walk_next(&walk))) {
        size_t i = 0;
        while (i < count && parameters[i] != parameter)
            i++;
        parameters[i] = parameter;
        count += i == count;
    }
    if (walk.status != ND_OK) {
        nd__alloc_free(parameters);
        return NULL;
    }
    *ret_count = count;
    return parameters;
}

/// Walks once to measure (block NULL), and once to write. Returns the bytes of all names.
static size_t place_names(nd_module_walk *walk, nd_tensor *const *tensors, size_t count, bool *seen,
                          char **names, char *text) {
    const nd_tensor *tensor;
    size_t bytes = 0;
    memset(seen, 0, count * sizeof *seen);
    while ((tensor = nd__parameters_walk_next(walk))) {
        size_t i = 0;
        while (i < count && tensors[i] != tensor)
            i++;
        if (i == count || seen[i])
            continue;
        seen[i] = true;
        if (names)
            names[i] = strcpy(text + bytes, walk->name);
        bytes += strlen(walk->name) + 1;
    }
    return bytes;
}

char **nd__parameters_names(const char *operation, const nd_module *module, unsigned kinds,
                            nd_tensor *const *tensors, size_t count) {
    bool *seen = nd__pressure_alloc(count + 1);
    nd_module_walk walk;
    nd__parameters_walk_begin(&walk, operation, module, kinds);
    const size_t bytes = seen ? place_names(&walk, tensors, count, seen, NULL, NULL) : 0;
    char **names = seen ? nd__pressure_alloc_zeroed(count * sizeof *names + bytes + 1) : NULL;
    if (names && walk.status == ND_OK) {
        nd__parameters_walk_begin(&walk, operation, module, kinds);
        place_names(&walk, tensors, count, seen, names, (char *)(names + count));
    } else if (walk.status == ND_OK) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the names of %zu tensors", operation,
                  count);
    }
    nd__alloc_free(seen);
    if (walk.status == ND_OK)
        return names;
    nd__alloc_free(names);
    return NULL;
}

size_t nd_module_get_parameter_count(const nd_module *module) {
    size_t count = 0;
    if (module)
        count_tensors("module_get_parameter_count", module, ND__MEMBER_PARAMETER, &count);
    return count;
}

size_t nd_module_get_buffer_count(const nd_module *module) {
    size_t count = 0;
    if (module)
        count_tensors("module_get_buffer_count", module, ND__MEMBER_BUFFER, &count);
    return count;
}

const nd_tensor *nd_module_get_parameter_at(const nd_module *module, size_t index,
                                            const char **ret_name) {
    return get_at("module_get_parameter_at", module, ND__MEMBER_PARAMETER, index, ret_name);
}

const nd_tensor *nd_module_get_buffer_at(const nd_module *module, size_t index,
                                         const char **ret_name) {
    return get_at("module_get_buffer_at", module, ND__MEMBER_BUFFER, index, ret_name);
}

nd_status nd_module_zero_grad(const nd_module *module) {
    static const char operation[] = "module_zero_grad";
    nd_status status = ND_OK;
    for (int zeroes = 0; status == ND_OK && zeroes < 2; zeroes++) { // the first walk checks
        nd_module_walk walk;
        nd_tensor *parameter;
        nd__parameters_walk_begin(&walk, operation, module, ND__MEMBER_PARAMETER);
        while (status == ND_OK && (parameter = nd__parameters_walk_next(&walk)))
            status = zeroes ? nd_zero_grad(parameter)
                            : nd__tensor_check_operand(operation, "a parameter", parameter);
        status = status == ND_OK ? walk.status : status;
    }
    return status;
}

nd_status nd_module_to(const nd_module *module, nd_device device) {
    static const char operation[] = "module_to";
    nd_status status = nd__registry_device_check(operation, device);
    return status == ND_OK ? replace_tensors(operation, module, &device, NULL) : status;
}

nd_status nd_module_cast(const nd_module *module, nd_dtype dtype) {
    static const char operation[] = "module_cast";
    if ((unsigned)dtype >= ND_DTYPE_COUNT || !nd__dtype_is_float(dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: the dtype is %s; parameters are floats", operation,
                         nd_dtype_get_name(dtype));
    return replace_tensors(operation, module, NULL, &dtype);
}

nd_tensor *nd__parameters_copy_to(const char *operation, const nd_tensor *x, const nd_tensor *owner,
                                  nd_device device, nd_dtype dtype) {
    if (nd__tensor_check_operand(operation, "a tensor", x) != ND_OK)
        return NULL;
    nd_place place = nd__place_of(&owner->header);
    nd_tensor *copy = nd__tensor_new(operation, place.manager, device, dtype, x->ndim, x->shape);
    nd__place_end(place);
    if (copy && nd__copy_into(operation, copy, x) != ND_OK) {
        nd_release(copy);
        return NULL;
    }
    return copy;
}

nd_status nd_save_parameters(const nd_module *module, const char *path) {
    ND__UNCANCELLED;
    static const char operation[] = "save_parameters";
    size_t count = 0;
    nd_status status = count_tensors(operation, module, ND__MEMBER_TENSOR, &count);
    if (status != ND_OK)
        return status;
    char *names = nd__pressure_alloc(count * ND__FULL_NAME_BYTES + 1);
    const char **name_list = nd__pressure_alloc((count + 1) * sizeof(*name_list));
    const nd_tensor **tensors = nd__pressure_alloc((count + 1) * sizeof(*tensors));
    if (!names || !name_list || !tensors)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the names of %zu tensors",
                           operation, count);
    nd_module_walk walk;
    nd__parameters_walk_begin(&walk, operation, module, ND__MEMBER_TENSOR);
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        tensors[i] = nd__parameters_walk_next(&walk);
        name_list[i] = strcpy(names + i * ND__FULL_NAME_BYTES, walk.name);
        status = walk.status;
    }
    if (status == ND_OK)
        status = nd__safetensors_write(operation, path, count, name_list, tensors);
    nd__alloc_free(names);
    nd__alloc_free(name_list);
    nd__alloc_free(tensors);
    return status;
}

nd_status nd_load_parameters(const nd_module *module, const char *path) {
    ND__UNCANCELLED;
    nd_status status = nd__module_check("load_parameters", module);
    nd_safetensors table;
    if (status == ND_OK)
        status = nd__safetensors_open(&table, "load_parameters", path);
    if (status != ND_OK)
        return status;
    status = check_file(&table, module);
    nd_auto nd_list *list = status == ND_OK ? read_parameters(&table, module) : NULL;
    nd__safetensors_close(&table);
    if (!list)
        return nd_error_get_status();
    return assign_parameters(list, module);
}

/// Names of tensors; one under two names counts twice. On error *ret_count stays.
static nd_status count_tensors(const char *operation, const nd_module *module, unsigned kinds,
                               size_t *ret_count) {
    nd_module_walk walk;
    size_t count = 0;
    nd__parameters_walk_begin(&walk, operation, module, kinds);
    while (nd__parameters_walk_next(&walk))
        count++;
    if (walk.status == ND_OK)
        *ret_count = count;
    return walk.status;
}

static const nd_tensor *get_at(const char *operation, const nd_module *module, unsigned kind,
                               size_t index, const char **ret_name) {
    char *name = ret_name ? nd__thread_name(ND__FULL_NAME_BYTES) : NULL;
    if (ret_name && !name) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a name", operation);
        return NULL;
    }
    nd_module_walk walk;
    size_t count = 0;
    nd_tensor *tensor;
    nd__parameters_walk_begin(&walk, operation, module, kind);
    while ((tensor = nd__parameters_walk_next(&walk)))
        if (count++ == index) {
            if (ret_name)
                *ret_name = strcpy(name, walk.name);
            return tensor;
        }
    if (walk.status == ND_OK)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s %zu of a module that has %zu", operation,
                  kind == ND__MEMBER_PARAMETER ? "parameter" : "buffer", index, count);
    return NULL;
}

/// Gives every tensor of the module, and its gradient, another device or (the floats among them)
/// another dtype; NULL: that stays.
static nd_status replace_tensors(const char *operation, const nd_module *module,
                                 const nd_device *device, const nd_dtype *dtype) {
    size_t count = 0;
    nd_tensor **tensors = nd__parameters_collect(operation, module, ND__MEMBER_TENSOR, &count);
    nd_move *moves = tensors ? nd__pressure_alloc_zeroed((count + 1) * sizeof(*moves)) : NULL;
    if (tensors && !moves)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors", operation,
                  count);
    if (!moves) {
        nd__alloc_free(tensors);
        return nd_error_get_status();
    }
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = prepare_move(operation, &moves[i], tensors[i], device, dtype);
    for (size_t i = 0; i < count; i++) {
        if (status == ND_OK && moves[i].parameter)
            commit_move(&moves[i]);
        nd_release(moves[i].copy);
        nd_release(moves[i].grad);
    }
    nd__alloc_free(moves);
    nd__alloc_free(tensors);
    return status;
}

/// Makes the copies of one tensor and its gradient; none when it is there already.
static nd_status prepare_move(const char *operation, nd_move *move, nd_tensor *x,
                              const nd_device *device, const nd_dtype *dtype) {
    nd_status status = nd__tensor_check_operand(operation, "a tensor of the module", x);
    if (status != ND_OK)
        return status;
    const nd_device there = device ? *device : x->device;
    const nd_dtype then = dtype && nd__dtype_is_float(x->dtype) ? *dtype : x->dtype;
    if (nd__module_same_device(x->device, there) && x->dtype == then)
        return ND_OK;
    move->parameter = x;
    move->copy = nd__parameters_copy_to(operation, x, x, there, then);
    if (x->grad)
        move->grad = nd__parameters_copy_to(operation, x->grad, x, there, then);
    if (!move->copy || !nd__tensor_storage(move->copy) || (x->grad && !move->grad))
        return nd_error_get_status();
    return ND_OK;
}

/// Puts the copy's storage under the parameter, which stays the same object to all who hold it.
static void commit_move(const nd_move *move) {
    nd_tensor *parameter = move->parameter;
    const nd_tensor *copy = move->copy;
    if (nd__object_is_closing(parameter)) // by a callback for memory
        return;
    // What a graph saved of the parameter must not pass for its value on the new device.
    uint64_t version = nd__tensor_version(parameter);
    atomic_store_explicit(nd__tensor_version_word(copy), version + 1, memory_order_relaxed);
    nd__member_close_account(&parameter->header); // data in its own block, which it leaves
    nd__tensor_replace_storage(parameter, copy);
    parameter->data = copy->data;
    parameter->device = copy->device;
    parameter->dtype = copy->dtype;
    nd__tensor_set_own(parameter, ND__CONTIGUOUS, nd__tensor_is_contiguous(copy));
    nd__tensor_set_own(parameter, ND__GRAD_CUT, false);
    if (parameter->base) { // a buffer that was a view, and is no longer one
        nd__record_replace_node(parameter, NULL);
        nd_edge_clear(&parameter->base);
    }
    size_t sizes = (size_t)copy->ndim * sizeof *copy->shape;
    memcpy(parameter->shape + copy->ndim, nd__tensor_strides(copy), sizes);
    nd_edge_set(&parameter->grad, move->grad);
}

/// The file must have exactly the module's names, with the same shapes and dtypes.
static nd_status check_file(const nd_safetensors *table, const nd_module *module) {
    nd_module_walk walk;
    nd_tensor *parameter;
    size_t count = 0;
    nd__parameters_walk_begin(&walk, table->file.operation, module, ND__MEMBER_TENSOR);
    while ((parameter = nd__parameters_walk_next(&walk))) {
        const nd_safetensors_entry *entry = nd__safetensors_find(table, walk.name);
        if (!entry)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: '%s' has no tensor for the %s '%.200s'", table->file.operation,
                             table->file.path, nd_requires_grad(parameter) ? "parameter" : "buffer",
                             walk.name);
        nd_status status = check_entry(table, entry, parameter, walk.name);
        if (status != ND_OK)
            return status;
        count++;
    }
    if (walk.status == ND_OK && count != table->count)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%s' has %zu tensors, the module has %zu",
                         table->file.operation, table->file.path, table->count, count);
    return walk.status;
}

static nd_status check_entry(const nd_safetensors *table, const nd_safetensors_entry *entry,
                             const nd_tensor *parameter, const char *name) {
    nd_status status = nd__tensor_check_operand(table->file.operation, "a parameter", parameter);
    if (status == ND_OK)
        status = nd__tensor_check_writable(table->file.operation, "a parameter", parameter);
    if (status != ND_OK)
        return status;
    bool same_shape = entry->ndim == parameter->ndim;
    for (int axis = 0; same_shape && axis < entry->ndim; axis++)
        same_shape = entry->shape[axis] == parameter->shape[axis];
    char a[ND__SHAPE_TEXT];
    char b[ND__SHAPE_TEXT];
    if (!same_shape)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: '%.200s' has the shape %s in '%s' and %s in the module",
                         table->file.operation, name, nd__shape_text(a, entry->ndim, entry->shape),
                         table->file.path, nd__shape_text(b, parameter->ndim, parameter->shape));
    if (entry->dtype != parameter->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: '%.200s' is %s in '%s' and %s in the module",
                         table->file.operation, name, nd_dtype_get_name(entry->dtype),
                         table->file.path, nd_dtype_get_name(parameter->dtype));
    return ND_OK;
}

/// Owned list of the file's tensors in the module's order. NULL with an error.
static nd_list *read_parameters(nd_safetensors *table, const nd_module *module) {
    nd_list *list = nd_list_new();
    nd_module_walk walk;
    nd__parameters_walk_begin(&walk, table->file.operation, module, ND__MEMBER_TENSOR);
    while (list && nd__parameters_walk_next(&walk)) {
        nd_tensor *tensor = nd__safetensors_read(table, nd__safetensors_find(table, walk.name));
        if (!tensor || nd_list_append(list, tensor) != ND_OK) {
            nd_release(list);
            list = NULL;
        }
        nd_release(tensor);
    }
    return list;
}

static nd_status assign_parameters(const nd_list *list, const nd_module *module) {
    nd_module_walk walk;
    nd_tensor *parameter;
    size_t index = 0;
    nd__parameters_walk_begin(&walk, "load_parameters", module, ND__MEMBER_TENSOR);
    while ((parameter = nd__parameters_walk_next(&walk))) {
        const nd_tensor *source = (const nd_tensor *)nd_list_get(list, index++);
        nd_status status = nd__copy_into("load_parameters", parameter, source);
        if (status != ND_OK)
            return status;
        nd__tensor_bump_version(parameter);
    }
    return walk.status;
}
