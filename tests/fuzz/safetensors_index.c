// The harness of nd_load_safetensors_index. The input is the index; beside it, as the system sees
// descriptors, is a file 99 with the tensors a and b.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SHARD = 99 };

static void *load(const char *path) {
    return nd_load_safetensors_index(path, NULL);
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

static void make_shard(void) {
    static bool made;
    if (made)
        return;
    made = true;
    const char *names[] = {"a", "b"};
    nd_auto nd_tensor *a = nd_arange(0, 3, 1, ND_F32);
    nd_auto nd_tensor *b = nd_scalar(1, ND_BOOL);
    const char *path = fuzz_path();
    if (nd_save_safetensors(path, 2, names, (const nd_tensor *const[]){a, b}) != ND_OK)
        fuzz_die("no shard: %s", nd_error_get_message());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || dup3(file, SHARD, O_CLOEXEC) != SHARD)
        fuzz_die("no descriptor %d", SHARD);
    close(file);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    make_shard();
    nd_list *list = fuzz_load(data, size, load, equal);
    if (list && nd_list_get_size(list) != 0 && nd_list_get_size(list) != 2)
        fuzz_die("a file of two tensors gave %zu", nd_list_get_size(list));
    nd_release(list);
    fuzz_end_input();
    return 0;
}
