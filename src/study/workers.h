#pragma once

// Separate processes do work, so that one which fails, or is killed, harms no other. They end
// with this process.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tulle::study {

struct WorkEnded {
  std::size_t index = 0;
  // Why it has failed, as one line for a person; empty: it has not.
  std::string failure;
  bool is_misuse = false;  // of what was asked for (base/result.h)
};

// Does the work of each of these indices in a separate process, of which so many run at the same
// time. `work` runs there, and its error is handed on. `ended` runs here, once for
// each that has ended, and `tick` several times a second. If `goes_on` returns false, no more
// begin, and those that run are told to end (SIGINT). Nothing is called for one that never began.
void on_processes(const std::vector<std::size_t>& indices, unsigned processes,
                  const std::function<Result<void>(std::size_t index)>& work,
                  const std::function<void(const WorkEnded&)>& ended,
                  const std::function<void(std::size_t running)>& tick,
                  const std::function<bool()>& goes_on);

}  // namespace tulle::study
