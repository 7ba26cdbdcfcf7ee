// views, in C++. get() is the handle for functions that write; a const nd::tensor & or a
// const nd_tensor * in the parameters says that the tensor is read.
#include <cstdint>
#include <cstdio>
#include <nd/nd.hpp>

/// Fills the middle row and doubles every other column.
static nd_status paint(nd::tensor &grid) {
    nd::tensor row = nd::select(grid, 1, 0);
    nd::tensor even = nd::slice(grid, 0, INT64_MAX, 2, 1);
    nd_status status = nd_fill_(row.get(), 5);
    return status == ND_OK ? nd_mul_scalar_(even.get(), 2) : status;
}

/// The last row of a grid that is gone when this returns. The view keeps the elements.
static nd::tensor make_row() {
    nd::tensor grid = nd::ones(ND_SHAPE(3, 4), ND_F32);
    if (paint(grid) != ND_OK)
        return nullptr;
    nd_print(grid, stdout);
    nd::tensor turned = nd::transpose(grid, 0, 1);
    if (turned)
        std::printf("transposed: strides %d and %d, a view: %d\n",
                    static_cast<int>(nd_get_strides(turned)[0]),
                    static_cast<int>(nd_get_strides(turned)[1]), nd_is_view_of(turned, grid));
    return nd::select(grid, -1, 0);
}

static void show() {
    nd::tensor row = make_row();
    nd::tensor same = row;            // a copy of an owner is another count of the same tensor
    nd::tensor copy = nd::clone(row); // this is a tensor of its own
    std::printf("the view keeps %d bytes, its copy %d\n",
                static_cast<int>(nd_get_storage_bytes(same)),
                static_cast<int>(nd_get_storage_bytes(copy)));
    if (nd_fill_(copy.get(), 9) == ND_OK) {
        nd_print(row, stdout);
        nd_print(copy, stdout);
    }
}

int main() {
    show();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
