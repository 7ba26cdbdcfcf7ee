// hello, with scopes: <nd/scoped.h> in place of <nd/nd.h> has every operation of this file hand its
// result to the innermost ND_SCOPE, which releases it at its end. So calls can be nested.
//
// What an operation returns is borrowed here, and its type says so: const nd_tensor *.
#include <nd/scoped.h>
#include <stdio.h>

/// Each row less its mean. The caller owns the result.
static nd_tensor *centre(const nd_tensor *x) {
    nd_tensor *result = NULL;
    ND_SCOPE {
        result = nd_retain(nd_sub(x, nd_mean(x, 1, (int[]){1}, true))); // outlives the scope
    }
    return result;
}

static void show(void) {
    ND_SCOPE {
        const nd_tensor *x = nd_from_data((float[]){1, 2, 6, 4, 4, 1}, ND_SHAPE(2, 3), ND_F32);
        const nd_tensor *centred = nd_tmp(centre(x)); // a function of one's own hands out owned
        nd_print(centred, stdout);
        printf("sum of squares: %g\n", nd_get_item(nd_sum(nd_square(centred), 0, NULL, false)));

        if (!nd_sqrt(nd_matmul(x, x)))
            printf("%s: %s\n", nd_status_get_name(nd_error_get_status()), nd_error_get_message());
        nd_error_clear();
    } // all that the block made is released here, the last first
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
