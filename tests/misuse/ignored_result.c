// The result is not even looked at.
#include <nd/nd.h>

void forget(const nd_tensor *a, const nd_tensor *b);

void forget(const nd_tensor *a, const nd_tensor *b) {
    nd_add(a, b);
}
