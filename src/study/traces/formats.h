#pragma once

// The readers of each format, which fill a trace. Each makes a trace for as many ranks as its file
// has; the error is one line.

#include <span>

#include "base/result.h"
#include "study/traces/reader.h"
#include "study/traces/trace.h"

namespace tulle::traces {

// Returns an error that there are fewer GPUs than ranks, or too many ranks.
Result<void> check_ranks(const std::string& place, std::uint64_t ranks, const Settings& settings);

// Reads GOAL as LogGOPSim's txt2bin does (Hoefler, Siebert, Lumsdaine 2009). `calc` is in
// nanoseconds, LogGOPSim's unit. `cpu` is a processor of the rank.
Result<Trace> read_goal(const File& file, const Settings& settings);

// Reads a workload that AICB writes for SimAI: times in nanoseconds, SimAI's tick, and bytes.
Result<Trace> read_simai(const File& file, const Settings& settings);

// Reads htsim's connections. `start` is in picoseconds, `size` in bytes.
Result<Trace> read_connection_matrix(const File& file, const Settings& settings);

// Reads Chakra's nodes. Durations are in microseconds.
Result<Trace> read_chakra(std::span<const File> files, const Settings& settings);

}  // namespace tulle::traces
