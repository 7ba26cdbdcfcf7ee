// A retained handle is owned too.
#include <nd/nd.h>

double look_at(const nd_tensor *x);

double look_at(const nd_tensor *x) {
    nd_tensor *kept = nd_retain(x);
    return nd_get_item(kept);
}
