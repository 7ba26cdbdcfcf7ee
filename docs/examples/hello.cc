// hello, in C++: nd::tensor owns one count and gives it up in its destructor; nd::NAME is nd_NAME
// with such a result. It converts to const nd_tensor *, which is what functions of C borrow.
#include <cstdio>
#include <nd/nd.hpp>

/// Each row less its mean.
static nd::tensor centre(const nd::tensor &x) {
    const int columns[] = {1};
    return x - nd::mean(x, 1, columns, true);
}

static void show() {
    const float numbers[] = {1, 2, 6, 4, 4, 1};
    nd::tensor x = nd::from_data(numbers, ND_SHAPE(2, 3), ND_F32);
    nd::tensor centred = centre(x);
    nd_print(centred, stdout);
    std::printf("sum of squares: %g\n", nd_get_item(nd::sum(centred * centred, 0, nullptr, false)));

    // Nothing throws: an owner of nothing is false.
    nd::tensor root = nd::sqrt(nd::matmul(x, x));
    if (!root)
        std::printf("%s: %s\n", nd_status_get_name(nd_error_get_status()), nd_error_get_message());
    nd_error_clear();
}

int main() {
    show();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
