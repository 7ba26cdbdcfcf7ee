// The sum is never released.
#include <nd/nd.h>

double sum_of_first(const nd_tensor *a, const nd_tensor *b);

double sum_of_first(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *sum = nd_add(a, b);
    return nd_get_item(sum);
}
