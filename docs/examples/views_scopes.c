// views, with scopes. What an operation returns is borrowed from the scope, so it can be read and not
// written: who writes in place retains the tensor first, and has it as a plain pointer.
#include <nd/scoped.h>
#include <stdio.h>

/// Fills the middle row and doubles every other column.
static nd_status paint(nd_tensor *grid) {
    // A scope for the rest of this block. ND_SCOPE { } would do as well, but is a loop to the
    // compiler, which then wants another return behind it.
    nd_auto_scope;
    nd_auto nd_tensor *row = nd_retain(nd_select(grid, 1, 0));
    nd_auto nd_tensor *even = nd_retain(nd_slice(grid, 0, INT64_MAX, 2, 1));
    nd_status status = nd_fill_(row, 5);
    return status == ND_OK ? nd_mul_scalar_(even, 2) : status;
}

/// The last row of a grid that is gone when this returns. The caller owns the view, and the view
/// keeps the elements.
static nd_tensor *make_row(void) {
    nd_auto_scope;
    nd_auto nd_tensor *grid = nd_retain(nd_ones(ND_SHAPE(3, 4), ND_F32));
    if (paint(grid) != ND_OK)
        return NULL;
    nd_print(grid, stdout);
    const nd_tensor *turned = nd_transpose(grid, 0, 1);
    if (turned)
        printf("transposed: strides %d and %d, a view: %d\n", (int)nd_get_strides(turned)[0],
               (int)nd_get_strides(turned)[1], nd_is_view_of(turned, grid));
    return nd_retain(nd_select(grid, -1, 0));
}

static void show(void) {
    ND_SCOPE {
        const nd_tensor *row = nd_tmp(make_row());
        nd_auto nd_tensor *copy = nd_retain(nd_clone(row));
        printf("the view keeps %d bytes, its copy %d\n", (int)nd_get_storage_bytes(row),
               (int)nd_get_storage_bytes(copy));
        if (nd_fill_(copy, 9) == ND_OK) {
            nd_print(row, stdout);
            nd_print(copy, stdout);
        }
    }
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
