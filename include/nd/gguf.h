/// @file
/// GGUF, the files of llama.cpp's models: values by key, and tensors that may be quantized.
///
/// nd_gguf_open() reads and checks the header alone; tensors are read when they are asked for. Both
/// versions that are in use, 2 and 3, little endian (https://github.com/ggml-org/ggml/blob/master/
/// docs/gguf.md). Tensors of F32, F16, BF16, F64, I8, I16, I32, I64, Q8_0, Q4_0 and Q4_K can be
/// read; of other types their names and shapes are known.
///
/// An open file does not change: it may be used by any number of threads at once. Errors of the file
/// are those of <nd/io.h>; a key or name that is not there, or has another type, is
/// ND_ERROR_INVALID_ARGUMENT. On error nothing is written.
#ifndef ND_GGUF_H
#define ND_GGUF_H
#include <nd/io.h>
#ifdef __cplusplus
extern "C" {
#endif

/// What a value is, by the format's own numbers.
typedef enum nd_gguf_type {
    ND_GGUF_U8 = 0,
    ND_GGUF_I8,
    ND_GGUF_U16,
    ND_GGUF_I16,
    ND_GGUF_U32,
    ND_GGUF_I32,
    ND_GGUF_F32,
    ND_GGUF_BOOL,
    ND_GGUF_STRING,
    ND_GGUF_ARRAY, ///< of numbers or strings
    ND_GGUF_U64,
    ND_GGUF_I64,
    ND_GGUF_F64,
} nd_gguf_type;

/// Opens a file: its header is read, and all of it checked: keys and names that are there twice,
/// tensors that are not aligned, overlap or lie beyond the file, and shapes that do not fit 64 bits
/// are ND_ERROR_FORMAT; other versions, big-endian files, lists of lists and more than 8 dimensions
/// ND_ERROR_UNSUPPORTED. The file stays open while the object lives.
ND_API nd_gguf *nd_gguf_open(const char *path) ND_OWNED;
/// Version of the file: 2 or 3. 0 for NULL and for a closed object.
ND_API uint32_t nd_gguf_get_version(const nd_gguf *gguf);

/// Number of values. 0 for NULL and for a closed object.
ND_API size_t nd_gguf_get_size(const nd_gguf *gguf);
/// Key of a value in the order of the file. Borrowed: valid while the object lives.
ND_API const char *nd_gguf_get_key(const nd_gguf *gguf, size_t index);
/// Whether there is a value of that key. false for NULL and for a closed object.
ND_API bool nd_gguf_contains(const nd_gguf *gguf, const char *key);
/// Type of a value, and of an array also its elements'; those of anything else are the same.
/// ret_element may be NULL.
ND_API nd_status nd_gguf_get_type(const nd_gguf *gguf, const char *key, nd_gguf_type *ret_type,
                                  nd_gguf_type *ret_element);
/// A value of any integer type that fits 64 bits with a sign.
ND_API nd_status nd_gguf_get_i64(const nd_gguf *gguf, const char *key, int64_t *ret_value);
/// A value of f32 or f64.
ND_API nd_status nd_gguf_get_f64(const nd_gguf *gguf, const char *key, double *ret_value);
/// A value of bool.
ND_API nd_status nd_gguf_get_bool(const nd_gguf *gguf, const char *key, bool *ret_value);
/// A string: its bytes, which are not terminated and may be any. Borrowed: valid while the object
/// lives.
ND_API nd_status nd_gguf_get_string(const nd_gguf *gguf, const char *key, const char **ret_text,
                                    size_t *ret_bytes);
/// Number of elements of an array.
ND_API nd_status nd_gguf_get_array_size(const nd_gguf *gguf, const char *key, size_t *ret_size);
/// An array of numbers or bools: [size], of their dtype.
ND_API nd_tensor *nd_gguf_load_array(const nd_gguf *gguf, const char *key) ND_OWNED;
/// Walks over an array of strings, as nd_map_next() does over a map:
///
///     for (size_t at = 0; nd_gguf_next_string(gguf, "tokenizer.ggml.tokens", &at, &text, &bytes);)
///
/// Strings are as nd_gguf_get_string() has them. false at the end, for what is no array of strings,
/// and for a closed object; then nothing was written.
ND_API bool nd_gguf_next_string(const nd_gguf *gguf, const char *key, size_t *at,
                                const char **ret_text, size_t *ret_bytes);

/// Number of tensors. 0 for NULL and for a closed object.
ND_API size_t nd_gguf_get_tensor_count(const nd_gguf *gguf);
/// Name of a tensor in the order of the file. Borrowed: valid while the object lives.
ND_API const char *nd_gguf_get_tensor_name(const nd_gguf *gguf, size_t index);
/// Type of a tensor by its name in ggml ("F32", "Q4_K"). A constant.
ND_API const char *nd_gguf_get_tensor_type(const nd_gguf *gguf, const char *name);
/// Shape of a tensor, in row-major order: its last size is ggml's first. ret_shape has ND_MAX_DIMS
/// places.
ND_API nd_status nd_gguf_get_tensor_shape(const nd_gguf *gguf, const char *name, int *ret_ndim,
                                          int64_t *ret_shape);
/// Reads a tensor, or maps it, by options (NULL for the defaults). One that is not quantized has its
/// own dtype; a quantized one becomes f32, f16 or bf16, as `dtype` says, computed in f32 and
/// rounded once. ND_ERROR_UNSUPPORTED: a type that ndarc cannot read.
ND_API nd_tensor *nd_gguf_load_tensor(const nd_gguf *gguf, const char *name, nd_dtype dtype,
                                      const nd_load_options *options) ND_OWNED;
/// Reads a tensor of Q8_0 or Q4_0 [..., k] as <nd/quantization.h> has it, without loss: values
/// [..., k] i8 or [..., k / 2] u8, scales [..., k / 32] f16, no zeros. nd_dequantize() makes of them
/// the same numbers as nd_gguf_load_tensor().
ND_API nd_status nd_gguf_load_quantized(const nd_gguf *gguf, const char *name,
                                        nd_tensor **ret_values, nd_tensor **ret_scales);

#ifdef __cplusplus
}
#endif
#endif
