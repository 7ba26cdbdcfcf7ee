// What a part of a training's state says once, for saving and for loading.
//
// A part hands its tensors and numbers to a stream, each under a name. Saving, the stream collects
// them. Loading, the part is asked twice: first the stream compares with the file and changes
// nothing, then it writes tensors in place, and the part takes over the numbers. So what is loaded
// cannot be anything else than what was saved, and nothing changes before everything fits.
#ifndef ND_LIB_NN_STATE_STREAM_H
#define ND_LIB_NN_STATE_STREAM_H
#include "lib/io/safetensors_read.h"
#include "lib/nn/module.h"

/// Bytes of the longest name of an entry: a part, a word, a parameter's full name.
#define ND__STATE_NAME_BYTES (ND__FULL_NAME_BYTES + 160)

typedef enum nd_state_phase { ND__STATE_SAVE, ND__STATE_CHECK, ND__STATE_COMMIT } nd_state_phase;

/// A tensor that a part lacks: made in the check, the part's from the commit on.
typedef struct nd_state_spare {
    const void *place; ///< of the part, where it belongs
    nd_tensor *tensor; ///< owned
} nd_state_spare;

typedef struct nd_state_stream {
    const char *operation;
    const char *path;
    nd_state_phase phase;
    const char *part;       ///< name of the part that speaks
    const nd_list *objects; ///< of all parts, borrowed
    nd_list *tensors; ///< owned: saving, what was collected; loading, the file's, in its order
    char **names;     ///< saving: of the tensors, each allocated
    size_t count, capacity; ///< of `names`
    nd_safetensors file;    ///< loading
    bool *taken;            ///< loading: which entries of the file somebody has asked for
    nd_state_spare *spares; ///< loading: in the order in which the parts ask
    size_t spare_count, spare_capacity;
    size_t spares_given; ///< the first ones, which the commit has handed out
    void *scratch;       ///< as long as the longest that a part has asked for
    size_t scratch_bytes;
} nd_state_stream;

/// A stream to save with.
nd_status nd__state_stream_begin_save(nd_state_stream *stream, const char *operation,
                                      const char *path);
/// A stream over a file, which is read whole.
nd_status nd__state_stream_begin_load(nd_state_stream *stream, const char *operation,
                                      const char *path);
/// Writes the file of what was collected.
nd_status nd__state_stream_write(nd_state_stream *stream);
/// That every entry of the file was asked for.
nd_status nd__state_stream_check_all_taken(const nd_state_stream *stream);
/// Idempotent; harmless on a stream that could not begin.
void nd__state_stream_end(nd_state_stream *stream);

/// A tensor under NAME or NAME.REST (rest may be NULL): collected, compared, or written.
nd_status nd__state_stream_tensor(nd_state_stream *stream, const char *name, const char *rest,
                                  nd_tensor *x);
/// `count` numbers of 8 bytes: i64 or f64. Saving reads them; loading writes what the file has, in
/// both phases, to memory that is not the part's until the part commits.
nd_status nd__state_stream_numbers(nd_state_stream *stream, const char *name, nd_dtype dtype,
                                   size_t count, void *numbers);
/// Memory for a part's numbers, until anybody asks for some again. The commit asks for what the
/// check has asked for, and so cannot fail for want of it. NULL with an error.
void *nd__state_stream_scratch(nd_state_stream *stream, size_t bytes);
/// The check: keeps a tensor for a place until the commit, and releases it when there is none. Takes
/// it over, also on error.
nd_status nd__state_stream_keep_spare(nd_state_stream *stream, const void *place, nd_tensor *made);
/// The commit: the tensor that was kept for a place, owned; NULL when there is none. Places are asked
/// for in the order of the check.
nd_tensor *nd__state_stream_take_spare(nd_state_stream *stream, const void *place);
/// Loading: whether the file has an entry.
bool nd__state_stream_has(const nd_state_stream *stream, const char *name, const char *rest);
/// "OPERATION: 'PATH' ..." for what a part finds wrong in its numbers.
nd_status nd__state_stream_refuse(const nd_state_stream *stream, const char *name,
                                  const char *problem);
#endif
