// Keys that a checkpoint's function draws, so that its second run draws the same ones.
//
// Invariant: frames of one thread are nested as the calls are. A drawn key is noted in every frame
// that records, innermost first; a frame that replays asks nobody further out.
#ifndef ND_LIB_NN_CHECKPOINT_H
#define ND_LIB_NN_CHECKPOINT_H
#include "lib/nn/module.h"

/// The next key of a module that draws: from a frame of this thread, or a new one.
nd_status nd__checkpoint_draw(const char *operation, nd_module *module, nd_key *ret_key);
/// Takes back the key that was drawn last, for who failed before it was of use: the next one is the
/// same again, unless another thread has drawn meanwhile.
void nd__checkpoint_give_back(const nd_module *module, const nd_key *key);
/// Whether this thread runs a checkpoint's function for the second time: buffers are not updated.
bool nd__checkpoint_is_replaying(void);
#endif
