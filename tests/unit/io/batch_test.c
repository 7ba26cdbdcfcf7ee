// Batches of several ranks: shares of what one process with the whole batch has.
#include "tests/training.h"
#include "tests/unit/io/files.h"

enum { MANY = 60 };

/// [n, 2] u8 images whose first pixel is the sample's number, and labels that are the number.
static nd_dataset *make_dataset(int64_t n, nd_dataset_options options) {
    nd_auto nd_tensor *images = nd_zeros(ND_SHAPE(n, 2), ND_U8);
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(n), ND_U8);
    for (int64_t i = 0; i < n; i++) {
        ((unsigned char *)nd_get_data(images))[2 * i] = (unsigned char)i;
        ((unsigned char *)nd_get_data(labels))[i] = (unsigned char)i;
    }
    nd_dataset *dataset = nd_dataset_new(images, labels, &options);
    assert_handle(dataset);
    return dataset;
}

static nd_dataset_options batches_of(int64_t batch, bool prefetch) {
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = batch;
    options.prefetch = prefetch;
    return options;
}

/// The labels of an epoch of one process.
static int64_t run_epoch(nd_dataset *dataset, uint64_t epoch, int64_t *ret_order) {
    int64_t total = 0;
    nd_tensor *images, *labels;
    assert_ok(nd_dataset_start(dataset, epoch));
    while (next_batch(dataset, &images, &labels)) {
        for (int64_t i = 0; i < nd_get_numel(labels); i++)
            ret_order[total++] = ((const int64_t *)nd_get_data(labels))[i];
        nd_release(images);
        nd_release(labels);
    }
    return total;
}

/// The labels that each rank has of each step, one step behind the other, as one process with the
/// whole batch has them; their number. Shares differ by one sample at most, in the last step.
static int64_t run_ranks(nd_dataset_options options, int64_t n, int ranks, int64_t *ret_order) {
    nd_dataset *shares[8];
    int64_t total = 0;
    for (int r = 0; r < ranks; r++) {
        options.rank = r;
        options.ranks = ranks;
        shares[r] = make_dataset(n, options);
        assert_ok(nd_dataset_start(shares[r], 3));
        assert_int_equal(nd_dataset_get_size(shares[r]), n);
        assert_int_equal(nd_dataset_get_batches(shares[r]), nd_dataset_get_batches(shares[0]));
        assert_true(nd_dataset_get_weight(shares[r]) == 1);
    }
    for (int64_t step = 0; step < nd_dataset_get_batches(shares[0]); step++) {
        int64_t least = INT64_MAX, most = 0;
        double weighted = 0;
        for (int r = 0; r < ranks; r++) {
            nd_auto nd_tensor *images = NULL, *labels = NULL;
            assert_true(next_batch(shares[r], &images, &labels));
            int64_t count = nd_get_numel(labels);
            assert_int_equal(nd_get_size(images, 0), count);
            for (int64_t i = 0; i < count; i++) {
                int64_t label = ((int64_t *)nd_get_data(labels))[i];
                assert_true(((float *)nd_get_data(images))[2 * i] == (float)label / 255.0f);
                ret_order[total++] = label;
            }
            least = count < least ? count : least;
            most = count > most ? count : most;
            weighted += nd_dataset_get_weight(shares[r]) / ranks; // of means that are all 1
        }
        assert_true(least >= 1 && most - least <= 1);
        assert_true(weighted > 1 - 1e-12 && weighted < 1 + 1e-12);
        bool last = step + 1 == nd_dataset_get_batches(shares[0]);
        assert_true(last ? most <= options.batch + 1 : least == options.batch && most == least);
    }
    for (int r = 0; r < ranks; r++) {
        nd_tensor *images = NULL, *labels = NULL;
        assert_false(next_batch(shares[r], &images, &labels));
        nd_release(shares[r]);
    }
    return total;
}

/// Against one process: the same samples in the same order, in the same steps.
static void test_ranks_share_the_batches_of_one_process(void **state) {
    (void)state;
    int64_t mine[MANY], whole[MANY];
    for (int64_t n = 1; n <= MANY; n += n < 12 ? 1 : 7)
        for (int ranks = 1; ranks <= 5; ranks++)
            for (int64_t batch = 1; batch <= 13; batch += 3)
                for (int bits = 0; bits < 8; bits++) {
                    nd_dataset_options options = batches_of(batch, bits & 1);
                    options.key = nd_key_new(9);
                    options.shuffle = bits & 2;
                    options.drop_last = bits & 4;
                    if (n < ranks && !options.drop_last)
                        continue;
                    int64_t count = run_ranks(options, n, ranks, mine);
                    options.batch = batch * ranks;
                    nd_auto nd_dataset *one = make_dataset(n, options);
                    int64_t steps = nd_dataset_get_batches(one), rest = n % options.batch;
                    assert_int_equal(run_epoch(one, 3, whole), count);
                    assert_int_equal(count, options.drop_last ? n - rest : n);
                    assert_memory_equal(mine, whole, (size_t)count * sizeof *mine);
                    options.batch = batch;
                    options.ranks = ranks;
                    nd_auto nd_dataset *share = make_dataset(n, options);
                    bool joined = !options.drop_last && rest > 0 && rest < ranks;
                    assert_int_equal(nd_dataset_get_batches(share), steps - joined);
                }
}

static void test_weights_make_a_mean_of_all_samples(void **state) {
    (void)state;
    // 7 samples, 2 ranks, batches of 2: 4 in the first step, 3 in the last.
    nd_dataset_options options = batches_of(2, false);
    options.ranks = 2;
    for (options.rank = 0; options.rank < 2; options.rank++) {
        nd_auto nd_dataset *dataset = make_dataset(7, options);
        assert_ok(nd_dataset_start(dataset, 0));
        for (int step = 0; step < 2; step++) {
            nd_auto nd_tensor *images = NULL, *labels = NULL;
            assert_true(next_batch(dataset, &images, &labels));
            double expected = step == 0 ? 1 : options.rank == 0 ? 4.0 / 3 : 2.0 / 3;
            assert_true(nd_dataset_get_weight(dataset) == expected);
        }
    }
    assert_true(nd_dataset_get_weight(NULL) == 1);
}

static void test_ranks_that_cannot_be(void **state) {
    (void)state;
    nd_auto nd_tensor *images = nd_zeros(ND_SHAPE(3, 2), ND_U8);
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(3), ND_U8);
    nd_dataset_options options = batches_of(2, false);
    options.ranks = 4;
    assert_null(nd_dataset_new(images, labels, &options));
    assert_failed(ND_ERROR_SHAPE, "dataset_new: 3 samples for 4 ranks");
    options.drop_last = true;
    nd_auto nd_dataset *none = nd_dataset_new(images, labels, &options);
    assert_int_equal(nd_dataset_get_batches(none), 0);
    const int wrong[][2] = {{-1, 2}, {2, 2}, {1, 0}, {0, -1}, {1, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.rank = wrong[i][0];
        options.ranks = wrong[i][1];
        assert_null(nd_dataset_new(images, labels, &options));
        assert_failed(ND_ERROR_INVALID_ARGUMENT, "rank");
    }
    // A batch beyond all numbers is all of it.
    options = batches_of(INT64_MAX, true);
    options.ranks = 3;
    nd_auto nd_dataset *all = nd_dataset_new(images, labels, &options);
    assert_int_equal(nd_dataset_get_batches(all), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_ranks_share_the_batches_of_one_process),
        ND_TEST(test_weights_make_a_mean_of_all_samples),
        ND_TEST(test_ranks_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
