// A locale whose decimal point is a comma, which the test makes for itself.
#ifndef ND_TESTS_COMMA_H
#define ND_TESTS_COMMA_H
#include "tests/testing.h"
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

/// The program's locale writes 0.5 as 0,5 from here on. False, by name, where no locale can be
/// made.
static inline bool nd_test_comma_begin(void) {
    char folder[300], source[400], command[1000], text[16];
    const char *home = getenv("TEST_TMPDIR");
    snprintf(folder, sizeof folder, "%s", home ? home : "/tmp");
    snprintf(source, sizeof source, "%s/comma.source", folder);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n",
          file);
    assert_int_equal(fclose(file), 0);
    // What the other categories lack is only warned about.
    snprintf(command, sizeof command, "localedef -c -i '%s' '%s/comma' >/dev/null 2>&1", source,
             folder);
    int made = system(command); // NOLINT(cert-env33-c)
    (void)made;                 // what counts is whether it can be set
    unlink(source);
    setenv("LOCPATH", folder, 1);
    if (!setlocale(LC_ALL, "comma")) {
        puts("SKIPPED: localedef makes no locale with a decimal comma here");
        return false;
    }
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    return true;
}

static inline void nd_test_comma_end(void) {
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
}
#endif
