// Released twice when the sum is negative.
#include <nd/nd.h>

double positive_part(const nd_tensor *a, const nd_tensor *b);

double positive_part(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *sum = nd_add(a, b);
    double value = nd_get_item(sum);
    if (value < 0) {
        nd_release(sum);
        value = 0;
    }
    nd_release(sum);
    return value;
}
