// What reading and writing texts of numbers share.
#ifndef ND_LIB_IO_CSV_H
#define ND_LIB_IO_CSV_H
#include <nd/io.h>

/// Reads options with their defaults in place, and refuses separators that numbers are made of.
nd_status nd__csv_options_read(const char *operation, const nd_csv_options *given,
                               nd_csv_options *ret_options);
#endif
