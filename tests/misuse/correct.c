// The ordinary ways to own and to borrow, all correct: no compiler may complain.
#include <nd/nd.h>

typedef struct holder {
    nd_tensor *kept;
} holder;

nd_tensor *by_hand(const nd_tensor *a, const nd_tensor *b);
double by_cleanup(const nd_tensor *a, const nd_tensor *b);
nd_tensor *by_stealing(const nd_tensor *a, const nd_tensor *b);
double by_scope(const nd_tensor *a, const nd_tensor *b);
double by_nested_blocks(const nd_tensor *a, nd_manager *manager);
nd_tensor *in_a_loop(const nd_tensor *x, int count);
nd_list *in_a_list(const nd_tensor *x, int count);
nd_status in_a_struct(holder *h, const nd_tensor *x);
nd_status with_a_manager(const nd_tensor *x);
nd_status with_goto(const nd_tensor *x);
double through_a_weak_reference(const nd_tensor *x);

nd_tensor *by_hand(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *sum = nd_add(a, b);
    nd_tensor *product = nd_mul(sum, b);
    nd_release(sum);
    return product;
}

double by_cleanup(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *sum = nd_add(a, b);
    nd_auto nd_tensor *product = nd_mul(sum, b);
    return nd_get_item(product);
}

nd_tensor *by_stealing(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *sum = nd_add(a, b);
    if (nd_get_item(sum) > 0)
        return nd_steal(&sum);
    return nd_retain(b);
}

double by_scope(const nd_tensor *a, const nd_tensor *b) {
    double value = 0;
    ND_SCOPE {
        const nd_tensor *sum = nd_tmp(nd_add(a, b));
        value = nd_get_item(nd_tmp(nd_mul(sum, b)));
    }
    return value;
}

double by_nested_blocks(const nd_tensor *a, nd_manager *manager) {
    double value = 0;
    nd_auto_scope;
    ND_SCOPE {
        const nd_tensor *outer = nd_tmp(nd_neg(a));
        nd_with_manager(manager) {
            nd_auto_scope;
            ND_SCOPE {
                nd_no_grad {
                    nd_enable_grad {
                        nd_with_manager(NULL) {
                            value = nd_get_item(nd_tmp(nd_square(nd_tmp(nd_neg(outer)))));
                        }
                    }
                }
            }
        }
    }
    return value;
}

nd_tensor *in_a_loop(const nd_tensor *x, int count) {
    nd_tensor *total = nd_zeros_like(x);
    for (int i = 0; i < count; i++) {
        nd_tensor *next = nd_add(total, x);
        nd_release(total);
        total = next;
    }
    return total;
}

nd_list *in_a_list(const nd_tensor *x, int count) {
    nd_list *list = nd_list_new();
    for (int i = 0; i < count; i++) {
        nd_auto nd_tensor *doubled = nd_add(x, x);
        if (nd_list_append(list, doubled) != ND_OK) {
            nd_release(list);
            return NULL;
        }
    }
    return list;
}

nd_status in_a_struct(holder *h, const nd_tensor *x) {
    nd_tensor *kept = nd_exp(x);
    if (!kept)
        return nd_error_get_status();
    nd_release(h->kept);
    h->kept = kept;
    return ND_OK;
}

nd_status with_a_manager(const nd_tensor *x) {
    nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
    if (!manager)
        return nd_error_get_status();
    nd_with_manager(manager) {
        nd_auto nd_tensor *noise = nd_zeros_like(x);
        nd_auto nd_tensor *noisy = nd_add(x, noise);
        if (!noisy)
            return nd_error_get_status();
    }
    return nd_manager_close(manager, NULL);
}

nd_status with_goto(const nd_tensor *x) {
    nd_status status = ND_OK;
    nd_tensor *root = NULL;
    nd_tensor *logarithm = nd_log(x);
    if (!logarithm) {
        status = nd_error_get_status();
        goto done;
    }
    root = nd_sqrt(logarithm);
    if (!root)
        status = nd_error_get_status();
done:
    nd_release(root);
    nd_release(logarithm);
    return status;
}

double through_a_weak_reference(const nd_tensor *x) {
    nd_auto nd_weak *weak = nd_weak_new(x);
    nd_auto nd_tensor *seen = nd_weak_get_tensor(weak);
    return seen ? nd_get_item(seen) : 0;
}
