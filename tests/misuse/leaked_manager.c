// The manager is never closed, nor released.
#include <nd/nd.h>

double loss_of_step(const nd_tensor *x);

double loss_of_step(const nd_tensor *x) {
    nd_manager *step = nd_manager_new(NULL, "step");
    double loss = 0;
    nd_with_manager(step) {
        nd_auto nd_tensor *squared = nd_mul(x, x);
        loss = nd_get_item(squared);
    }
    return loss;
}
