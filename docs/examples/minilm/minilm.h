// Sentence embeddings of all-MiniLM-L6-v2, and of any encoder of its shape: texts of one meaning lie in one direction.
//
// A folder holds the model as it is published: config.json, model.safetensors, vocab.txt.
// tools/get_minilm fetches it.
#ifndef MINILM_H
#define MINILM_H
#include <nd/nd.h>
#ifdef __cplusplus
extern "C" {
#endif

/// The longest text that is read whole, in tokens, those at both ends counted; as the model was
/// trained.
enum { MINILM_LONGEST = 256 };

/// Opens the model of a folder, on this thread's default device (nd_set_default_device), where it
/// computes from then on; NULL: the one that tools/get_minilm has fetched. Owned, to be released as any object. Any number of threads may use it.
nd_object *minilm_open(const char *folder) ND_OWNED;
/// The folder it was read from.
const char *minilm_get_folder(const nd_object *model);
/// Why the last function of this file failed on this thread.
const char *minilm_get_problem(void);

/// Directions of texts in UTF-8, of length 1: [count, width] f32, on this thread's default device. Texts of about one length are
/// computed together.
nd_tensor *minilm_embed(const nd_object *model, size_t count, const char *const *texts) ND_OWNED;

/// Writes the tokens of a text, at most MINILM_LONGEST, and returns how many; 0 on error.
size_t minilm_encode(const nd_object *model, const char *text, int32_t *ret_ids);
/// The embeddings of `count` rows of tokens, one behind the other: [count, width], where the model is. Each row has
/// `longest` tokens, of which the first lengths[i] count.
nd_tensor *minilm_forward(const nd_object *model, size_t count, int64_t longest, const int32_t *ids,
                          const int64_t *lengths) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
