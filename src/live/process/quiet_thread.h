#pragma once

// A thread of Tulle's own in a program.

#include <functional>
#include <thread>

#include "base/result.h"

namespace tulle::live {

// Starts a thread in which signals are blocked: they belong to the program. Faults are the thread's
// own (live/process/program_memory.h).
Result<std::thread> start_quiet_thread(std::function<void()> run);

// Asks for a short time slice for the calling thread (Linux 6.12 and later). When it is woken, it
// then preempts a program that spins on memory, rather than wait for the end of that program's
// slice of some milliseconds.
void ask_for_short_slice();

}  // namespace tulle::live
