// Callbacks that were queued on a device and have not begun.
#ifndef ND_LIB_DEVICE_QUEUED_H
#define ND_LIB_DEVICE_QUEUED_H
#include <nd/tensor.h>

/// Releases what is kept for callbacks that a device will never call because it has failed for good.
/// Does nothing for any other device. User code may run, so no lock may be held; the thread's error
/// stays as it was.
void nd__queued_give_up(nd_device device);
#endif
