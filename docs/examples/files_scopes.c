// files, with scopes: arrays for NumPy, tensors under names, pictures; and a missing file. A tensor
// that is read goes to the scope; a list of them stays owned, because lists are changed.
#include <nd/scoped.h>
#include <stdio.h>

/// One array, in NumPy's format.
static nd_status show_npy(void) {
    nd_auto_scope;
    const nd_tensor *table = nd_reshape(nd_arange(1, 7, 1, ND_I64), ND_SHAPE(2, 3));
    nd_status status = nd_save_npy("table.npy", table); // an error if table is NULL
    return status == ND_OK ? nd_print(nd_load_npy("table.npy", NULL), stdout) : status;
}

/// Several tensors under names, as models are passed on.
static nd_status show_safetensors(void) {
    nd_auto_scope;
    const char *names[] = {"weight", "bias"};
    const nd_tensor *tensors[] = {nd_eye(2, ND_F32), nd_zeros(ND_SHAPE(2), ND_BF16)};
    nd_status status = nd_save_safetensors("layer.safetensors", 2, names, tensors);
    if (status != ND_OK)
        return status;
    const nd_list *read = nd_tmp(nd_load_safetensors("layer.safetensors"));
    if (!read)
        return nd_error_get_status();
    for (size_t i = 0; i < nd_list_get_size(read); i++) {
        const nd_tensor *tensor = (const nd_tensor *)nd_list_get(read, i); // borrowed
        char name[16];
        printf("%s: %d elements of %s\n", nd_get_name(tensor, name, sizeof name),
               (int)nd_get_numel(tensor), nd_dtype_get_name(nd_get_dtype(tensor)));
    }
    return ND_OK;
}

/// Writes a picture, [height, width, channels] of bytes.
static nd_status save_picture(void) {
    nd_auto_scope;
    const nd_tensor *ramp = nd_arange(0, 256, 17, ND_U8); // from dark to bright
    const nd_tensor *red = nd_expand(ramp, ND_SHAPE(8, 16));
    const nd_tensor *none = nd_zeros(ND_SHAPE(8, 16), ND_U8);
    const nd_tensor *channels[] = {red, none, none};
    return nd_save_png("ramp.png", nd_stack(3, channels, 2), NULL);
}

/// Reads it as a network wants it: [channels, height, width] of floats from 0 to 1.
static nd_status show_picture(void) {
    nd_auto_scope;
    const nd_tensor *planes = nd_permute(nd_load_image("ramp.png", NULL), 3, (int[]){2, 0, 1});
    const nd_tensor *floats = nd_mul_scalar(nd_cast(planes, ND_F32), 1.0 / 255);
    printf("picture: %d channels of %d x %d, up to %g\n", (int)nd_get_size(floats, 0),
           (int)nd_get_size(floats, 1), (int)nd_get_size(floats, 2),
           nd_get_item(nd_max(floats, 0, NULL, false)));
    return floats ? ND_OK : nd_error_get_status();
}

/// What a program does about a file that may be missing.
static void show_missing(void) {
    nd_auto_scope;
    if (!nd_load_npy("missing.npy", NULL) && nd_error_get_status() == ND_ERROR_IO) {
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
