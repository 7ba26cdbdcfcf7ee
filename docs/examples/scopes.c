// Temporaries in scopes, with <nd/scoped.h>: every operation of this file hands its result to the
// current scope and returns it borrowed.
#include <nd/scoped.h>
#include <stdio.h>

/// Distance between two points; the caller owns the result.
static nd_tensor *distance(const nd_tensor *a, const nd_tensor *b) {
    nd_tensor *result = NULL;
    ND_SCOPE {
        const nd_tensor *difference = nd_sub(a, b);
        const nd_tensor *sum = nd_sum(nd_square(difference), 0, NULL, false);
        result = nd_retain(nd_sqrt(sum)); // outlives the scope
    }
    return result;
}

int main(void) {
    ND_SCOPE {
        const nd_tensor *a = nd_from_data((float[]){1, 2, 3}, ND_SHAPE(3), ND_F32);
        const nd_tensor *b = nd_from_data((float[]){1, 5, 7}, ND_SHAPE(3), ND_F32);
        nd_auto nd_tensor *d = distance(a, b);
        printf("distance %.1f\n", nd_get_item(d));
        nd_auto nd_tensor *none = distance(a, NULL);
        if (!none)
            printf("error: %s\n", nd_error_get_message());
    }
    printf("%d objects left\n", (int)nd_manager_get_total_objects(NULL));
    return 0;
}
