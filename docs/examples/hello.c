// hello: tensors, operations on them, and what becomes of a mistake.
//
// nd_auto releases what a variable owns when its block ends, on every way out of it. This is the
// form to begin with.
#include <nd/nd.h>
#include <stdio.h>

/// Each row less its mean. The caller owns the result.
static nd_tensor *centre(const nd_tensor *x) {
    nd_auto nd_tensor *means = nd_mean(x, 1, (int[]){1}, true); // along axis 1, which stays: [2, 1]
    return nd_sub(x, means);                                    // [2, 3] - [2, 1] broadcasts
}

static void show(void) {
    nd_auto nd_tensor *x = nd_from_data((float[]){1, 2, 6, 4, 4, 1}, ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *centred = centre(x);
    nd_print(centred, stdout);
    nd_auto nd_tensor *squares = nd_square(centred);
    nd_auto nd_tensor *sum = nd_sum(squares, 0, NULL, false); // over all axes
    printf("sum of squares: %g\n", nd_get_item(sum));

    // An operation that fails returns NULL, NULL goes through those behind it, and the first error
    // stays: one check at the end of a chain finds whatever went wrong in it.
    nd_auto nd_tensor *product = nd_matmul(x, x);
    nd_auto nd_tensor *root = nd_sqrt(product);
    if (!root)
        printf("%s: %s\n", nd_status_get_name(nd_error_get_status()), nd_error_get_message());
    nd_error_clear(); // this one is dealt with
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
