// files, in C++: arrays for NumPy, tensors under names, pictures; and a missing file.
#include <cstdio>
#include <nd/nd.hpp>

/// One array, in NumPy's format.
static nd_status show_npy() {
    nd::tensor table = nd::reshape(nd::arange(1, 7, 1, ND_I64), ND_SHAPE(2, 3));
    nd_status status = nd_save_npy("table.npy", table); // an error if table is nothing
    return status == ND_OK ? nd_print(nd::load_npy("table.npy", nullptr), stdout) : status;
}

/// Several tensors under names, as models are passed on.
static nd_status show_safetensors() {
    nd::tensor weight = nd::eye(2, ND_F32);
    nd::tensor bias = nd::zeros(ND_SHAPE(2), ND_BF16);
    const char *names[] = {"weight", "bias"};
    const nd_tensor *tensors[] = {weight, bias}; // of owners that live on: not of temporary ones
    nd_status status = nd_save_safetensors("layer.safetensors", 2, names, tensors);
    if (status != ND_OK)
        return status;
    nd::list read(nd_load_safetensors("layer.safetensors"));
    if (!read)
        return nd_error_get_status();
    for (size_t i = 0; i < nd_list_get_size(read); i++) {
        // Borrowed from the list, which holds nothing but tensors.
        auto tensor = reinterpret_cast<const nd_tensor *>(nd_list_get(read, i));
        char name[16];
        std::printf("%s: %d elements of %s\n", nd_get_name(tensor, name, sizeof name),
                    static_cast<int>(nd_get_numel(tensor)),
                    nd_dtype_get_name(nd_get_dtype(tensor)));
    }
    return ND_OK;
}

/// Writes a picture, [height, width, channels] of bytes.
static nd_status save_picture() {
    nd::tensor ramp = nd::arange(0, 256, 17, ND_U8); // from dark to bright
    nd::tensor red = nd::expand(ramp, ND_SHAPE(8, 16));
    nd::tensor none = nd::zeros(ND_SHAPE(8, 16), ND_U8);
    const nd_tensor *channels[] = {red, none, none};
    return nd_save_png("ramp.png", nd::stack(3, channels, 2), nullptr);
}

/// Reads it as a network wants it: [channels, height, width] of floats from 0 to 1.
static nd_status show_picture() {
    const int channels_first[] = {2, 0, 1};
    nd::tensor planes = nd::permute(nd::load_image("ramp.png", nullptr), 3, channels_first);
    nd::tensor floats = nd::cast(planes, ND_F32) / 255;
    std::printf("picture: %d channels of %d x %d, up to %g\n",
                static_cast<int>(nd_get_size(floats, 0)), static_cast<int>(nd_get_size(floats, 1)),
                static_cast<int>(nd_get_size(floats, 2)),
                nd_get_item(nd::max(floats, 0, nullptr, false)));
    return floats ? ND_OK : nd_error_get_status();
}

/// What a program does about a file that may be missing.
static void show_missing() {
    if (!nd::load_npy("missing.npy", nullptr) && nd_error_get_status() == ND_ERROR_IO) {
        std::printf("%s\n", nd_error_get_message());
        nd_error_clear(); // dealt with; another error stays, and main() reports it
    }
}

int main() {
    if (show_npy() == ND_OK && show_safetensors() == ND_OK && save_picture() == ND_OK &&
        show_picture() == ND_OK)
        show_missing();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
