// More elements than 32 bits count, in more than 4 GiB: 64-bit positions in every kind of kernel of the
// CPU, and in files (F28). Each tensor is of one number but for a few elements near its ends.
//
// Says so and passes where the machine has not got the memory.
#include "tests/testing.h"
#include <inttypes.h>
#include <nd/io.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GIB_NEEDED = 18 };

/// Of vectors, of a byte each; of matrices of bf16.
static const int64_t size = ((int64_t)1 << 32) + 10;
static const int64_t rows = ((int64_t)1 << 21) + 3, columns = 1024;

static bool has_room(void) {
    int64_t kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNd64, &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (kib >> 20 >= GIB_NEEDED)
        return true;
    printf("SKIPPED: %lld MiB of memory are available, and %d GiB are needed\n",
           (long long)(kib >> 10), GIB_NEEDED);
    return false;
}

/// The element of a vector, or of a matrix.
static double at(const nd_tensor *x, int64_t row, int64_t column) {
    assert_handle(x);
    nd_auto nd_tensor *part = nd_slice(x, row, row + 1, 1, 0);
    nd_auto nd_tensor *one =
        nd_get_ndim(x) == 2 ? nd_slice(part, column, column + 1, 1, 1) : nd_retain(part);
    nd_auto nd_tensor *number = nd_reshape(one, 0, NULL);
    assert_handle(number);
    return nd_get_item(number);
}

static void set(nd_tensor *x, int64_t row, int64_t column, double value) {
    nd_auto nd_tensor *part = nd_slice(x, row, row + 1, 1, 0);
    nd_auto nd_tensor *one =
        nd_get_ndim(x) == 2 ? nd_slice(part, column, column + 1, 1, 1) : nd_retain(part);
    assert_ok(nd_fill_(one, value));
}

/// 3, but 6 in its fifth place, 1 in the last but two, and 7 in the last but one.
static nd_tensor *make_vector(void) {
    nd_tensor *x = nd_full(ND_SHAPE(size), 3, ND_U8);
    assert_handle(x);
    set(x, 5, 0, 6);
    set(x, size - 3, 0, 1);
    set(x, size - 2, 0, 7);
    return x;
}

static int64_t integer(const nd_tensor *x) {
    int64_t value;
    nd_auto nd_tensor *wide = nd_cast(x, ND_I64);
    assert_ok(nd_get_item_i64(wide, &value));
    return value;
}

static void check_reductions(const nd_tensor *x) {
    ND_SCOPE {
        assert_true(integer(nd_tmp(nd_max(x, 0, NULL, false))) == 7);
        assert_true(integer(nd_tmp(nd_min(x, 0, NULL, false))) == 1);
        assert_true(integer(nd_tmp(nd_argmax(x, 0, false))) == size - 2);
        assert_true(integer(nd_tmp(nd_argmin(x, 0, false))) == size - 3);
        assert_true(integer(nd_tmp(nd_sum(x, 0, NULL, false))) == 3 * size + 5);
        assert_true(integer(nd_tmp(nd_count_nonzero(x, 0, NULL, false))) == size);
        assert_float_equal(nd_get_item(nd_tmp(nd_mean(x, 0, NULL, false))), 3, 1e-6);
        const nd_tensor *pairs = nd_tmp(nd_reshape(x, ND_SHAPE(size / 2, 2)));
        const nd_tensor *greatest = nd_tmp(nd_max(pairs, 1, (int[]){0}, false));
        assert_true(at(greatest, 0, 0) == 7 && at(greatest, 1, 0) == 6);
        const nd_tensor *halves = nd_tmp(nd_reshape(x, ND_SHAPE(2, size / 2)));
        const nd_tensor *least = nd_tmp(nd_min(halves, 1, (int[]){1}, false));
        assert_true(at(least, 0, 0) == 3 && at(least, 1, 0) == 1);
    }
}

