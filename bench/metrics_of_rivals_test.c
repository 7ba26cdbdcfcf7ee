// bench/support/metrics.c and peer.c: what is met and what is missed; a rival that is outdated has a
// column, makes no ratio and is called what it is; one that is not makes all of them. And the chart.
#include "bench/support/gnuplot.h"
#include "bench/support/metrics_chart.h"
#include "tests/testing.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bench_metric metrics[2];

static bench_table table_of(const bench_peer *peer) {
    metrics[0] = (bench_metric){.work = "first",
                                .name = "T8_first_ns",
                                .unit = "ns",
                                .ours = 10,
                                .rivals = {40},
                                .ratio = 1.15};
    metrics[1] = (bench_metric){.work = "second",
                                .name = "T8_second_ns",
                                .unit = "ns",
                                .ours = 30,
                                .rivals = {20},
                                .ratio = 1.15};
    return (bench_table){.bench = "test",
                         .metrics = metrics,
                         .count = 2,
                         .mean = 0.8,
                         .worst = 1,
                         .rivals = {{"PyTorch", "rival_pytorch", peer, NULL}}};
}

static void path_in_folder(char *path, size_t size, const char *name) {
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, size, "%s/%s", folder ? folder : "/tmp", name);
}

static char *content_of(const char *path) {
    static char text[65536];
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
    assert_non_null(strstr(text, " 0.250  <= 1.15  met\n"));
    assert_non_null(strstr(text, " 1.500  <= 1.15  missed\n"));
    // sqrt(0.25 * 1.5)
    assert_non_null(
        strstr(text, "geometric mean of 2 0.612 (at most 0.80): met; above their target (none): 1: "
                     "missed. The largest:\n    second"));
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
    assert_null(strstr(text, "0.250"));
    assert_null(strstr(text, "1.500"));
    assert_null(strstr(text, "geometric"));
    assert_null(strstr(text, "met\n"));
    assert_null(strstr(text, "missed"));
    assert_non_null(strstr(text, "<= 1.15  not judged, without PyTorch\n"));
    assert_non_null(strstr(text, "ndarc / PyTorch: no ratio, since there is no rival"));
    assert_non_null(strstr(text, "PyTorch 1.13 of this system, which is no rival"));
    const char *json = written(&table);
    assert_null(strstr(json, "rival"));
    assert_non_null(strstr(json, "T8_first_ns"));
}

/// Beside another rival it has no part in the ratio, and without it nobody is as good as both.
static void test_the_other_rival_stays(void **state) {
    (void)state;
    bench_peer old = peer_of(true), new = peer_of(false);
    bench_table table = table_of(&old);
    table.rivals[1] = (bench_rival){"NumPy", "rival_numpy", &new, NULL};
    metrics[0].rivals[1] = 20;
    assert_non_null(strstr(printed(&table), " 0.500  <= 1.15  not judged, without PyTorch\n"));
    assert_non_null(strstr(written(&table), "T8_rival_numpy_first_ns"));
}

/// Of a line with two rivals, whose figures are these; the table's own are not looked at.
static bench_verdict verdict_of(bench_metric metric, double first, double second) {
    static bench_peer peer;
    peer = peer_of(false);
    bench_table table = table_of(&peer);
    table.rivals[1] = (bench_rival){"oneDNN", "rival_onednn", NULL, "in this process"};
    metric.rivals[0] = first;
    metric.rivals[1] = second;
    return bench_table_verdict(&table, &metric);
}

static void test_a_ratio_is_one_to_the_best(void **state) {
    (void)state;
    const bench_metric time = {.ours = 80, .ratio = 0.8};
    assert_int_equal(verdict_of(time, 100, 200), BENCH_MET);
    assert_int_equal(verdict_of(time, 99, 200), BENCH_MISSED);
    assert_int_equal(verdict_of(time, 200, 99), BENCH_MISSED);
    const bench_metric rate = {.ours = 100, .ratio = 1, .at_least = true};
    assert_int_equal(verdict_of(rate, 100, 50), BENCH_MET);
    assert_int_equal(verdict_of(rate, 101, 50), BENCH_MISSED);
    assert_int_equal(verdict_of(rate, 50, 101), BENCH_MISSED);
}

static void test_a_column_that_it_is_not_beside_does_not_count(void **state) {
    (void)state;
    const bench_metric time = {.ours = 80, .ratio = 0.8, .beside = 1u << 0};
    assert_int_equal(verdict_of(time, 100, 20), BENCH_MET);
    assert_int_equal(verdict_of(time, 100, 0), BENCH_MET);
    assert_int_equal(verdict_of(time, 0, 20), BENCH_NO_RIVAL);
}

