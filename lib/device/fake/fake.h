// The fake device of the tests: its kind, and what tests can do to it beyond using it.
//
// A program has it that depends on //lib/device/fake; the library has not.
// With a paused device a test decides what is still in flight: work, copies and releases pile up in
// the queue until it resumes. Waiting for a paused device waits until somebody resumes it.
#ifndef ND_LIB_DEVICE_FAKE_FAKE_H
#define ND_LIB_DEVICE_FAKE_FAKE_H
#include <nd/base.h>
#include <stdbool.h>
#include <stdint.h>

/// Its kind: the one that a program brings, behind those of <nd/base.h>.
#define ND_FAKE ((nd_device_kind)ND_DEVICE_KIND_COUNT)

/// What fresh and what released memory of the device is filled with.
#define ND__FAKE_FRESH 0xCB
#define ND__FAKE_RELEASED 0xDD
#define ND__FAKE_DEVICES 2

/// Holds the worker before its next command. Any thread.
void nd__fake_pause(int index);
void nd__fake_resume(int index);
/// The device has so many bytes (0: as many as the host), blocks whose release is queued included.
/// keeps: released blocks stay with it until they are retired, then in its cache until it is
/// trimmed. What it had kept is freed.
void nd__fake_set_memory(int index, uint64_t bytes, bool keeps);
/// Commands that are queued or running now.
uint64_t nd__fake_pending(int index);
/// Blocks allocated and not yet given back, queued releases included.
uint64_t nd__fake_live_blocks(int index);
#endif
