// Saving and loading a state in parts, between which several ranks can agree.
#ifndef ND_LIB_NN_STATE_H
#define ND_LIB_NN_STATE_H
#include "lib/nn/state_stream.h"
#include <nd/state.h>

/// nd_save_state as a part of `operation`, which its errors name.
nd_status nd__state_save(const char *operation, const nd_state *state, const char *path);
/// Reads a file and compares it with the state, which it leaves as it is. The stream is ended with
/// nd__state_stream_end, also on an error.
nd_status nd__state_check_file(nd_state_stream *stream, const char *operation,
                               const nd_state *state, const char *path);
/// Makes the state what a file that fits has.
nd_status nd__state_commit(nd_state_stream *stream, const nd_state *state);
/// A number for the names and kinds of the parts, in any order. Errors: the state is
/// NULL or closed, or a part is closed.
nd_status nd__state_hash(const char *operation, const nd_state *state, uint64_t *ret_hash);
#endif
