// Correct use of <nd/scoped.h>: results are borrowed, what shall live on is retained.
#include <nd/scoped.h>

double length(const nd_tensor *x);
nd_tensor *scaled(const nd_tensor *x, const nd_tensor *factor);
nd_tensor *last_of(const nd_tensor *x);

double length(const nd_tensor *x) {
    double value = 0;
    ND_SCOPE {
        const nd_tensor *squared = nd_sum(nd_mul(x, x), 0, NULL, false);
        value = nd_get_item(nd_sqrt(squared));
    }
    return value;
}

nd_tensor *scaled(const nd_tensor *x, const nd_tensor *factor) {
    nd_tensor *result = NULL;
    ND_SCOPE {
        const nd_tensor *product = nd_mul(x, factor);
        result = nd_retain(nd_add(product, nd_ones(ND_SHAPE(1), ND_F32)));
    }
    return result;
}

nd_tensor *last_of(const nd_tensor *x) {
    nd_auto_scope;
    const nd_tensor *row = nd_select(x, -1, 0);
    return nd_retain(row);
}
