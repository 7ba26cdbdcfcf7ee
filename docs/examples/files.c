// files: arrays for NumPy, tensors under names for other frameworks, pictures; and a file that is not
// there. Every writer makes the new file beside the old one and renames it: never half a file.
#include <nd/nd.h>
#include <stdio.h>

/// One array, in NumPy's format.
static nd_status show_npy(void) {
    nd_auto nd_tensor *numbers = nd_arange(1, 7, 1, ND_I64);
    nd_auto nd_tensor *table = nd_reshape(numbers, ND_SHAPE(2, 3));
    nd_status status = nd_save_npy("table.npy", table); // an error if table is NULL
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *read = nd_load_npy("table.npy", NULL);
    return nd_print(read, stdout);
}

/// Several tensors under names, as models are passed on.
static nd_status show_safetensors(void) {
    nd_auto nd_tensor *weight = nd_eye(2, ND_F32);
    nd_auto nd_tensor *bias = nd_zeros(ND_SHAPE(2), ND_BF16);
    const char *names[] = {"weight", "bias"};
    const nd_tensor *tensors[] = {weight, bias};
    nd_status status = nd_save_safetensors("layer.safetensors", 2, names, tensors);
    if (status != ND_OK)
        return status;
    nd_auto nd_list *read = nd_load_safetensors("layer.safetensors");
    if (!read)
        return nd_error_get_status();
    for (size_t i = 0; i < nd_list_get_size(read); i++) {
        // Borrowed from the list, which holds nothing but tensors.
        const nd_tensor *tensor = (const nd_tensor *)nd_list_get(read, i);
        char name[16];
        printf("%s: %d elements of %s\n", nd_get_name(tensor, name, sizeof name),
               (int)nd_get_numel(tensor), nd_dtype_get_name(nd_get_dtype(tensor)));
    }
    return ND_OK;
}

/// Writes a picture, [height, width, channels] of bytes.
static nd_status save_picture(void) {
    nd_auto nd_tensor *ramp = nd_arange(0, 256, 17, ND_U8); // from dark to bright
    nd_auto nd_tensor *red = nd_expand(ramp, ND_SHAPE(8, 16));
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(8, 16), ND_U8);
    const nd_tensor *channels[] = {red, none, none};
    nd_auto nd_tensor *picture = nd_stack(3, channels, 2);
    return nd_save_png("ramp.png", picture, NULL);
}

/// Reads it as a network wants it: [channels, height, width] of floats from 0 to 1.
static nd_status show_picture(void) {
    nd_auto nd_tensor *read = nd_load_image("ramp.png", NULL);
    nd_auto nd_tensor *planes = nd_permute(read, 3, (int[]){2, 0, 1});
    nd_auto nd_tensor *floats = nd_cast(planes, ND_F32);
    nd_status status = nd_mul_scalar_(floats, 1.0 / 255); // nobody else uses it: in place
    nd_auto nd_tensor *brightest = nd_max(floats, 0, NULL, false);
    printf("picture: %d channels of %d x %d, up to %g\n", (int)nd_get_size(floats, 0),
           (int)nd_get_size(floats, 1), (int)nd_get_size(floats, 2), nd_get_item(brightest));
    return status;
}

/// What a program does about a file that may be missing.
static void show_missing(void) {
    nd_auto nd_tensor *missing = nd_load_npy("missing.npy", NULL);
    if (!missing && nd_error_get_status() == ND_ERROR_IO) {
        printf("%s\n", nd_error_get_message());
        nd_error_clear(); // dealt with; another error stays, and main() reports it
    }
}

int main(void) {
    if (show_npy() == ND_OK && show_safetensors() == ND_OK && save_picture() == ND_OK &&
        show_picture() == ND_OK)
        show_missing();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