static void check_elementwise(const nd_tensor *x) {
    ND_SCOPE {
        const nd_tensor *twice = nd_tmp(nd_add(x, x));
        assert_true(at(twice, 5, 0) == 12 && at(twice, (int64_t)1 << 31, 0) == 6);
        assert_true(at(twice, size - 3, 0) == 2 && at(twice, size - 2, 0) == 14);
    }
    ND_SCOPE {
        const nd_tensor *half = nd_tmp(nd_slice(x, 0, size, 2, 0));
        const nd_tensor *raised = nd_tmp(nd_add_scalar(half, 1));
        assert_true(at(raised, size / 2 - 1, 0) == 8 && at(raised, size / 2 - 2, 0) == 4);
    }
    ND_SCOPE {
        const nd_tensor *limited = nd_tmp(nd_clip(x, 2, 5));
        assert_true(at(limited, 5, 0) == 5 && at(limited, size - 3, 0) == 2);
        assert_true(at(limited, size - 2, 0) == 5 && at(limited, size - 1, 0) == 3);
    }
}

static void check_copies(const nd_tensor *x) {
    ND_SCOPE {
        const nd_tensor *turned = nd_tmp(nd_flip(x, 1, (int[]){0}));
        assert_true(at(turned, 1, 0) == 7 && at(turned, size - 6, 0) == 6);
    }
    ND_SCOPE {
        const nd_tensor *rolled = nd_tmp(nd_roll(x, 3, 0));
        assert_true(at(rolled, 1, 0) == 7 && at(rolled, 8, 0) == 6);
    }
    ND_SCOPE {
        const nd_tensor *pairs = nd_tmp(nd_reshape(x, ND_SHAPE(size / 2, 2)));
        const nd_tensor *turned = nd_tmp(nd_contiguous(nd_tmp(nd_transpose(pairs, 0, 1))));
        assert_true(at(turned, 0, size / 2 - 1) == 7 && at(turned, 1, size / 2 - 2) == 1);
        assert_true(at(turned, 1, 2) == 6);
    }
    ND_SCOPE {
        const int64_t side = 65537, n = side * (side - 2);
        const nd_tensor *matrix =
            nd_tmp(nd_reshape(nd_tmp(nd_slice(x, 0, n, 1, 0)), ND_SHAPE(side, side - 2)));
        const nd_tensor *turned = nd_tmp(nd_contiguous(nd_tmp(nd_transpose(matrix, 0, 1))));
        assert_true(at(turned, 5, 0) == 6 && at(turned, side - 3, side - 1) == 3);
        const nd_tensor *lower = nd_tmp(nd_tril(matrix, 0));
        assert_true(at(lower, side - 4, side - 4) == 3 && at(lower, side - 5, side - 4) == 0);
    }
    ND_SCOPE {
        const nd_tensor *parts[] = {nd_tmp(nd_slice(x, size / 2, size, 1, 0)),
                                    nd_tmp(nd_slice(x, 0, size / 2, 1, 0))};
        const nd_tensor *joined = nd_tmp(nd_concat(2, parts, 0));
        assert_true(at(joined, size / 2 - 2, 0) == 7 && at(joined, size / 2 + 5, 0) == 6);
    }
}

