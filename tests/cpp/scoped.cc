// <nd/scoped.h> in C++: operations return borrowed handles. cpp_test.sh compiles this with warnings
// as errors and runs it.
#include <nd/scoped.h>

int main() {
    nd_tensor *kept = nullptr;
    ND_SCOPE {
        const nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
        ND_SCOPE {
            const nd_tensor *y = nd_sum(nd_square(nd_add(x, x)), 0, NULL, false);
            kept = nd_retain(y);
        }
    }
    bool right = nd_get_item(kept) == 24 && nd_get_count(kept) == 1;
    nd_release(kept);
    return !right || nd_error_get_status() != ND_OK || nd_manager_get_total_objects(NULL) != 0;
}