/// One rival is enough to be beaten by, not to beat both.
static void test_a_rival_that_is_not_there(void **state) {
    (void)state;
    const bench_metric time = {.ours = 80, .ratio = 0.8};
    assert_int_equal(verdict_of(time, 100, NAN), BENCH_NO_RIVAL);
    assert_int_equal(verdict_of(time, 99, NAN), BENCH_MISSED);
    assert_int_equal(verdict_of(time, NAN, NAN), BENCH_NO_RIVAL);
}

static void test_a_target_of_ours_alone(void **state) {
    (void)state;
    const bench_metric alone = {.ours = 200, .target = 200};
    assert_int_equal(verdict_of(alone, 1, NAN), BENCH_MET);
    const bench_metric slower = {.ours = 201, .target = 200};
    assert_int_equal(verdict_of(slower, 1e6, 1e6), BENCH_MISSED);
    const bench_metric share = {.ours = 79, .target = 80, .at_least = true};
    assert_int_equal(verdict_of(share, NAN, NAN), BENCH_MISSED);
    const bench_metric both = {.ours = 150, .target = 200, .ratio = BENCH_FLAT, .beside = 1u << 1};
    assert_int_equal(verdict_of(both, NAN, 140), BENCH_MET);
    assert_int_equal(verdict_of(both, NAN, 100), BENCH_MISSED);
    const bench_metric flat_and_slow = {.ours = 300, .target = 200, .ratio = BENCH_FLAT};
    assert_int_equal(verdict_of(flat_and_slow, 300, 300), BENCH_MISSED);
    const bench_metric nothing = {.ours = 1};
    assert_int_equal(verdict_of(nothing, 1, 1), BENCH_NO_TARGET);
    const bench_metric missing = {.target = 1};
    assert_int_equal(verdict_of(missing, 1, 1), BENCH_NO_TARGET);
}

/// A column without a key is shown, compared with, and not written.
static void test_a_column_of_other_lines_is_not_written(void **state) {
    (void)state;
    bench_peer peer = peer_of(false);
    bench_table table = table_of(&peer);
    table.rivals[1] = (bench_rival){"one thread", NULL, NULL, "a line above"};
    metrics[0].rivals[1] = 8.0625;
    metrics[0].beside = 1u << 1;
    metrics[0].ratio = BENCH_FLAT;
    assert_non_null(strstr(printed(&table), " 1.240  <= 1.10  missed\n"));
    assert_null(strstr(written(&table), "8.0625"));
}

/// What the chart of so many lines says; "" where none is drawn.
static const char *drawn(const bench_peer *peer, size_t count) {
    static bench_metric lines[60];
    char path[512];
    bench_table table = table_of(peer);
    table.metrics = lines;
    table.count = count;
    for (size_t i = 0; i < count; i++) {
        lines[i] = metrics[i % 2];
        lines[i].work = i % 2 ? "it's slower_than 'that'" : "rate";
        lines[i].at_least = i % 2 == 0;
    }
    path_in_folder(path, sizeof path, "chart.svg");
    unlink(path);
    assert_true(metrics_chart_draw(&table, path));
    return access(path, R_OK) == 0 ? content_of(path) : "";
}

static void test_a_chart_names_its_lines(void **state) {
    (void)state;
    bench_peer peer = peer_of(false), old = peer_of(true);
    assert_string_equal(drawn(&old, 2), ""); // nobody to be compared with
    if (!bench_gnuplot_check("test", "x.svg"))
        return;
    const char *chart = drawn(&peer, 2);
    assert_non_null(strstr(chart, "slower_than"));
    assert_non_null(strstr(chart, ">PyTorch<"));
    assert_non_null(strstr(chart, "target, at most"));
    chart = drawn(&peer, 60); // too many to be named
    assert_null(strstr(chart, "slower_than"));
    assert_non_null(strstr(chart, "ndarc / PyTorch"));
    assert_non_null(strstr(chart, "above its target"));
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
        ND_TEST(test_a_ratio_is_one_to_the_best),
        ND_TEST(test_a_column_that_it_is_not_beside_does_not_count),
        ND_TEST(test_a_rival_that_is_not_there),
        ND_TEST(test_a_target_of_ours_alone),
        ND_TEST(test_a_column_of_other_lines_is_not_written),
        ND_TEST(test_a_chart_names_its_lines),
        ND_TEST(test_whose_program_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