static void check_positions(const nd_tensor *x) {
    const int64_t places[] = {size - 2, 5, size - 1, -3};
    ND_SCOPE {
        const nd_tensor *index = nd_tmp(nd_from_data(places, ND_SHAPE(4), ND_I64));
        const nd_tensor *found[] = {nd_tmp(nd_take(x, index, 0)), nd_tmp(nd_gather(x, index, 0))};
        for (int i = 0; i < 2; i++)
            assert_true(at(found[i], 0, 0) == 7 && at(found[i], 1, 0) == 6 &&
                        at(found[i], 2, 0) == 3 && at(found[i], 3, 0) == 1);
        const nd_tensor *one = nd_tmp(nd_ones(ND_SHAPE(4), ND_U8));
        const nd_tensor *counted = nd_tmp(nd_scatter_add(x, index, one, 0));
        assert_true(at(counted, size - 2, 0) == 8 && at(counted, size - 3, 0) == 2);
        assert_true(at(counted, 5, 0) == 7 && at(counted, 6, 0) == 3);
    }
    ND_SCOPE {
        const nd_tensor *seven = nd_tmp(nd_full(ND_SHAPE(1), 7, ND_U8));
        const nd_tensor *mask = nd_tmp(nd_equal(x, seven));
        const nd_tensor *where = nd_tmp(nd_nonzero(mask));
        assert_true(nd_get_numel(where) == 1 && at(where, 0, 0) == (double)(size - 2));
        const nd_tensor *selected = nd_tmp(nd_masked_select(x, mask));
        assert_true(nd_get_numel(selected) == 1 && at(selected, 0, 0) == 7);
    }
}

static void test_F28_more_elements_than_32_bits_count(void **state) {
    (void)state;
    if (!has_room())
        return;
    nd_auto nd_tensor *x = make_vector();
    check_reductions(x);
    check_elementwise(x);
    check_copies(x);
    check_positions(x);
    ND_SCOPE {
        const nd_tensor *random = nd_tmp(nd_randint((nd_key){1, 2}, 0, 200, ND_SHAPE(size), ND_U8));
        const nd_tensor *end = nd_tmp(nd_slice(random, size - 100000, size, 1, 0));
        assert_float_equal(nd_get_item(nd_tmp(nd_mean(end, 0, NULL, false))), 99.5, 1);
    }
}

static void test_F28_rows_of_more_than_four_gigabytes(void **state) {
    (void)state;
    if (!has_room())
        return;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(rows, columns), ND_BF16);
    set(x, rows - 1, columns - 1, 8);
    ND_SCOPE {
        const nd_tensor *y = nd_tmp(nd_softmax(x, 1));
        assert_float_equal(at(y, rows - 1, columns - 1), 0.745F, 0.003F);
        assert_float_equal(at(y, rows - 2, columns - 1), 1.0F / (float)columns, 1e-5F);
    }
    ND_SCOPE {
        const nd_tensor *y = nd_tmp(nd_layer_norm(x, NULL, NULL, 1e-5, 1));
        assert_float_equal(at(y, rows - 1, columns - 1), 32, 0.5F);
        assert_true(at(y, rows - 2, columns - 1) == 0);
    }
    ND_SCOPE {
        const nd_tensor *y = nd_tmp(nd_cumsum(nd_tmp(nd_reshape(x, ND_SHAPE(rows * columns))), 0));
        assert_true(at(y, rows * columns - 1, 0) == 8 && at(y, rows * columns - 2, 0) == 0);
    }
    ND_SCOPE {
        const nd_tensor *weight = nd_tmp(nd_ones(ND_SHAPE(1, columns), ND_BF16));
        const nd_tensor *y = nd_tmp(nd_linear(x, weight, NULL));
        assert_true(at(y, rows - 1, 0) == 8 && at(y, rows - 2, 0) == 0);
        const nd_tensor *sums = nd_tmp(nd_sum(x, 1, (int[]){0}, false));
        assert_true(at(sums, columns - 1, 0) == 8 && at(sums, 0, 0) == 0);
    }
    // A gradient, and what is dropped there is dropped here.
    assert_ok(nd_set_requires_grad(x, true));
    ND_SCOPE {
        const nd_tensor *y = nd_tmp(nd_dropout(x, (nd_key){1, 2}, 0.5, true));
        const nd_tensor *loss = nd_tmp(nd_sum(y, 0, NULL, false));
        assert_ok(nd_backward(loss, NULL));
        const double factor = at(nd_get_grad(x), rows - 1, columns - 1);
        assert_true(factor == 0 || factor == 2);
        assert_true(nd_get_item(loss) == 8 * factor);
        const nd_tensor *kept = nd_tmp(nd_slice(nd_get_grad(x), rows - 100, rows, 1, 0));
        assert_float_equal(nd_get_item(nd_tmp(nd_mean(kept, 0, NULL, false))), 1, 0.02);
    }
    assert_ok(nd_set_grad(x, NULL));
    assert_ok(nd_set_requires_grad(x, false));
}

