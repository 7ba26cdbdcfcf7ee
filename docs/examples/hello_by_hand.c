// hello, with counts by hand: one nd_release() for each handle that a function returned.
//
// Nothing is hidden, and memory goes back at the line that says so. In exchange every way out of a
// function has to pass the releases.
#include <nd/nd.h>
#include <stdio.h>

/// Each row less its mean. The caller owns the result.
static nd_tensor *centre(const nd_tensor *x) {
    nd_tensor *means = nd_mean(x, 1, (int[]){1}, true);
    nd_tensor *result = nd_sub(x, means);
    nd_release(means); // NULL is fine, so nothing has to be asked before
    return result;
}

static void show(void) {
    nd_tensor *x = nd_from_data((float[]){1, 2, 6, 4, 4, 1}, ND_SHAPE(2, 3), ND_F32);
    nd_tensor *centred = centre(x);
    nd_print(centred, stdout);
    nd_tensor *squares = nd_square(centred);
    nd_release(centred); // not needed any more: its memory is free from here on
    nd_tensor *sum = nd_sum(squares, 0, NULL, false);
    nd_release(squares);
    printf("sum of squares: %g\n", nd_get_item(sum));
    nd_release(sum);

    nd_tensor *product = nd_matmul(x, x);
    nd_tensor *root = nd_sqrt(product);
    if (!root)
        printf("%s: %s\n", nd_status_get_name(nd_error_get_status()), nd_error_get_message());
    nd_error_clear();
    nd_release(root);
    nd_release(product);
    nd_release(x);
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
