// free() is not what gives up a handle.
#include <nd/nd.h>
#include <stdlib.h>

void forget(const nd_tensor *a, const nd_tensor *b);

void forget(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *sum = nd_add(a, b);
    free(sum);
}
