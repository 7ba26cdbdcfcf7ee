// Inside of modules, and the walk over a tree of them.
//
// Invariant: the members of a module (parameters, buffers, child modules) stand in the order in
// which they were added; each is an edge, traversed under its name. Names are unique among the
// members and have no dots, so that a full name ("0.weight") has one meaning.
#ifndef ND_LIB_NN_MODULE_H
#define ND_LIB_NN_MODULE_H
#include "lib/tensor/tensor.h"
#include <nd/nn.h>

/// Longest name of a member, and most modules inside each other: together they bound a full name.
#define ND__MODULE_NAME_MAX 63
#define ND__MODULE_DEPTH_MAX 32
#define ND__FULL_NAME_BYTES (ND__MODULE_DEPTH_MAX * (ND__MODULE_NAME_MAX + 1))

/// What a member is: one bit each, so that a walk can ask for several.
typedef enum nd_member_kind {
    ND__MEMBER_CHILD = 1,
    ND__MEMBER_PARAMETER = 2,
    ND__MEMBER_BUFFER = 4,
    ND__MEMBER_TENSOR = ND__MEMBER_PARAMETER | ND__MEMBER_BUFFER
} nd_member_kind;

typedef struct nd_member {
    nd_object *object; ///< edge: a tensor, or a child module; NULL once the module is closed
    nd_member_kind kind;
    char name[ND__MODULE_NAME_MAX + 1];
} nd_member;

struct nd_module {
    nd_object header;
    const nd_module_type *type;
    nd_member *members; ///< exchanged inside the gate
    size_t count;
    size_t capacity;
    _Atomic bool training;  ///< set by nd_module_set_training, read by forward functions
    bool draws;             ///< the module draws random keys (nd_module_set_key)
    nd_key key;             ///< from which they are folded
    _Atomic uint64_t drawn; ///< how many were
    void *data; ///< of the type, behind the struct in the same block; NULL when it has none
};

/// Owned module in the current manager. As nd_module_new, for types known to be right.
nd_module *nd__module_new(const nd_module_type *type, const void *data, size_t data_size);
/// Operation "NAME: the module is NULL / was closed"; ND_OK when usable.
nd_status nd__module_check(const char *operation, const nd_module *module);
/// Refuses a part of a name that no file takes: it is to be known when the name is given, and not
/// when a training is over.
nd_status nd__module_check_in_file(const char *operation, const char *name);

// A walk over all tensors of some kinds of a module and everything below, depth first in order of
// addition:
//
//   nd_module_walk walk;
//   nd_tensor *parameter;
//   nd__parameters_walk_begin(&walk, "save_parameters", module, ND__MEMBER_PARAMETER);
//   while ((parameter = nd__parameters_walk_next(&walk)))
//       ... walk.name ...
//   if (walk.status != ND_OK) ...
typedef struct nd_module_walk {
    const char *operation;
    nd_status status; ///< not ND_OK: the walk ended early (closed module, nested too deep)
    unsigned kinds;   ///< which members it stops at: bits of nd_member_kind
    int depth;        ///< modules entered; 0: at the end
    struct {
        const nd_module *module;
        size_t next;   ///< member
        size_t prefix; ///< bytes of `name` that lead to the module
    } level[ND__MODULE_DEPTH_MAX];
    char name[ND__FULL_NAME_BYTES]; ///< full name of the tensor returned last
} nd_module_walk;

/// Whether a member is a tensor, not a child.
static inline bool nd__module_is_tensor(const nd_member *member) {
    return member->kind != ND__MEMBER_CHILD;
}

static inline bool nd__module_same_device(nd_device a, nd_device b) {
    return a.kind == b.kind && a.index == b.index;
}
#endif
