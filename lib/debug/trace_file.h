// The file that a trace is written to: opened so that what is already there cannot mislead, and
// written so that who reads it may leave.
#ifndef ND_LIB_DEBUG_TRACE_FILE_H
#define ND_LIB_DEBUG_TRACE_FILE_H
#include <sys/types.h>

/// Descriptor of the file, emptied; -1 with a reason. A regular file must have this one name, and
/// the path's last part must not be a symbolic link: whoever may write in its folder could else
/// choose which file is emptied. A terminal, another character device and a named pipe that is
/// being read are written as they are; /dev/stdout, /dev/stderr and /dev/fd/N are the program's own
/// descriptors, which are neither opened anew nor emptied.
int nd__trace_file_open(const char *path, const char **ret_reason);

/// As write(), but a pipe that nobody reads any more is the error EPIPE, a file that may not grow
/// EFBIG, and neither a signal.
ssize_t nd__trace_file_write(int file, const void *data, size_t bytes);
#endif
