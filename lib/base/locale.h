// Texts of numbers are those of the C locale, whatever the program's: a point before the decimals
// and nothing between the thousands.
//
// Only the calling thread's locale changes, and what it was is put back. glibc keeps the C locale
// by itself, so that nothing is allocated.
#ifndef ND_LIB_BASE_LOCALE_H
#define ND_LIB_BASE_LOCALE_H
#include <locale.h>

/// The thread's numbers are plain from here on. What to give to nd__locale_end().
static inline locale_t nd__locale_begin_plain(void) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain ? uselocale(plain) : (locale_t)0;
}

static inline void nd__locale_end(locale_t before) {
    locale_t plain = before ? uselocale(before) : (locale_t)0;
    if (plain)
        freelocale(plain); // nothing where the C library keeps it
}
#endif
