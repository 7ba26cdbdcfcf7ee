#include "lib/base/kind.h"

const char *nd__kind_extra;

static const char *const public_names[] = {
    [ND_CPU] = "cpu",
    [ND_CUDA] = "cuda",
};
_Static_assert(sizeof public_names / sizeof *public_names == ND_DEVICE_KIND_COUNT,
               "a name for each kind");

const char *nd__kind_name(nd_device_kind kind) {
    if (!nd__kind_exists(kind))
        return NULL;
    return kind == ND_DEVICE_KIND_COUNT ? nd__kind_extra : public_names[kind];
}
