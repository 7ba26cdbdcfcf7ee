// The harness of nd_load_safetensors and nd_load_parameters. What is accepted is written and read
// again, and must be the same; a module whose parameters are refused must keep those it has.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS_MAX = 64, NAME_BYTES = 4096 };

static void *load(const char *path) {
    return nd_load_safetensors(path);
}

static bool equal(const void *a, const void *b) {
    if (nd_list_get_size(a) != nd_list_get_size(b))
        return false;
    for (size_t i = 0; i < nd_list_get_size(a); i++)
        if (!fuzz_tensors_equal((const nd_tensor *)nd_list_get(a, i),
                                (const nd_tensor *)nd_list_get(b, i)))
            return false;
    return true;
}

/// The tensor of this name.
static const nd_tensor *find(const nd_list *list, const char *name) {
    static char other[NAME_BYTES];
    for (size_t i = 0; i < nd_list_get_size(list); i++)
        if (strcmp(nd_get_name(nd_list_get(list, i), other, sizeof other), name) == 0)
            return (const nd_tensor *)nd_list_get(list, i);
    return NULL;
}

static void check_round_trip(const nd_list *list, const char *path) {
    static char names[TENSORS_MAX][NAME_BYTES];
    const char *name_pointers[TENSORS_MAX];
    const nd_tensor *tensors[TENSORS_MAX];
    size_t count = nd_list_get_size(list);
    if (count > TENSORS_MAX)
        return;
    for (size_t i = 0; i < count; i++) {
        tensors[i] = (const nd_tensor *)nd_list_get(list, i);
        name_pointers[i] = nd_get_name(tensors[i], names[i], NAME_BYTES);
    }
    if (nd_save_safetensors(path, count, name_pointers, tensors) != ND_OK)
        fuzz_die("what was read cannot be written: %s", nd_error_get_message());
    nd_auto nd_list *again = nd_load_safetensors(path);
    if (!again || nd_list_get_size(again) != count)
        fuzz_die("what was written cannot be read: %s", nd_error_get_message());
    for (size_t i = 0; i < count; i++) {
        const nd_tensor *found = find(again, name_pointers[i]);
        if (!found || !fuzz_tensors_equal(found, tensors[i]))
            fuzz_die("a tensor changed on its way through a file");
    }
}

static void check_parameters(const char *path) {
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 1, true);
    nd_auto nd_module *as_before = nd_linear_module(nd_key_new(1), 2, 1, true);
    if (nd_load_parameters(module, path) == ND_OK)
        return;
    for (size_t i = 0; i < 2; i++)
        if (!fuzz_tensors_equal(nd_module_get_parameter_at(module, i, NULL),
                                nd_module_get_parameter_at(as_before, i, NULL)))
            fuzz_die("parameters that were refused have changed");
}

static void check_mapped(const nd_list *list, const char *path) {
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    nd_auto nd_list *mapped = nd_load_safetensors_with(path, &options);
    if (!mapped != !list || (list && !equal(list, mapped)))
        fuzz_die("a file means something else when it is mapped");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nd_list *list = fuzz_load(data, size, load, equal);
    check_mapped(list, fuzz_file(data, size));
    check_parameters(fuzz_file(data, size));
    nd_error_clear();
    if (list) {
        const char *path = fuzz_path();
        check_round_trip(list, path);
        unlink(path);
    }
    nd_release(list);
    fuzz_end_input();
    return 0;
}