static void test_F28_products_of_more_than_four_gigabytes(void **state) {
    (void)state;
    if (!has_room())
        return;
    const int64_t n = 46400; // n n is more than 2^31
    ND_SCOPE {
        nd_auto nd_tensor *a = nd_ones(ND_SHAPE(n, 3), ND_F32);
        for (int i = 0; i < 3; i++)
            set(a, n - 1, i, 2);
        const nd_tensor *y = nd_tmp(nd_matmul(a, nd_tmp(nd_transpose(a, 0, 1))));
        assert_true(at(y, n - 1, n - 1) == 12 && at(y, n - 1, n - 2) == 6);
        assert_true(at(y, n - 2, n - 2) == 3 && at(y, 0, 0) == 3);
        const nd_tensor *image = nd_tmp(nd_reshape(y, ND_SHAPE(1, 1, n, n)));
        nd_conv2d_options windows = ND_CONV2D_OPTIONS_INIT;
        windows.stride[0] = windows.stride[1] = 50;
        const nd_tensor *one = nd_tmp(nd_ones(ND_SHAPE(1, 1, 50, 50), ND_F32));
        const nd_tensor *sums = nd_tmp(nd_conv2d(image, one, NULL, &windows));
        const nd_tensor *flat = nd_tmp(nd_flatten(sums, 0));
        assert_true(at(flat, 0, 0) == 3 * 2500);
        assert_true(at(flat, nd_get_numel(flat) - 1, 0) == 3 * 2500 + 2 * 49 * 3 + 9);
        nd_max_pool2d_options pooled = ND_MAX_POOL2D_OPTIONS_INIT;
        pooled.kernel[0] = pooled.kernel[1] = 50;
        flat = nd_tmp(nd_flatten(nd_tmp(nd_max_pool2d(image, &pooled)), 0));
        assert_true(at(flat, nd_get_numel(flat) - 1, 0) == 12 && at(flat, 0, 0) == 3);
    }
}

static void test_F28_files_of_more_than_four_gigabytes(void **state) {
    (void)state;
    if (!has_room())
        return;
    char path[] = "/tmp/ndarc-large-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    nd_auto nd_tensor *x = make_vector();
    const char *name = "x";
    const nd_tensor *tensors[] = {x};
    for (int format = 0; format < 3; format++) {
        nd_auto nd_tensor *loaded = NULL;
        if (format == 0) {
            assert_ok(nd_save_npy(path, x));
            loaded = nd_load_npy(path, NULL);
        } else {
            assert_ok(format == 1 ? nd_save_safetensors(path, 1, &name, tensors)
                                  : nd_save_npz(path, 1, &name, tensors, NULL));
            nd_auto nd_object *all = format == 1 ? (nd_object *)nd_load_safetensors(path)
                                                 : (nd_object *)nd_load_npz(path);
            assert_handle(all);
            const nd_object *one = format == 1 ? nd_list_get((const nd_list *)all, 0)
                                               : nd_map_get((const nd_map *)all, name);
            loaded = (nd_tensor *)nd_object_retain(one);
        }
        assert_handle(loaded);
        assert_true(at(loaded, 5, 0) == 6 && at(loaded, size - 2, 0) == 7);
        assert_true(at(loaded, size - 3, 0) == 1 && at(loaded, size - 1, 0) == 3);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F28_more_elements_than_32_bits_count),
        ND_TEST(test_F28_rows_of_more_than_four_gigabytes),
        ND_TEST(test_F28_products_of_more_than_four_gigabytes),
        ND_TEST(test_F28_files_of_more_than_four_gigabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
