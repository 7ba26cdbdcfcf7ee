// Reading and writing whole files, for the formats of lib/io.
//
// Invariant: a reader knows the file's size before it reads, and a read either fills its buffer or
// fails with a sentence that names the operation, the file and the reason. A writer writes beside
// its target and renames at the end, so that whoever looks sees the old file or the new one, never
// a part. A file that a rename would not leave as it was (it has several names, or an owner or
// group that the writer may not give) is written over instead, from a complete copy beside it.
// Neither must leave a descriptor or a temporary file behind, whatever fails, but for that copy
// when writing over it fails.
#ifndef ND_LIB_IO_FILE_H
#define ND_LIB_IO_FILE_H
#include <nd/error.h>
#include <sys/types.h>

/// A regular file open for reading. `operation` and `path` are borrowed for the messages.
typedef struct nd_file {
    const char *operation;
    const char *path;
    int descriptor; ///< -1 when closed
    uint64_t size;
    uint64_t position; ///< where nd__file_read goes on
} nd_file;

/// Opens for reading; the file must be a regular one. On error the file is closed already.
nd_status nd__file_open(nd_file *file, const char *operation, const char *path);
/// Reads up to `bytes` from `position` on; fewer only at the end of the file.
nd_status nd__file_read_some(nd_file *file, void *buffer, size_t bytes, size_t *ret_bytes);
/// Reads exactly `bytes` from `position` on; a file that ends before is ND_ERROR_IO.
nd_status nd__file_read(nd_file *file, void *buffer, size_t bytes);
/// Idempotent.
void nd__file_close(nd_file *file);

/// A file being written.
typedef struct nd_file_writer {
    const char *operation;
    const char *path;
    char *target;    ///< what `path` leads to, symbolic links followed; owned
    char *temporary; ///< what is written now, owned; NULL when the target is a device or a pipe,
                     ///< written directly
    int descriptor;  ///< -1 when closed
    int over;        ///< the target itself, when that is written over; else -1
} nd_file_writer;

/// Starts to write. On error nothing is left behind.
nd_status nd__file_create(nd_file_writer *writer, const char *operation, const char *path);
/// Writes all of the bytes. After an error only nd__file_abandon makes sense.
nd_status nd__file_write(nd_file_writer *writer, const void *data, size_t bytes);
/// Makes the written bytes durable and puts them in the target's place. Closes the writer, also on
/// error.
nd_status nd__file_commit(nd_file_writer *writer);
/// Closes the writer and leaves the target as it was. Idempotent, harmless after a commit.
void nd__file_abandon(nd_file_writer *writer);

/// What reads: pread, unless a test puts something else here that reads short or fails.
extern ssize_t (*nd__file_pread)(int descriptor, void *buffer, size_t bytes, off_t position);
#endif
