// The second sum replaces the only handle of the first.
#include <nd/nd.h>

nd_tensor *last_sum(const nd_tensor *a, const nd_tensor *b);

nd_tensor *last_sum(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *sum = nd_add(a, a);
    sum = nd_add(a, b);
    return sum;
}
