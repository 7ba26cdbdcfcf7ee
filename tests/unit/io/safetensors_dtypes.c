// For safetensors_python_test.sh: `write FILE` saves a tensor of every dtype, `check FILE` reads
// one that Python wrote. Element i of a tensor is i, i % 2 for bool, (i - 3) / 2 for floats and
// i - 3 for integers with a sign.
#include <nd/nd.h>
#include <stdio.h>
#include <string.h>

enum { ELEMENTS = 12 };

static double value_of(nd_dtype dtype, int64_t i) {
    switch (dtype) {
    case ND_BOOL:
        return (double)(i % 2);
    case ND_F16:
    case ND_BF16:
    case ND_F32:
    case ND_F64:
        return (double)(i - 3) / 2;
    case ND_I8:
    case ND_I16:
    case ND_I32:
    case ND_I64:
        return (double)(i - 3);
    default:
        return (double)i;
    }
}

static int write_all(const char *path) {
    nd_tensor *tensors[ND_DTYPE_COUNT];
    const char *names[ND_DTYPE_COUNT];
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        double values[ELEMENTS];
        for (int i = 0; i < ELEMENTS; i++)
            values[i] = value_of((nd_dtype)dtype, i);
        nd_auto nd_tensor *wide = nd_from_data(values, ND_SHAPE(3, 4), ND_F64);
        tensors[dtype] = nd_cast(wide, (nd_dtype)dtype);
        names[dtype] = nd_dtype_get_name((nd_dtype)dtype);
    }
    nd_status status =
        nd_save_safetensors(path, ND_DTYPE_COUNT, names, (const nd_tensor *const *)tensors);
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        nd_release(tensors[dtype]);
    return status == ND_OK;
}

static int check_all(const char *path) {
    nd_auto nd_list *list = nd_load_safetensors(path);
    if (!list || nd_list_get_size(list) != ND_DTYPE_COUNT)
        return 0;
    for (size_t k = 0; k < ND_DTYPE_COUNT; k++) {
        const nd_tensor *x = (const nd_tensor *)nd_list_get(list, k);
        nd_dtype dtype = nd_get_dtype(x);
        char name[32];
        if (strcmp(nd_get_name(x, name, sizeof name), nd_dtype_get_name(dtype)) != 0)
            return 0;
        nd_auto nd_tensor *flat = nd_reshape(x, ND_SHAPE(ELEMENTS));
        for (int64_t i = 0; i < ELEMENTS; i++) {
            nd_auto nd_tensor *one = nd_slice(flat, i, i + 1, 1, 0);
            if (nd_get_item(one) != value_of(dtype, i)) {
                fprintf(stderr, "%s: element %d is %g\n", name, (int)i, nd_get_item(one));
                return 0;
            }
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    int good = 0;
    if (argc == 3 && strcmp(argv[1], "write") == 0)
        good = write_all(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "check") == 0)
        good = check_all(argv[2]);
    if (!good)
        fprintf(stderr, "safetensors_dtypes: %s\n", nd_error_get_message());
    return !good;
}
