// Random keys from rank 0: one message for all modules that draw some.
#include "lib/distributed/keys.h"
#include "lib/distributed/collectives.h"
#include "lib/nn/module.h"
#include "lib/tensor/tensor.h"
#include <nd/tensor.h>

enum { NUMBERS = 3 }; ///< seed, stream, how many were drawn

typedef void (*visitor)(nd_module *module, int64_t *numbers, int rank);

static void tell(nd_module *module, int64_t *numbers, int rank) {
    (void)rank;
    numbers[0] = (int64_t)module->key.seed;
    numbers[1] = (int64_t)module->key.stream;
    numbers[2] = (int64_t)atomic_load_explicit(&module->drawn, memory_order_relaxed);
}

static void take(nd_module *module, int64_t *numbers, int rank) {
    nd_key key = {(uint64_t)numbers[0], (uint64_t)numbers[1]};
    module->key = rank == 0 ? key : nd_key_fold(key, (uint64_t)rank);
    atomic_store_explicit(&module->drawn, (uint64_t)numbers[2], memory_order_relaxed);
}

/// How many modules draw keys, in the order of the tree; with `visit` each is visited with its
/// numbers.
static int64_t walk(nd_module *module, int depth, int64_t *numbers, int rank, visitor visit) {
    int64_t count = module->draws;
    if (module->draws && visit)
        visit(module, numbers, rank);
    for (size_t i = 0; i < module->count && depth < ND__MODULE_DEPTH_MAX; i++) {
        const nd_member *member = &module->members[i];
        if (!nd__module_is_tensor(member))
            count += walk((nd_module *)member->object, depth + 1,
                          numbers ? numbers + count * NUMBERS : NULL, rank, visit);
    }
    return count;
}

nd_tensor *nd__keys_ask(const char *operation, const nd_module *module,
                        const nd_communicator *comm) {
    nd_module *root = (nd_module *)(uintptr_t)module;
    nd_tensor *numbers = nd_zeros(ND_SHAPE(walk(root, 0, NULL, 0, NULL), NUMBERS), ND_I64);
    if (numbers)
        walk(root, 0, numbers->data, comm->rank, tell);
    nd_status status = numbers ? ND_OK : nd_error_get_status();
    if (nd__collectives_broadcast(operation, numbers, comm, 0, status) == ND_OK)
        return numbers;
    nd_release(numbers);
    return NULL;
}

void nd__keys_take(const nd_module *module, const nd_communicator *comm, const nd_tensor *numbers) {
    walk((nd_module *)(uintptr_t)module, 0, numbers->data, comm->rank, take);
}
