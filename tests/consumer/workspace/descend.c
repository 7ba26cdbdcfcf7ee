// Finds the minimum of (w - 3)^2 by gradient descent, as a user of ndarc would write it.
#include <nd/nd.h>
#include <stdio.h>

int main(void) {
    nd_manager *run = nd_manager_new(NULL, "run");
    nd_with_manager(run) {
        nd_auto nd_tensor *w = nd_zeros(ND_SHAPE(1), ND_F32);
        nd_set_requires_grad(w, true);
        for (int step = 0; step < 100; step++) {
            nd_auto nd_tensor *distance = nd_add_scalar(w, -3.0);
            nd_auto nd_tensor *loss = nd_square(distance);
            nd_backward(loss, NULL);
            nd_no_grad {
                nd_add_scaled_(w, nd_get_grad(w), -0.1);
            }
            nd_zero_grad(w);
        }
        printf("w = %.3f, %s\n", nd_get_item(w),
               nd_error_get_status() ? nd_error_get_message() : "no error");
    }
    nd_manager_close(run, NULL);
    nd_release(run);
    printf("left: %d objects\n", (int)nd_manager_get_total_objects(nd_manager_get_root()));
    return 0;
}
