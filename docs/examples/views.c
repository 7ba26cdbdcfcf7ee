// views: windows onto the elements of another tensor. Nothing is copied, what is written through one
// is written to all, and the elements live as long as the last of them.
#include <nd/nd.h>
#include <stdio.h>

/// Fills the middle row and doubles every other column. A function that writes a tensor takes it as
/// a plain pointer, one that only reads it as a pointer to const.
static nd_status paint(nd_tensor *grid) {
    nd_auto nd_tensor *row = nd_select(grid, 1, 0);               // grid[1]
    nd_auto nd_tensor *even = nd_slice(grid, 0, INT64_MAX, 2, 1); // grid[:, ::2]
    nd_status status = nd_fill_(row, 5); // in place: such a name ends in _, and it returns a status
    return status == ND_OK ? nd_mul_scalar_(even, 2) : status;
}

/// The last row of a grid that is gone when this returns. The caller owns the view, and the view
/// keeps the elements.
static nd_tensor *make_row(void) {
    nd_auto nd_tensor *grid = nd_ones(ND_SHAPE(3, 4), ND_F32);
    if (paint(grid) != ND_OK)
        return NULL;
    nd_print(grid, stdout);
    nd_auto nd_tensor *turned = nd_transpose(grid, 0, 1);
    if (turned) // what a property points to is there when the tensor is
        printf("transposed: strides %d and %d, a view: %d\n", (int)nd_get_strides(turned)[0],
               (int)nd_get_strides(turned)[1], nd_is_view_of(turned, grid));
    return nd_select(grid, -1, 0);
}

static void show(void) {
    nd_auto nd_tensor *row = make_row();
    nd_auto nd_tensor *copy = nd_clone(row);
    // The price: a small view keeps all of what it is a window onto. A copy does not.
    printf("the view keeps %d bytes, its copy %d\n", (int)nd_get_storage_bytes(row),
           (int)nd_get_storage_bytes(copy));
    if (nd_fill_(copy, 9) == ND_OK) { // the copy alone
        nd_print(row, stdout);
        nd_print(copy, stdout);
    }
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
