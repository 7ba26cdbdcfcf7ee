// views, with counts by hand. A view is a tensor like any other: it has a count of its own, and
// whoever made it owes one release.
#include <nd/nd.h>
#include <stdio.h>

/// Fills the middle row and doubles every other column.
static nd_status paint(nd_tensor *grid) {
    nd_tensor *row = nd_select(grid, 1, 0);
    nd_status status = nd_fill_(row, 5);
    nd_release(row); // what was written stays in the grid
    if (status != ND_OK)
        return status;
    nd_tensor *even = nd_slice(grid, 0, INT64_MAX, 2, 1);
    status = nd_mul_scalar_(even, 2);
    nd_release(even);
    return status;
}

/// The last row of a grid that is gone when this returns. The caller owns the view, and the view
/// keeps the elements.
static nd_tensor *make_row(void) {
    nd_tensor *row = NULL, *turned = NULL;
    nd_tensor *grid = nd_ones(ND_SHAPE(3, 4), ND_F32);
    if (paint(grid) != ND_OK)
        goto done; // every way out leads past the releases
    nd_print(grid, stdout);
    turned = nd_transpose(grid, 0, 1);
    if (!turned)
        goto done;
    printf("transposed: strides %d and %d, a view: %d\n", (int)nd_get_strides(turned)[0],
           (int)nd_get_strides(turned)[1], nd_is_view_of(turned, grid));
    row = nd_select(grid, -1, 0);
done:
    nd_release(turned);
    nd_release(grid); // the handle: the elements have another owner now, the row
    return row;
}

static void show(void) {
    nd_tensor *row = make_row();
    nd_tensor *copy = nd_clone(row);
    printf("the view keeps %d bytes, its copy %d\n", (int)nd_get_storage_bytes(row),
           (int)nd_get_storage_bytes(copy));
    if (nd_fill_(copy, 9) == ND_OK) {
        nd_print(row, stdout);
        nd_print(copy, stdout);
    }
    nd_release(copy);
    nd_release(row);
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
