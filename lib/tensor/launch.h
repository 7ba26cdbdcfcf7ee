// From an operation to its kernel: the dispatch over the table of devices.
#ifndef ND_LIB_TENSOR_LAUNCH_H
#define ND_LIB_TENSOR_LAUNCH_H
#include "lib/device/device.h"

/// Hands a call to the backend of `device`; turns a failing status into an error that starts with
/// `operation`.
nd_status nd__launch(const char *operation, nd_device device, const nd_kernel_call *call);
/// The same, but ND_ERROR_UNSUPPORTED is an answer and sets no error.
nd_status nd__launch_where_supported(const char *operation, nd_device device,
                                     const nd_kernel_call *call);
/// Whether it is worth asking a device, by nd__launch_where_supported(), for a kernel that does in one
/// pass what others do in several. That it fuses some says nothing of a certain one.
bool nd__launch_fuses(nd_device device);
/// The same of convolutions of a 16-bit dtype as they are.
bool nd__launch_convolves(nd_device device, nd_dtype dtype);
/// Whether products of a 16-bit dtype, with casts around them, take less time than widened to f32.
bool nd__launch_multiplies(nd_device device, nd_dtype dtype);
/// Whether its argsort may be asked for a few ranks alone (kernels/kernel.h).
bool nd__launch_selects_ranks(nd_device device);
/// Whether a device takes chains (kernels/kernel.h).
bool nd__launch_has_chains(nd_device device);
/// Chains that callers collect before they launch them together.
#define ND__LAUNCH_CHAINS_MAX 24
/// As nd__launch(), for chains on a device that takes them. None writes what another reads or
/// writes.
nd_status nd__launch_chains(const char *operation, nd_device device, size_t count,
                            const nd_chain *chains);
#endif
