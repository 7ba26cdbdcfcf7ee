// Released at the end, but not on the way out in the middle.
#include <nd/nd.h>

nd_tensor *normalised(const nd_tensor *x);

nd_tensor *normalised(const nd_tensor *x) {
    nd_tensor *total = nd_sum(x, 0, NULL, true);
    if (nd_get_item(total) <= 0)
        return NULL;
    nd_tensor *result = nd_div(x, total);
    nd_release(total);
    return result;
}
