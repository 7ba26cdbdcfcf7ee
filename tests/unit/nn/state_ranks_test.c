// Positions in data sets, saved by one number of ranks and loaded by another: what follows are the
// samples that have not been, at every step of every epoch that is small enough to try them all.
#include "tests/training.h"
#include "tests/unit/io/files.h"

/// The data sets of so many ranks, with batches of 8 of all ranks together.
typedef struct shares {
    nd_dataset *of[8];
    int ranks;
} shares;

static shares new_shares(int ranks, int64_t samples, bool drop_last, uint64_t seed) {
    shares all = {.ranks = ranks};
    nd_auto nd_tensor *points = nd_zeros(ND_SHAPE(samples, 3), ND_F32);
    nd_auto nd_tensor *numbers = nd_arange(0, (double)samples, 1, ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 8 / ranks;
    options.shuffle = true;
    options.drop_last = drop_last;
    options.key = nd_key_new(seed);
    options.ranks = ranks;
    for (int rank = 0; rank < ranks; rank++) {
        options.rank = rank;
        all.of[rank] = nd_dataset_new(points, numbers, &options);
        assert_handle(all.of[rank]);
    }
    return all;
}

static void free_shares(shares *all) {
    for (int rank = 0; rank < all->ranks; rank++)
        nd_release(all->of[rank]);
}

/// The samples of one step of all ranks in their order; 0: the epoch is over on all of them.
static int64_t next_of_all(shares *all, int64_t *ret_labels) {
    int64_t count = 0;
    for (int rank = 0; rank < all->ranks; rank++) {
        nd_auto nd_tensor *x = NULL, *y = NULL;
        if (!next_batch(all->of[rank], &x, &y))
            continue;
        memcpy(ret_labels + count, nd_get_data(y), (size_t)nd_get_numel(y) * sizeof(int64_t));
        count += nd_get_numel(y);
    }
    return count;
}

/// Where steps of so many ranks end, and the order of all samples.
static void read_epoch(int ranks, int64_t samples, bool drop_last, bool *ret_ends,
                       int64_t *ret_order) {
    shares all = new_shares(ranks, samples, drop_last, 5);
    int64_t at = 0, count = 0;
    memset(ret_ends, 0, 64 * sizeof *ret_ends);
    ret_ends[0] = true;
    for (int rank = 0; rank < ranks; rank++)
        assert_ok(nd_dataset_start(all.of[rank], 2));
    while ((count = next_of_all(&all, ret_order + at)) > 0)
        ret_ends[at += count] = true;
    free_shares(&all);
}

/// Saved by `from` ranks behind some of their steps: `to` ranks get all samples that follow, and no
/// other, or, where none of their steps begins there, an error that says so.
static void go_on_with(const char *path, int from, int to, int64_t samples, bool drop_last) {
    bool begins[64], saves[64];
    int64_t order[64], there[64], rest[64];
    read_epoch(to, samples, drop_last, begins, order);
    read_epoch(from, samples, drop_last, saves, there);
    shares saver = new_shares(from, samples, drop_last, 5);
    for (int rank = 0; rank < from; rank++)
        assert_ok(nd_dataset_start(saver.of[rank], 2));
    for (int64_t at = 0, count = 1; count > 0; at += count) {
        nd_auto nd_state *saved = nd_state_new();
        assert_ok(nd_state_add_dataset(saved, "data", saver.of[from - 1]));
        assert_ok(nd_save_state(saved, path));
        shares loader = new_shares(to, samples, drop_last, 77);
        for (int rank = 0; rank < to; rank++) {
            nd_auto nd_state *loaded = nd_state_new();
            assert_ok(nd_state_add_dataset(loaded, "data", loader.of[rank]));
            assert_int_equal(nd_load_state(loaded, path),
                             begins[at] ? ND_OK : ND_ERROR_INVALID_ARGUMENT);
            if (!begins[at])
                assert_non_null(strstr(nd_error_get_message(), "fewer samples than there are"));
        }
        nd_error_clear();
        int64_t steps = 0;
        for (int64_t next = at; begins[at] && (steps = next_of_all(&loader, rest)) > 0;
             next += steps) {
            assert_memory_equal(rest, order + next, (size_t)steps * sizeof *rest);
            assert_true(begins[next + steps]);
        }
        free_shares(&loader);
        count = next_of_all(&saver, there);
    }
    free_shares(&saver);
}

static void test_a_position_means_the_same_samples_for_any_number_of_ranks(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", nd_test_path("position.safetensors"));
    for (int64_t samples = 8; samples <= 25; samples++)
        for (int from = 1; from <= 8; from *= 2)
            for (int to = 1; to <= 8; to *= 2) {
                go_on_with(path, from, to, samples, false);
                go_on_with(path, from, to, samples, true);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_position_means_the_same_samples_for_any_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
