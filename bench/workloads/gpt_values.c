// gpt_values FOLDER: a small random model, its loss, logits and gradients, in files for
// //tests/reference:gpt_test: FOLDER/model.safetensors, FOLDER/gradients/model.safetensors,
// FOLDER/logits.npy. Token i is i 7919 modulo the vocabulary; what comes next is the token behind.
#include "bench/workloads/gpt.h"

#include <stdio.h>
#include <sys/stat.h>

enum { N = 3, T = 20, MOST = 64 };
static const gpt_sizes sizes = {97, 24, 32, 3, 4};

static nd_status save_gradients(const nd_module *model, const char *path) {
    char names[MOST][64];
    const char *pointers[MOST];
    const nd_tensor *gradients[MOST];
    size_t count = nd_module_get_parameter_count(model);
    for (size_t i = 0; i < count && i < MOST; i++) {
        const char *name = NULL;
        gradients[i] = nd_get_grad(nd_module_get_parameter_at(model, i, &name));
        snprintf(names[i], sizeof names[i], "%s", name);
        pointers[i] = names[i];
    }
    return count <= MOST ? nd_save_safetensors(path, count, pointers, gradients)
                         : ND_ERROR_INVALID_ARGUMENT;
}

static nd_status save_all(const char *folder) {
    char path[4096];
    nd_auto nd_module *model = gpt_new(&sizes, nd_key_new(7));
    nd_auto nd_tensor *numbers = nd_arange(0, N * (T + 1), 1, ND_I64);
    nd_auto nd_tensor *large = nd_mul_scalar(numbers, 7919);
    nd_auto nd_tensor *divisor = nd_scalar(sizes.vocabulary, ND_I64);
    nd_auto nd_tensor *tokens = nd_remainder(large, divisor);
    nd_auto nd_tensor *window = nd_reshape(tokens, ND_SHAPE(N, T + 1));
    nd_auto nd_tensor *ids = nd_slice(window, 0, T, 1, 1);
    nd_auto nd_tensor *targets = nd_slice(window, 1, T + 1, 1, 1);
    nd_auto nd_tensor *logits = gpt_logits(model, ids, false);
    nd_auto nd_tensor *loss = gpt_loss(model, ids, targets, true);
    nd_status status = nd_backward(loss, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (status == ND_OK)
        status = nd_save_parameters(model, path);
    snprintf(path, sizeof path, "%s/logits.npy", folder);
    if (status == ND_OK)
        status = nd_save_npy(path, logits);
    snprintf(path, sizeof path, "%s/gradients", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/gradients/model.safetensors", folder);
    return status == ND_OK ? save_gradients(model, path) : status;
}

int main(int argc, char **argv) {
    if (argc == 2 && save_all(argv[1]) == ND_OK)
        return 0;
    fprintf(stderr, "gpt_values FOLDER: %s\n", nd_error_get_message());
    return 1;
}
