// bench/support/metrics.c and peer.c: a rival that is outdated has a column, makes no ratio and is
// called what it is; one that is not makes all of them.
#include "bench/support/metrics.h"
#include "tests/testing.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bench_metric metrics[2];

static bench_table table_of(const bench_peer *peer) {
    metrics[0] = (bench_metric){"first", "T8_first_ns", "ns", 10, {40}, 0, false};
    metrics[1] = (bench_metric){"second", "T8_second_ns", "ns", 30, {20}, 0, false};
    return (bench_table){.bench = "test",
                         .metrics = metrics,
                         .count = 2,
                         .rivals = {{"PyTorch", "rival_pytorch", peer, NULL}}};
}

static void path_in_folder(char *path, size_t size, const char *name) {
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, size, "%s/%s", folder ? folder : "/tmp", name);
}

static char *content_of(const char *path) {
    static char text[16384];
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

/// What the table and its ratios print.
static char *printed(const bench_table *table) {
    char path[512];
    path_in_folder(path, sizeof path, "printed");
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    assert_non_null(freopen(path, "we", stdout));
    bench_table_print(table);
    bench_table_print_ratios(table, 1.15, 1);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    return content_of(path);
}

static char *written(const bench_table *table) {
    char path[512];
    path_in_folder(path, sizeof path, "figures.json");
    assert_true(bench_table_write(table, path));
    return content_of(path);
}

static bench_peer peer_of(bool outdated) {
    return (bench_peer){
        .ran = true, .outdated = outdated, .output = "{\"library\": \"PyTorch 1.13\"}"};
}

static void test_a_rival_makes_ratios(void **state) {
    (void)state;
    bench_peer peer = peer_of(false);
    bench_table table = table_of(&peer);
    const char *text = printed(&table);
    assert_non_null(strstr(text, "4.00x"));
    assert_non_null(strstr(text, "0.67x"));
    // sqrt(0.25 * 1.5)
    assert_non_null(
        strstr(text, "geometric mean of 2 0.612; above 1.15: 1. The worst:\n    second"));
    assert_non_null(strstr(text, "1.50\n"));
    assert_null(strstr(text, "no rival"));
    assert_non_null(strstr(written(&table), "T8_rival_pytorch_first_ns"));
}

static void test_an_outdated_one_makes_none(void **state) {
    (void)state;
    bench_peer peer = peer_of(true);
    bench_table table = table_of(&peer);
    const char *text = printed(&table);
    assert_non_null(strstr(text, "40.0 ns")); // its column
    assert_null(strstr(text, "4.00x"));
    assert_null(strstr(text, "0.67x"));
    assert_null(strstr(text, "geometric"));
    assert_non_null(strstr(text, "ours / PyTorch: no ratio, since this one is no rival"));
    assert_non_null(strstr(text, "PyTorch 1.13 of this system, which is no rival"));
    const char *json = written(&table);
    assert_null(strstr(json, "rival"));
    assert_non_null(strstr(json, "T8_first_ns"));
}

/// Beside another rival it has no part in "better".
static void test_the_other_rival_stays(void **state) {
    (void)state;
    bench_peer old = peer_of(true), new = peer_of(false);
    bench_table table = table_of(&old);
    table.rivals[1] = (bench_rival){"NumPy", "rival_numpy", &new, NULL};
    metrics[0].rivals[1] = 20;
    assert_non_null(strstr(printed(&table), "2.00x"));
    assert_non_null(strstr(written(&table), "T8_rival_numpy_first_ns"));
}

static void write_program(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

/// A program of the newest is a rival, whatever Python there is; one that is not there is not run.
static void test_whose_program_it_is(void **state) {
    (void)state;
    char folder[512], path[600];
    path_in_folder(folder, sizeof folder, "rivals");
    mkdir(folder, 0700);
    assert_int_equal(setenv("ND_RIVALS", folder, 1), 0);
    snprintf(path, sizeof path, "%s/bin", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/bin/test_rival", folder);
    write_program(path, "#!/bin/sh\necho '{\"library\": \"libtorch 2.15.0\", \"T1_ns\": 3}'\n");
    bench_peer peer;
    bench_peer_run_own(&peer, "test_rival", "T1", "libtorch-dev");
    assert_true(peer.ran);
    assert_false(peer.outdated);
    assert_true(bench_peer_number(&peer, "T1_ns") == 3);
    unlink(path);
    // The newest Python makes no rival of a program that was built with the system's library.
    snprintf(path, sizeof path, "%s/bin/python", folder);
    write_program(path, "#!/bin/sh\nexit 0\n");
    bench_peer_run_own(&peer, "test_rival", "T1", "libtorch-dev");
    assert_false(peer.ran);
    assert_non_null(strstr(peer.skipped, "was not built"));
    unlink(path);
    unsetenv("ND_RIVALS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_rival_makes_ratios),
        ND_TEST(test_an_outdated_one_makes_none),
        ND_TEST(test_the_other_rival_stays),
        ND_TEST(test_whose_program_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
