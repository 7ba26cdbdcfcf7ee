// With <nd/scoped.h> the scope owns the sum; an owned handle of it would be released twice.
#include <nd/scoped.h>

double sum_of_first(const nd_tensor *a, const nd_tensor *b);

double sum_of_first(const nd_tensor *a, const nd_tensor *b) {
    double value = 0;
    ND_SCOPE {
        nd_tensor *sum = nd_add(a, b);
        value = nd_get_item(sum);
    }
    return value;
}
