#pragma once

// A system call, or a copy, that is made only if some words still have their values at the moment
// of the call. The thread cannot be stopped, or wait for a processor, between the check of the
// words and the call: the kernel then makes it check again (restartable sequences, rseq(2)). So a
// thread that is stopped or asleep outside of the call will not make it later on, unless the words
// allow it. A copy ends where the thread is stopped in it, and does not resume.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tulle::live {

struct ExpectedWord {
  const std::atomic<std::uint32_t>* word = nullptr;
  std::uint32_t value = 0;
};

// Returns true if this thread can make such calls: the machine is an x86-64, and the C library has
// registered restartable sequences (glibc 2.35 and later, unless a tunable forbids it).
bool can_make_restartable_calls();

// Makes the system call with these arguments. Returns what the kernel returned, which for an error
// is a negative errno; or nothing if no call was made, because a word differed or the thread was
// interrupted. The caller must not have arguments evaluated from what the words protect after they
// change.
std::optional<long> call_if_unchanged(const ExpectedWord& first, const ExpectedWord& second,
                                      long number, const long (&arguments)[6]);

// Copies bytes from lower addresses to higher ones, up to 8 at a time and the last ones by
// themselves, so that a reader of the last byte sees the others too. An aligned word of 8 bytes is
// written at once. Returns false if a word differed or the thread was interrupted; some bytes may
// have been copied then. The longer the copy, the likelier is an interruption.
[[nodiscard]] bool copy_if_unchanged(const ExpectedWord& first, const ExpectedWord& second,
                                     void* to, const void* from, std::size_t bytes);

}  // namespace tulle::live
