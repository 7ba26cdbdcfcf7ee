// What gdb_test.sh stops and looks at. Compiled with debug information and with the structs that
// the library is made of, so that gdb knows their fields; the library itself has none.
#define ND_TRACK_SITES
#include "lib/manager/manager.h"
#include "lib/tensor/tensor.h"
#include <nd/nd.h>

// So that the debug information has them.
extern nd_manager nd__manager_root;
nd_storage *nd_gdb_storage;

__attribute__((noinline)) static int stop_here(const nd_tensor *w, const nd_list *list,
                                               const nd_object *closed, const nd_manager *epoch,
                                               const nd_tensor *nothing) {
    __asm__ volatile("" ::"r"(w), "r"(list), "r"(closed), "r"(epoch), "r"(nothing) : "memory");
    return 0;
}

int main(void) {
    nd_manager *epoch = nd_manager_new(NULL, "epoch");
    nd_tensor *w;
    nd_list *list = nd_list_new(), *closed = nd_list_new();
    int64_t shape[] = {128, 64};
    nd_with_manager(epoch) {
        w = nd_zeros(2, shape, ND_F32);
        nd_set_name(w, "w1");
        nd_list_append(list, w);
        nd_close(closed);
        nd_gdb_storage = nd__tensor_storage(w);
        stop_here(w, list, (const nd_object *)closed, epoch, NULL);
        nd_release(w);
    }
    nd_release(closed);
    nd_release(list);
    nd_release(epoch);
    return 0;
}
