// Released twice.
#include <nd/nd.h>

void forget(const nd_tensor *a, const nd_tensor *b);

void forget(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *sum = nd_add(a, b);
    nd_release(sum);
    nd_release(sum);
}
